"""NIfTI masks, written byte by byte."""

from __future__ import annotations

import gzip
import struct
from typing import Any

import numpy as np
import pytest

from fallow.deployment.site.nifti import (
    FARTHEST,
    HEADER,
    MAGIC,
    MOST_BYTES,
    PACKED,
    read_nifti,
)
from tests.each import each_of

OFFSET = 352


def nifti(
    values: Any = (0, 1, 2, 1, 0, 2),
    shape: tuple[int, ...] = (2, 3),
    code: int = 2,
    kind: str = "u1",
    order: str = "<",
    **changes: float,
) -> bytes:
    """Return a file with these numbers; ``changes`` replace ``offset`` or ``slope``."""
    header = bytearray(OFFSET)
    struct.pack_into(f"{order}i", header, 0, HEADER)
    dims = (len(shape), *shape, *([1] * (7 - len(shape))))
    struct.pack_into(f"{order}8h", header, 40, *dims)
    struct.pack_into(f"{order}h", header, 70, code)
    offset = changes.get("offset", float(OFFSET))
    struct.pack_into(f"{order}3f", header, 108, offset, changes.get("slope", 1.0), 0.0)
    header[344:348] = MAGIC
    return bytes(header) + np.array(values, f"{order}{kind}").tobytes()


@each_of(
    "content",
    [
        nifti(),
        gzip.compress(nifti()),
        nifti(code=4, kind="i2", order=">"),
        nifti(code=16, kind="f4"),
        nifti(slope=0.0),
        nifti(shape=(2, 1, 3)),
    ],
)
def test_numbers_are_read_in_every_type_and_byte_order(content: bytes) -> None:
    volume = read_nifti(content)
    assert volume.values.tolist() == [0, 1, 2, 1, 0, 2]
    assert np.prod(volume.shape) == 6


@each_of(
    "content, sentence",
    [
        (b"", "it is no NIfTI-1 file"),
        (nifti()[:300], "it is no NIfTI-1 file"),
        (b"PNG" * 200, "it is no NIfTI-1 file"),
        (nifti()[:-1], "it ends after 5 of 6 bytes"),
        (nifti(shape=(2, -3)), "its header has the shape"),
        (nifti(shape=()), "its header has the shape"),
        (nifti(code=32), "have the type 32"),
        (nifti(slope=2.0), "its numbers are scaled"),
        (nifti(shape=(32767, 32767, 9)), f"more than {MOST_BYTES >> 20}, the limit"),
        (nifti(offset=1e30), "the offset 1e\\+30"),
        (nifti(offset=float("nan")), "the offset nan"),
        (nifti(offset=-9.0), "the offset -9"),
        (nifti(offset=float(FARTHEST)), "it ends after 0 of 6 bytes"),
    ],
)
def test_damaged_and_hostile_files_end_in_one_sentence(
    content: bytes, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_nifti(content)


def test_damaged_archives_end_in_one_sentence() -> None:
    packed = gzip.compress(nifti())
    for content in (packed[:-20], PACKED + b"plain", packed[:30] + b"\xff" * 40):
        with pytest.raises(ValueError, match="it cannot be unpacked"):
            read_nifti(content)


def test_an_archive_is_not_unpacked_beyond_the_numbers_of_its_header() -> None:
    content = gzip.compress(nifti()) + 9 * b"no archive"
    assert len(read_nifti(content).values) == 6
