"""NIfTI masks and volumes, written byte by byte."""

from __future__ import annotations

import gzip
import struct
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.data.loaders.nifti import (
    FARTHEST,
    HEADER,
    MAGIC,
    MOST_BYTES,
    PACKED,
    count_slices,
    read_header,
    read_nifti,
    read_slices,
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
    scaling = (changes.get("slope", 1.0), changes.get("intercept", 0.0))
    struct.pack_into(f"{order}3f", header, 108, offset, *scaling)
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


def directed(values: np.ndarray, rows: np.ndarray) -> bytes:
    """Return a volume whose axes point in these directions: right, anterior, superior."""
    content = bytearray(nifti(values.ravel(order="F"), values.shape, 16, "f4"))
    struct.pack_into("<h", content, 254, 1)
    struct.pack_into("<12f", content, 280, *np.hstack([rows, np.zeros((3, 1))]).ravel())
    return bytes(content)


def test_slices_are_seen_as_radiologists_do_however_they_are_stored(tmp_path: Path) -> None:
    file = tmp_path / "volume.nii"
    n_cases = 0
    for order in permutations(range(3)):
        for signs in product((-1, 1), repeat=3):
            rows = np.zeros((3, 3))
            rows[list(order), range(3)] = signs
            x, y, z = np.einsum("wa,aijk->wijk", rows, np.indices((2, 2, 2)))
            left_posterior_superior = np.stack([-x, -y, z])
            file.write_bytes(
                directed(np.tensordot([1, 10, 100], left_posterior_superior, 1), rows)
            )
            slices = read_slices(file)
            along = [float(np.diff(slices, axis=axis).mean()) for axis in range(3)]
            across, down = sorted(set(range(3)) - {order[2]})
            assert along == [10 ** order[2], (1, 10, -100)[down], 10**across]
            n_cases += 1
    assert n_cases == 48


def test_values_of_a_volume_have_its_slope_and_intercept(tmp_path: Path) -> None:
    file = tmp_path / "volume.nii.gz"
    content = nifti(range(6), (1, 2, 3), slope=2.0, intercept=-1.0)
    file.write_bytes(gzip.compress(content))
    assert read_slices(file).ravel().tolist() == [1.0, -1.0, 5.0, 3.0, 9.0, 7.0]
    assert count_slices(read_header(file)) == 3


@each_of(
    "content, sentence",
    [
        (nifti(range(12), (1, 2, 3, 2)), "several volumes; save each as a file of its own"),
        (nifti([0.0, float("nan")], (1, 2), 16, "f4"), "numbers that are not finite"),
        (nifti(range(6), (1, 2, 3))[:-1], "it ends after 5 of 6 bytes"),
        (gzip.compress(nifti(range(6), (1, 2, 3)))[:-20], "it cannot be unpacked"),
        (directed(np.zeros((1, 2, 3)), np.zeros((3, 3))), "no directions of axes"),
    ],
)
def test_damaged_volumes_end_in_one_sentence(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "volume.nii"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read_slices(file)
