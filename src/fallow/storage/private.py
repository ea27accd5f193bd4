"""Permissions of files: files in a private folder are private.

A federation keeps its folder at 0700, and every file below it inherits permissions from its folder.
Code that writes checkpoints, records and pages therefore does not depend on the umask, or on
whether a study is simulated.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

OTHERS = 0o077
"""Permissions of all users except the owner; also the umask of a process of a federation."""
FOLDER = 0o700
FILE = 0o600


def private_folder(folder: Path) -> None:
    """A folder for its owner alone, made where it is missing.  Raises OSError."""
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    folder.chmod(FOLDER)


def make_folder(folder: Path) -> None:
    """A folder with its parents, private where it is made in a private one.  Raises OSError."""
    way = [folder, *folder.absolute().parents]
    missing = [path for path in way if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=rights_in(path.parent, 0o777), exist_ok=True)
    if not missing:
        folder.mkdir(exist_ok=True)  # FileExistsError where it is a file


def rights_in(folder: Path, wished: int) -> int:
    """The rights of a new file in ``folder``, before the umask: ``wished``, less those of others
    where they have none to the folder."""
    is_private = not stat.S_IMODE(folder.stat().st_mode) & OTHERS
    if is_private:
        return wished & ~OTHERS
    return wished


def for_owner_alone(mode: int = FILE) -> Callable[[str, int], int]:
    """An opener for `open`: a new file has these rights from its first moment on."""

    def open_with_rights(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    return open_with_rights


def write_private(path: Path, text: str, mode: int = FILE) -> None:
    """Write a text file of its owner alone, also where it was there with other rights."""
    with open(path, "w", encoding="utf-8", opener=for_owner_alone(mode)) as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
