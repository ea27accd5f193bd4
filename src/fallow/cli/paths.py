"""Whether modules are found in the current folder: for a user's own simulations, and nothing else.

At a real site, files lie in folders where anybody may have put them: a ``fastapi.py`` beside the rows
must not be what the labeling page imports.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def use_current_folder() -> None:
    """Find ``module:Class`` in the current folder: for commands that run a user's own recipe."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def leave_current_folder() -> None:
    """Find no module in the current folder, whoever put it among the places where they are found:
    ``python -m``, or an empty part of PYTHONPATH.

    A folder in which Fallow itself lies stays, because it is where all else was found too.
    """
    here = Path.cwd().resolve()
    own = Path(__file__).resolve().parents[2]
    sys.path[:] = [entry for entry in sys.path if not _is_current(entry, here, own)]


def _is_current(entry: str, here: Path, own: Path) -> bool:
    if entry == "":
        return True
    place = Path(os.path.realpath(entry))
    return place == here and place != own
