"""Arrays in memory-mapped .npy files, written atomically."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fallow.storage.files import MARK, replacing

Array = npt.NDArray[Any]
BLOCK = 1 << 24  # bytes per checksum update


def save_array(path: Path, array: Array, mode: int = 0o666) -> str:
    """Write an array by `fallow.storage.files.replacing`, and return the checksum of its values."""
    whole = np.ascontiguousarray(array)
    with replacing(path, mode) as file:
        np.lib.format.write_array(file, whole, allow_pickle=False)
    return checksum_of(whole)


def map_array(path: Path, mark: str) -> Array | None:
    """Memory-map the array of a file whose values have the checksum ``mark``.

    Processes that map the file share its pages and cannot change it. Returns None for a missing or
    damaged file, for another array, for a link, and for a file of another owner.
    """
    if not is_own_file(path):
        return None
    try:
        array: Array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(array, np.memmap) or checksum_of(array) != mark:
        return None
    return array


def is_own_file(path: Path) -> bool:
    """Return whether a path is a regular file of this process's owner.

    Otherwise another user could determine the content.
    """
    try:
        status = path.lstat()
    except OSError:
        return False
    is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return stat.S_ISREG(status.st_mode) and is_own


def checksum_of(array: Array) -> str:
    """Return a checksum of dtype, shape and values of a contiguous array."""
    h = hashlib.blake2b(digest_size=MARK)
    h.update(repr((array.dtype.str, array.shape)).encode())
    values = array.reshape(-1).view(np.uint8)
    for begin in range(0, len(values), BLOCK):
        h.update(values[begin : begin + BLOCK].data)
    return h.hexdigest()
