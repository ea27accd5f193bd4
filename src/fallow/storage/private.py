"""Permissions of files: files in a private folder are private.

A federation sets its folder to 0700, and every file below it inherits its permissions. Code that
writes checkpoints, records and pages therefore does not depend on the umask, or on whether a study
is simulated.
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
    """Create a private folder if it is missing. Raises OSError."""
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    folder.chmod(FOLDER)


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, private if it is inside a private one. Raises OSError."""
    way = [folder, *folder.absolute().parents]
    missing = [path for path in way if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=rights_in(path.parent, 0o777), exist_ok=True)
    if not missing:
        folder.mkdir(exist_ok=True)  # FileExistsError for a file


def rights_in(folder: Path, wished: int) -> int:
    """Return the permissions of a new file in ``folder``, before the umask.

    These are ``wished``, without those of other users if the folder is private.
    """
    is_private = not stat.S_IMODE(folder.stat().st_mode) & OTHERS
    if is_private:
        return wished & ~OTHERS
    return wished


def for_owner_alone(mode: int = FILE) -> Callable[[str, int], int]:
    """Return an opener for `open` that creates files with these permissions."""

    def open_with_rights(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    return open_with_rights


def write_private(path: Path, text: str, mode: int = FILE) -> None:
    """Write a private text file, and make an existing one private."""
    with open(path, "w", encoding="utf-8", opener=for_owner_alone(mode)) as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
