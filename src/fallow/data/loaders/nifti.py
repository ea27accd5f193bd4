"""Volumes and masks in NIfTI-1 files, read with limits and without another library."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

SUFFIXES = (".nii.gz", ".nii")
PACKED = b"\x1f\x8b"
"""Begin of a packed file."""
HEADER = 348
"""Bytes of a header, and the number with which it begins."""
MAGIC = b"n+1\0"
MOST_BYTES = 2**28
"""Largest size of the numbers of a file in memory."""
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
AT_SHAPE = 40
AT_TYPE = 70
AT_SIGN = 76  # of the third axis of a quaternion
AT_SCALING = 108
AT_FORMS = 252
AT_QUATERNION = 256
AT_MATRIX = 280
AT_MAGIC = 344
"""Positions of the fields of a header in bytes."""
UNSCALED = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Slopes and intercepts that leave numbers unchanged; a slope of 0 is none."""
UNIT = "NIfTI in its own unit"
"""Unit of the values of a volume, which its file does not name."""
AXES_OF_SPACE = 3
TO_SEE = (1.0, 1.0, -1.0)
"""Directions of an image along left, posterior and superior: superior is up."""


class Volume(NamedTuple):
    """Numbers of a file, in its order, and its shape: width, height, and further axes."""

    values: npt.NDArray[np.generic]
    shape: tuple[int, ...]


class Header(NamedTuple):
    """Header of a file.

    ``directions``: of each axis of the array along left, posterior and superior, (3, 3). ``scaling``:
    slope and intercept, None if the numbers are the values.
    """

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int
    scaling: tuple[float, float] | None
    directions: npt.NDArray[np.float64]


def is_nifti(file: Path) -> bool:
    """Return whether a file is NIfTI by its name.

    >>> is_nifti(Path("head.NII.gz")), is_nifti(Path("head.gz"))
    (True, False)
    """
    return file.name.lower().endswith(SUFFIXES)


def read_nifti(content: bytes) -> Volume:
    """Return the numbers of a mask in a NIfTI-1 file, packed or not, from its content.

    Raises ValueError for another or a damaged file. No more is unpacked than the header announces.
    """
    header, values = _read(BytesIO(content), content.startswith(PACKED))
    if header.scaling is not None:
        raise ValueError("its numbers are scaled; write the numbers of labels unscaled")
    return Volume(values, header.shape)


def read_header(file: Path) -> Header:
    """Return the header of a file. Raises ValueError for another or a damaged file."""
    with file.open("rb") as opened:
        is_packed = opened.read(len(PACKED)) == PACKED
        opened.seek(0)
        with _unpack(opened, is_packed) as content:
            return _read_header(content)


def count_slices(header: Header) -> int:
    """Return the number of slices along the third axis of a volume."""
    return math.prod(header.shape[2:AXES_OF_SPACE])


def read_slices(file: Path) -> npt.NDArray[np.float64]:
    """Return the slices of a volume as images in physical values, (slices, height, width).

    Slices are along the third axis of the array, in the direction of left, posterior or superior.
    An image is as radiologists see it: left, or posterior for a sagittal one, is to the right, and
    posterior or inferior is below. Raises ValueError for another file or a damaged one, and for
    several volumes in a file.
    """
    with file.open("rb") as opened:
        is_packed = opened.read(len(PACKED)) == PACKED
        opened.seek(0)
        header, numbers = _read(opened, is_packed)
    if math.prod(header.shape[AXES_OF_SPACE:]) > 1:
        raise ValueError(
            f"it has the shape {list(header.shape)}, several volumes; save each as a file of its own"
        )
    values = numbers.astype(np.float64)
    if header.scaling is not None:
        slope, intercept = header.scaling
        values = values * slope + intercept
    if not np.isfinite(values).all():
        raise ValueError("it has numbers that are not finite; replace them")
    shape = (*header.shape, 1, 1)[:AXES_OF_SPACE]
    return orient_slices(values.reshape(shape, order="F"), header.directions)


def orient_slices(
    values: npt.NDArray[np.float64], directions: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return slices along the third axis as images, (i, j, k) -> (k, height, width).

    >>> values = np.arange(2.0).reshape(2, 1, 1)  # from right to left
    >>> orient_slices(values, np.eye(3)).tolist()
    [[[0.0, 1.0]]]
    >>> orient_slices(values, np.diag([-1.0, 1.0, 1.0])).tolist()
    [[[1.0, 0.0]]]
    """
    from scipy.optimize import linear_sum_assignment

    axes, along = linear_sum_assignment(-np.abs(directions))  # of the array; of the body
    body_axis = dict(zip(axes.tolist(), along.tolist(), strict=True))
    across, down = sorted((0, 1), key=lambda axis: body_axis[axis])
    to_see = {2: 1.0, across: TO_SEE[body_axis[across]], down: TO_SEE[body_axis[down]]}
    for axis, wanted in to_see.items():
        if directions[axis, body_axis[axis]] * wanted < 0:
            values = np.flip(values, axis)
    return np.ascontiguousarray(values.transpose(2, down, across))


def _read(file: BinaryIO, is_packed: bool) -> tuple[Header, npt.NDArray[np.generic]]:
    """Return the header and the numbers of a file, in their order."""
    with _unpack(file, is_packed) as content:
        header = _read_header(content)
        size = math.prod(header.shape) * header.dtype.itemsize
        if size > MOST_BYTES:
            raise ValueError(
                f"it has {size >> 20:,} MiB, more than {MOST_BYTES >> 20}, the limit for a file"
            )
        content.read(header.offset - HEADER)
        numbers = content.read(size)
    if len(numbers) < size:
        raise ValueError(f"it ends after {len(numbers):,} of {size:,} bytes of numbers")
    return header, np.frombuffer(numbers, header.dtype)


@contextmanager
def _unpack(file: BinaryIO, is_packed: bool) -> Iterator[BinaryIO]:
    """Open a packed or unpacked file. Raises ValueError for a damaged one."""
    if not is_packed:
        yield file
        return
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast(BinaryIO, unpacked)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error


def _read_header(file: BinaryIO) -> Header:
    header = file.read(HEADER)
    order = _find_order(header)
    dims = struct.unpack_from(f"{order}8h", header, AT_SHAPE)
    (code,) = struct.unpack_from(f"{order}h", header, AT_TYPE)
    offset, slope, intercept = struct.unpack_from(f"{order}3f", header, AT_SCALING)
    n_axes = dims[0]
    shape = dims[1 : 1 + n_axes]
    if not 1 <= n_axes <= MOST_AXES or min(shape) < 1:
        raise ValueError(f"its header has the shape {list(dims)}; write it again")
    if code not in TYPES:
        raise ValueError(f"its numbers have the type {code}; write whole numbers")
    if not HEADER <= offset <= FARTHEST:
        raise ValueError(f"its header has the offset {offset:g}; write it again")
    scaling = None
    if (slope, intercept) not in UNSCALED:
        scaling = (float(slope), float(intercept))
    dtype = np.dtype(f"{order}{TYPES[code]}")
    return Header(dtype, shape, int(offset), scaling, _find_directions(header, order))


def _find_directions(header: bytes, order: str) -> npt.NDArray[np.float64]:
    """Return the directions of the axes of an array along left, posterior and superior, (3, 3).

    They are those of the affine matrix, else of the quaternion, else right, anterior and superior.
    """
    of_quaternion, of_matrix = struct.unpack_from(f"{order}2h", header, AT_FORMS)
    directions = np.eye(3)
    if of_matrix > 0:
        rows = struct.unpack_from(f"{order}12f", header, AT_MATRIX)
        directions = np.array(rows, dtype=np.float64).reshape(3, 4)[:, :3].T
    elif of_quaternion > 0:
        b, c, d = struct.unpack_from(f"{order}3f", header, AT_QUATERNION)
        (is_left_handed,) = struct.unpack_from(f"{order}f", header, AT_SIGN)
        a = math.sqrt(max(0.0, 1 - (b * b + c * c + d * d)))
        directions = np.array(
            [
                [a * a + b * b - c * c - d * d, 2 * (b * c + a * d), 2 * (b * d - a * c)],
                [2 * (b * c - a * d), a * a + c * c - b * b - d * d, 2 * (c * d + a * b)],
                [2 * (b * d + a * c), 2 * (c * d - a * b), a * a + d * d - b * b - c * c],
            ]
        )
        if is_left_handed < 0:
            directions[2] *= -1
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    if not np.isfinite(directions).all() or not (lengths > 0).all():
        raise ValueError("its header has no directions of axes; write it again")
    unit: npt.NDArray[np.float64] = directions / lengths
    unit[:, :2] *= -1  # right and anterior are negative
    return unit


def _find_order(header: bytes) -> str:
    """Return the byte order of a header. Raises ValueError for one of another format."""
    for order in "<>":
        is_header = len(header) == HEADER and header[AT_MAGIC:] == MAGIC
        if is_header and struct.unpack_from(f"{order}i", header)[0] == HEADER:
            return order
    raise ValueError("it is no NIfTI-1 file (.nii, .nii.gz)")
