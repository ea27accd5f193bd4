"""Import path: the current folder is only searched for a user's own simulations.

At a real site, anyone may be able to write to a data folder.  A file ``fastapi.py`` in it must not
be imported by the labeling page.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def use_current_folder() -> None:
    """Allow imports of ``module:Class`` from the current folder, for a user's own experiments."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def leave_current_folder() -> None:
    """Remove the current folder from the import path, where ``python -m`` or PYTHONPATH put it.

    A folder that contains Fallow itself is kept, since all other modules were found there too.
    """
    here = Path.cwd().resolve()
    own = Path(__file__).resolve().parents[2]
    sys.path[:] = [entry for entry in sys.path if not _is_current(entry, here, own)]


def _is_current(entry: str, here: Path, own: Path) -> bool:
    if entry == "":
        return True
    folder = Path(os.path.realpath(entry))
    return folder == here and folder != own
