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

from fallow.core.refusal import explain_errors
from fallow.storage.received import check_no_pipe, describe_lack

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


class _Unfit(Exception):
    """Error for a valid file that must not be read, with a reason."""


def read_arrays(path: Path, limit: int | None = None) -> dict[str, Array]:
    """Return all arrays of a .npz file, by name.

    most: maximum size of all arrays in bytes; None: the available memory. Zeros are
    compressed to a thousandth, so the content of a small file may exceed the memory. Raises
    ValueError for a file of another kind, a larger content, or an array whose size differs
    from its header.
    """
    check_no_pipe(path)
    try:
        # a file that was opened here is closed after any error
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
            f"{path} could not be read: it is not a .npz file, or an array in it contains "
            "Python objects; write arrays of numbers and texts with numpy.savez"
        ) from error


def check_arrays_fit(path: Path, limit: int | None = None) -> None:
    """Raise ValueError for a .npz file whose arrays do not fit into memory, by their
    headers.

    Nothing is decompressed. Raises any of `DAMAGED` for a file of another kind.
    """
    with (
        explain_errors(f"{path} ", of=_Unfit),
        path.open("rb") as opened,
        zipfile.ZipFile(opened) as members,
    ):
        _check_size(_count_bytes(members), limit)


def _check_size(n_bytes: int, limit: int | None) -> None:
    """Raise an error if arrays of this size do not fit into memory."""
    lack = describe_lack(n_bytes, limit)
    if lack is not None:
        raise _Unfit(lack)


def _count_bytes(members: zipfile.ZipFile) -> int:
    """Return the size of all arrays in bytes, by their headers, without decompression."""
    n_bytes = 0
    for member in members.infolist():
        with members.open(member) as stream:
            n_bytes += _count_bytes_of_one(stream, member)
    return n_bytes


def _count_bytes_of_one(stream: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Return the size of an array in bytes, by its header; raise an error if the file
    differs.
    """
    start = stream.read(LONGEST)
    if not start.startswith(np.lib.format.MAGIC_PREFIX):  # raw bytes, read unchanged
        return member.file_size
    head = io.BytesIO(start)
    shape, _, dtype = read_header(head)
    if dtype.hasobject:  # no size, rejected on reading
        return member.file_size
    n_said = math.prod(shape) * dtype.itemsize
    n_held = member.file_size - head.tell()
    is_countable = dtype.itemsize > 0 and all(length >= 0 for length in shape)
    if n_said != n_held or not is_countable:
        name = member.filename.removesuffix(".npy")
        raise _Unfit(
            f"is damaged: the header of its array {name!r:.80} declares shape {shape!s:.80} of "
            f"{dtype.str}, but {n_held:,} bytes follow; write it again with numpy.savez"
        )
    return n_held


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, column order and type of an array, from the header of a .npy file.

    Raises ValueError for any other content.
    """
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    if version >= (2, 0):
        read = np.lib.format.read_array_header_2_0
    return read(stream)
