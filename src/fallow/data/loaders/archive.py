"""Arrays of a .npz file, whose sizes are checked before decompression."""

from __future__ import annotations

import io
import lzma
import math
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fallow.storage.received import UnfitError, check_fits, check_no_pipe

Array = npt.NDArray[Any]
LONGEST = 1 << 14  # bytes of a header; NumPy accepts fewer
DAMAGED = (
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    AttributeError,
    RuntimeError,  # protected by a password, or compressed by an unknown method
    # headers that are not Python literals
    TypeError,
    SyntaxError,
    TokenError,
    OverflowError,
)
"""Errors for a file of another kind, or an incomplete one."""


def read_arrays(path: Path, limit: int | None = None) -> dict[str, Array]:
    """Return all arrays of a .npz file, by name.

    limit: maximum size of all arrays in bytes; None: the available memory. Zeros are
    compressed to a thousandth, so the content of a small file may exceed the memory. Raises
    ValueError for a file of another kind, a larger content, or an array whose size differs
    from its header.
    """
    check_no_pipe(path)
    try:
        return load_arrays(path, limit)
    except UnfitError:
        raise
    except DAMAGED as error:
        raise ValueError(
            f"{path} could not be read: it is not a .npz file, or an array in it contains "
            "Python objects; write arrays of numbers and texts with numpy.savez"
        ) from error


def load_arrays(path: Path, limit: int | None = None) -> dict[str, Array]:
    """Return the same as `read_arrays`, but raise any of `DAMAGED` for another kind of file."""
    # a file that was opened here is closed after any error
    with path.open("rb") as opened:
        n_bytes = 0
        with zipfile.ZipFile(opened) as members:
            for member in members.infolist():
                with members.open(member) as stream:
                    n_bytes += _count_bytes(stream, member, path)
        check_fits(path, n_bytes, limit)
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}


def _count_bytes(stream: IO[bytes], member: zipfile.ZipInfo, path: Path) -> int:
    """Return the size of an array in bytes, by its header, without decompressing it.

    Raises UnfitError if the file differs.
    """
    start = stream.read(LONGEST)
    if not start.startswith(np.lib.format.MAGIC_PREFIX):  # raw bytes, read unchanged
        return member.file_size
    head = io.BytesIO(start)
    shape, _, dtype = read_header(head)
    if dtype.hasobject:  # no size, rejected on reading
        return member.file_size
    n_declared = math.prod(shape) * dtype.itemsize
    n_stored = member.file_size - head.tell()
    is_countable = dtype.itemsize > 0 and all(length >= 0 for length in shape)
    if n_declared != n_stored or not is_countable:
        name = member.filename.removesuffix(".npy")
        raise UnfitError(
            f"{path} is damaged: the header of its array {name!r:.80} declares shape {shape!s:.80} of "
            f"{dtype.str}, but {n_stored:,} bytes follow; write it again with numpy.savez"
        )
    return n_stored


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, column order and type of an array, from the header of a .npy file.

    Raises ValueError for any other content.
    """
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    if version >= (2, 0):
        read = np.lib.format.read_array_header_2_0
    return read(stream)
