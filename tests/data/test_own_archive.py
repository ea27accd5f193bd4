"""Array files are read only if they fit in memory and match their declared sizes."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fallow.data import from_npz
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.pixels import as_features


def write_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of an array of numbers."""
    head = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, header)
    return head.getvalue()


def write_archive(
    path: Path, name: str, content: bytes, claimed: int | None = None
) -> None:
    """Write an archive of one member that declares ``claimed`` bytes when unpacked."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
        if claimed is not None:  # the list of members is written last
            archive.infolist()[0].file_size = claimed


def test_arrays_that_fit_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    x = np.arange(6.0).reshape(2, 3)
    names = np.array(["a", "bc"])
    np.savez_compressed(path, x=x, ids=names, one=np.array(7), none=np.zeros((0, 3)))
    arrays = read_arrays(path, limit=x.nbytes + names.nbytes + 8)
    assert list(arrays) == ["x", "ids", "one", "none"]
    np.testing.assert_array_equal(arrays["x"], x)
    np.testing.assert_array_equal(arrays["ids"], names)


def test_zeros_beyond_the_memory_there_is_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((1000, 100)), y=np.zeros(1000))
    assert path.stat().st_size < 4000
    with pytest.raises(ValueError, match=r"unpacks to 808\.0 kB, but 800\.0 kB of memory"):
        read_arrays(path, limit=800_000)
    n = 10**13
    header = write_header((n,))
    write_archive(path, "x.npy", header, claimed=8 * n + len(header))
    with pytest.raises(
        ValueError, match=r"zeros\.npz unpacks to 80\.0 TB, but .* available"
    ):
        from_npz(path)


def test_bytes_that_are_no_array_count_as_well(tmp_path: Path) -> None:
    path = tmp_path / "text.npz"
    write_archive(path, "x.txt", bytes(1_000_000))
    with pytest.raises(ValueError, match=r"unpacks to 1\.0 MB"):
        read_arrays(path, limit=999_999)


@pytest.mark.parametrize("shape", [(5,), (7,), (10**15,), (-2, -3)])
def test_an_array_of_another_size_than_its_header_says_is_damaged(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "mine.npz"
    write_archive(path, "x.npy", write_header(shape) + bytes(48))
    with pytest.raises(
        ValueError,
        match=r"mine\.npz is damaged: the header of its array 'x' .* but 48 bytes",
    ):
        from_npz(path)


def test_texts_without_a_letter_are_no_array_of_rows_without_end(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    header = write_header((10**9,)).replace(b"'<f8'", b"'<U0'")
    write_archive(path, "ids.npy", header)
    with pytest.raises(
        ValueError, match=r"damaged: .* 'ids' declares shape .* of <U0, but 0 b"
    ):
        read_arrays(path)


def test_a_header_without_an_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    length = (1 << 24).to_bytes(4, "little")
    write_archive(path, "x.npy", b"\x93NUMPY\x02\x00" + length + b" " * (1 << 24))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="could not be read"):
            read_arrays(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 22


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (True, 2), }\n" + bytes(16),
        b"(" * 9000,
        b"{'descr': '<f8', 'fortran_order': False, 'shape': 1 +, }\n",
        b"__import__('os').getcwd()\n",
    ],
    ids=["truth", "brackets", "half", "code"],
)
def test_a_header_that_is_no_literal_is_refused_in_a_sentence(
    header: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "mine.npz"
    size = len(header.rstrip(bytes(1))).to_bytes(2, "little")
    write_archive(path, "x.npy", b"\x93NUMPY\x01\x00" + size + header)
    with pytest.raises(ValueError, match=r"mine\.npz could not be read"):
        read_arrays(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    path.symlink_to(os.devnull)  # with the defect, a pipe would block the test
    with pytest.raises(ValueError, match="is not a file but a pipe or a device"):
        read_arrays(path)


@pytest.mark.parametrize("kind", ["c16", "M8[s]", "m8[s]", "f4,f4", "O"])
def test_features_are_real_numbers(kind: str) -> None:
    with pytest.raises(ValueError, match=r"rows: features are .* give real numbers"):
        as_features(np.zeros((4, 2), dtype=kind), "rows")
