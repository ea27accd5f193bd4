"""The size of a Parquet file is computed from its pages, not from its declared sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.storage.parquet_pages import Extent, measure_columns, read_fields

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402  # after the skip

ROWS = 5000


def write_texts(file: Path, **options: object) -> None:
    """Write two columns of ROWS cells of 20 characters: a is distinct, b constant."""
    a = [f"{row:020d}" for row in range(ROWS)]
    table = pa.table({"a": a, "b": ["x" * 20] * ROWS})
    parquet.write_table(table, file, compression="zstd", **options)


def measure(file: Path, *columns: str) -> Extent:
    return measure_columns(file, parquet.read_metadata(file), columns)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_pages_unpack_to_is_counted(version: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.parquet"
    write_texts(file, use_dictionary=False, data_page_version=version, row_group_size=999)
    found = measure(file, "a")
    assert found.rows == ROWS
    # a text is preceded by its length in 4 bytes
    assert 24 * ROWS <= found.n_bytes < 25 * ROWS
    both = measure(file, "a", "b")
    assert 48 * ROWS <= both.n_bytes < 50 * ROWS


def test_a_list_of_values_counts_as_well(tmp_path: Path) -> None:
    file = tmp_path / "texts.parquet"
    write_texts(file)
    assert 24 * ROWS <= measure(file, "a").n_bytes < 27 * ROWS
    assert measure(file, "b").n_bytes < 100


def test_sizes_that_the_end_of_a_file_makes_up_are_not_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "texts.parquet"
    write_texts(file, use_dictionary=False)
    before = measure(file, "a", "b")
    whole = file.read_bytes()
    of_group = parquet.read_metadata(file).row_group(0).total_byte_size
    twice = 2 * of_group
    output = bytes([twice & 127 | 128, twice >> 7 & 127 | 128, twice >> 14])
    assert whole.count(output) == 1
    file.write_bytes(whole.replace(output, bytes([130, 128, 0])))
    assert parquet.read_metadata(file).row_group(0).total_byte_size == 1
    assert measure(file, "a", "b") == before


def test_pages_behind_which_more_is_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "texts.parquet"
    write_texts(file)
    whole = file.read_bytes()
    assert whole.count(b"parquet-cpp-arrow") == 1
    file.write_bytes(whole.replace(b"parquet-cpp-arrow", b"parquet-mr".ljust(17)))
    with pytest.raises(ValueError, match="written by another program"):
        measure(file, "a")


def test_a_page_without_an_end_or_with_two_sizes_is_refused() -> None:
    size = [0x15, 4, 0x15, 6]
    assert read_fields(bytes([*size, 0])) == ({1: 2, 2: 3}, 5)
    for wrong, why in (
        (size, "is incomplete"),
        ([*size, 0x05, 4, 8, 0], "repeats a field"),
        ([0x15, *[255] * 9, 1, 0], "more than 32 bits"),
        ([0x1C] * 9, "nested structures"),
        ([0x19, 0], "unknown type"),
    ):
        with pytest.raises(ValueError, match=why):
            read_fields(bytes(wrong))
