"""Arrays of a .npz file, whose sizes are looked at before anything is unpacked."""

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

from fallow.storage.memory import describe_lack
from fallow.storage.received import check_no_pipe

Array = npt.NDArray[Any]
LONGEST = 1 << 14  # bytes of a header; NumPy takes fewer
DAMAGED = (
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    AttributeError,
    RuntimeError,  # locked by a password, or packed as this Python does not know
    # headers of arrays that are no Python literals
    TypeError,
    SyntaxError,
    TokenError,
    OverflowError,
)
"""Errors of reading a file of another kind, or an incomplete one."""


class _Unfit(Exception):
    """A file that is one of arrays and is not read, with a sentence that says why."""


def read_arrays(path: Path, limit: int | None = None) -> dict[str, Array]:
    """All arrays of a .npz file, by name.

    most: bytes that they may have together; None: the memory that is available.  Zeros are packed
    to a thousandth, so a small file may hold more than any memory.
    Raises ValueError when it is no such file, has more, or an array of another size than it says.
    """
    check_no_pipe(path)
    try:
        # a file that was opened here is closed, whatever is wrong with it
        with path.open("rb") as opened:
            with zipfile.ZipFile(opened) as members:
                n_bytes = _count_bytes(members)
            _check_size(n_bytes, limit)
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except _Unfit as error:
        raise ValueError(f"{path} {error}") from error
    except DAMAGED as error:
        raise ValueError(
            f"{path} could not be read: it is no .npz file, or an array in it holds Python objects; "
            "write arrays of numbers and texts with numpy.savez"
        ) from error


def check_arrays_fit(path: Path, limit: int | None = None) -> None:
    """Raise ValueError for a .npz file whose arrays do not fit into memory, by their headers; nothing
    behind one is unpacked.  Raises any of `DAMAGED` where it is no such file."""
    try:
        with path.open("rb") as opened, zipfile.ZipFile(opened) as members:
            _check_size(_count_bytes(members), limit)
    except _Unfit as error:
        raise ValueError(f"{path} {error}") from error


def _check_size(n_bytes: int, limit: int | None) -> None:
    """Raise where arrays of so many bytes do not fit into memory."""
    lack = describe_lack(n_bytes, limit)
    if lack is not None:
        raise _Unfit(lack)


def _count_bytes(members: zipfile.ZipFile) -> int:
    """Bytes of all arrays together, as their headers have it; nothing behind a header is unpacked."""
    n_bytes = 0
    for member in members.infolist():
        with members.open(member) as stream:
            n_bytes += _count_bytes_of_one(stream, member)
    return n_bytes


def _count_bytes_of_one(stream: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Bytes of an array as its header has it; raises where the file has another number of them."""
    start = stream.read(LONGEST)
    if not start.startswith(
        np.lib.format.MAGIC_PREFIX
    ):  # bytes, which are read as they are
        return member.file_size
    head = io.BytesIO(start)
    shape, _, dtype = read_header(head)
    if (
        dtype.hasobject
    ):  # of which a header says no size; they are refused where they are read
        return member.file_size
    n_said = math.prod(shape) * dtype.itemsize
    n_held = member.file_size - head.tell()
    is_countable = dtype.itemsize > 0 and all(length >= 0 for length in shape)
    if n_said != n_held or not is_countable:
        name = member.filename.removesuffix(".npy")
        raise _Unfit(
            f"is damaged: its array {name!r:.80} is of {n_said:,} bytes by its header, and of "
            f"{n_held:,} in the file; write it again with numpy.savez"
        )
    return n_held


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape of an array, whether it is kept by columns, and its type, as the head of a .npy file
    has them.  Raises ValueError for anything else."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    if version >= (2, 0):
        read = np.lib.format.read_array_header_2_0
    return read(stream)
