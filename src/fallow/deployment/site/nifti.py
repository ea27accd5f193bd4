"""Masks in NIfTI-1 files, read with limits and without another library."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SUFFIXES = (".nii.gz", ".nii")
PACKED = b"\x1f\x8b"
"""Begin of a packed file."""
HEADER = 348
"""Bytes of a header, and the number with which it begins."""
MAGIC = b"n+1\0"
MOST_BYTES = 2**28
"""Largest size of the numbers of a mask in memory."""
FARTHEST = 2**20
"""Largest position of the first number, after extensions of the header."""
MOST_AXES = 7
TYPES: Mapping[int, str] = {
    2: "u1",
    4: "i2",
    8: "i4",
    16: "f4",
    64: "f8",
    256: "i1",
    512: "u2",
    768: "u4",
}
"""Types of numbers by their codes."""
UNSCALED = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Slopes and intercepts that leave numbers unchanged; a slope of 0 is none."""


class Volume(NamedTuple):
    """Numbers of a file, in its order, and its shape: width, height, and further axes."""

    values: npt.NDArray[np.generic]
    shape: tuple[int, ...]


def read_nifti(content: bytes) -> Volume:
    """Return the numbers of a NIfTI-1 file, packed or not, from its content.

    Raises ValueError for another or a damaged file. No more is unpacked than the header announces.
    """
    if not content.startswith(PACKED):
        return _read(BytesIO(content))
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) as unpacked:
            return _read(unpacked)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error


def _read(file: BytesIO | gzip.GzipFile) -> Volume:
    header = file.read(HEADER)
    order = _find_order(header)
    dims = struct.unpack_from(f"{order}8h", header, 40)
    (code,) = struct.unpack_from(f"{order}h", header, 70)
    offset, slope, intercept = struct.unpack_from(f"{order}3f", header, 108)
    n_axes = dims[0]
    shape = dims[1 : 1 + n_axes]
    if not 1 <= n_axes <= MOST_AXES or min(shape) < 1:
        raise ValueError(f"its header has the shape {list(dims)}; write it again")
    if code not in TYPES:
        raise ValueError(f"its numbers have the type {code}; write whole numbers")
    if (slope, intercept) not in UNSCALED:
        raise ValueError("its numbers are scaled; write the numbers of labels unscaled")
    dtype = np.dtype(f"{order}{TYPES[code]}")
    size = math.prod(shape) * dtype.itemsize
    if size > MOST_BYTES:
        raise ValueError(
            f"it has {size >> 20:,} MiB, more than {MOST_BYTES >> 20}, the limit for a mask"
        )
    if not HEADER <= offset <= FARTHEST:
        raise ValueError(f"its header has the offset {offset:g}; write it again")
    file.read(int(offset) - HEADER)
    content = file.read(size)
    if len(content) < size:
        raise ValueError(f"it ends after {len(content):,} of {size:,} bytes of numbers")
    return Volume(np.frombuffer(content, dtype), shape)


def _find_order(header: bytes) -> str:
    """Return the byte order of a header. Raises ValueError for one of another format."""
    for order in "<>":
        is_header = len(header) == HEADER and header[344:348] == MAGIC
        if is_header and struct.unpack_from(f"{order}i", header)[0] == HEADER:
            return order
    raise ValueError("it is no NIfTI-1 file (.nii, .nii.gz)")
