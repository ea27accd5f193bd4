"""Files that unpack to more than the memory limit are refused before they are read."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fallow.data import load
from fallow.data.catalog.idx import IMAGES, read_idx
from fallow.data.loaders.images import read_folder, read_images
from fallow.data.loaders.table_files import read_file
from fallow.data.loaders.workbook import check_workbook_fits
from tests.data.test_own_archive import write_header
from tests.each import each_of

HUGE = 10**13  # numbers of 4 bytes
LACK = "unpacks to .* TB, but .* of memory are available; provide fewer examples"


def test_a_named_archive_that_says_another_size_than_it_has_is_not_read(
    tmp_path: Path,
) -> None:
    with zipfile.ZipFile(tmp_path / "octmnist.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train_images.npy", write_header((HUGE,)))
    message = r"octmnist\.npz is damaged: the header of its array 'train_images'"
    with pytest.raises(ValueError, match=message):
        load("octmnist", tmp_path)


def test_a_named_array_beyond_the_memory_there_is_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">4I", IMAGES, 2**31, 2**9, 2**9))
    with pytest.raises(ValueError, match=f"train-images-idx3-ubyte {LACK}"):
        read_idx(path, IMAGES)


SHEET = "xl/worksheets/sheet1.xml"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def write_book(path: Path, rows: str) -> Path:
    """Write an Excel file whose first sheet has these rows, as XML."""
    openpyxl = pytest.importorskip("openpyxl")
    whole = path.with_name("whole.xlsx")
    book = openpyxl.Workbook()
    for row in (["age", "label"], [61, "no"], [58, "yes"]):
        book.active.append(row)
    book.save(whole)
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(path, "w") as changed:
        for member in archive.namelist():
            content = archive.read(member)
            if member == SHEET and rows:
                sheet = (
                    f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
                )
                content = sheet.encode()
            changed.writestr(member, content)
    return path


@pytest.mark.parametrize(
    "rows",
    [
        '<row r="1"><c r="XFD1"><v>1</v></c></row><row r="9999999"><c r="A9999999"/></row>',
        '<x:row xmlns:x="' + MAIN + '" r="99999999999999999999"/>',
        '<row><c r="ZZZ1"/></row>' + '<row r="1048576"><c><v>1</v></c></row>' * 2,
    ],
)
def test_a_sheet_of_few_letters_and_many_cells_is_not_read(
    rows: str, tmp_path: Path
) -> None:
    path = write_book(tmp_path / "rows.xlsx", rows)
    memory = 2**33  # independent of the machine
    with pytest.raises(ValueError, match=r"rows\.xlsx unpacks to .*, but .* of memory are"):
        check_workbook_fits(path, memory)


def test_a_sheet_beyond_the_memory_there_is_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_book(tmp_path / "rows.xlsx", "")
    allowed = tmp_path / "memory.max"
    allowed.write_text("1000")
    monkeypatch.setattr("fallow.storage.received.CONTAINER", allowed)
    with pytest.raises(ValueError, match=r"rows\.xlsx unpacks to .*, but .* of memory are"):
        read_file(path)


WIDE = '<row r="900000"><c r="XFD900000"><v>1</v></c></row>'


@pytest.mark.usefixtures("small_machine")
@each_of(
    "rows",
    [
        WIDE + "<row>&undeclared;</row>",
        WIDE + "<undeclared:row/>",
        "<row></c></row>" + WIDE,
    ],
)
def test_a_sheet_of_invalid_xml_is_not_read(rows: str, tmp_path: Path) -> None:
    path = write_book(tmp_path / "rows.xlsx", rows)
    with pytest.raises(ValueError, match=r"rows\.xlsx is damaged: .*sheet1\.xml"):
        read_file(path)


def test_cells_under_the_name_of_an_image_are_not_read(tmp_path: Path) -> None:
    path = write_book(tmp_path / "rows.xlsx", "")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("xl/media/image1.png", b"\x89PNG" * 1000)
    assert read_file(path).n_rows == 2
    with zipfile.ZipFile(path, "a") as archive:
        sheet = f"&undeclared;<worksheet><sheetData>{WIDE}</sheetData></worksheet>"
        archive.writestr("xl/media/image2.png", sheet)
    with pytest.raises(ValueError, match=r"rows\.xlsx is damaged: .*image2\.png"):
        read_file(path)


@pytest.mark.usefixtures("small_machine")
def test_a_sheet_behind_a_damaged_part_is_not_read(tmp_path: Path) -> None:
    path = write_book(tmp_path / "rows.xlsx", WIDE)
    changed = tmp_path / "changed.xlsx"
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(changed, "w") as written:
        written.writestr("first.bin", b"0123456789")
        for member in archive.namelist():
            written.writestr(member, archive.read(member))
    changed.write_bytes(changed.read_bytes().replace(b"0123456789", b"x123456789", 1))
    with pytest.raises(ValueError, match=r"changed\.xlsx could not be read as Excel"):
        read_file(changed)


def test_a_sheet_that_fits_is_read_as_it_is(tmp_path: Path) -> None:
    path = write_book(tmp_path / "rows.xlsx", "")
    check_workbook_fits(path, 100_000)
    assert read_file(path).n_rows == 2
    with pytest.raises(ValueError, match="unpacks to"):
        check_workbook_fits(path, 100)


@pytest.fixture
def small_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a container with 4 MB."""
    allowed = tmp_path / "memory.max"
    allowed.write_text("4000000")
    monkeypatch.setattr("fallow.storage.received.CONTAINER", allowed)


@pytest.mark.usefixtures("small_machine")
def test_a_parquet_file_beyond_the_memory_there_is_is_not_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    # a repeated value compresses to a few bytes
    ages = np.ones(500_000)
    for many in (
        {"age": ages},
        {"age": ages, "ill": ["no"] * len(ages)},
        {"ill": ["no" * 1000] * 10_000},
    ):
        pq.write_table(pa.table(many), path)
        assert path.stat().st_size < 10_000
        with pytest.raises(
            ValueError, match=r"rows\.parquet unpacks to .*, but 4\.0 MB of memory"
        ):
            read_file(path)
    pq.write_table(pa.table({"age": np.ones(100), "ill": ["no"] * 100}), path)
    assert read_file(path).n_rows == 100


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
def test_a_feather_file_beyond_the_memory_there_is_is_not_read(
    compression: str, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    path = tmp_path / "rows.feather"
    words = pa.array(["no"] * 400_000).dictionary_encode()
    many = pa.table({"age": np.zeros(400_000), "ill": words})
    feather.write_feather(many, path, compression=compression)
    if compression != "uncompressed":
        assert path.stat().st_size < 100_000
    with pytest.raises(
        ValueError, match=r"rows\.feather unpacks to .*, but 4\.0 MB of memory"
    ):
        read_file(path)
    feather.write_feather(many.slice(0, 100), path, compression=compression)
    table = read_file(path)
    assert table.n_rows == 100 and set(table.texts("ill")) == {"no"}


def test_a_feather_file_of_a_stream_or_damaged_is_read_or_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"age": np.arange(50.0), "ill": ["no", "yes"] * 25})
    path = tmp_path / "rows.arrow"
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table)
    assert read_file(path).n_rows == 50
    whole = path.read_bytes()
    for end in (10, 100, len(whole) // 2):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"rows\.arrow"):
            read_file(path)
    for at in range(40, len(whole), 97):
        path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
        try:
            read_file(path)
        except ValueError as error:
            assert "rows.arrow" in str(error)


def write_images(folder: Path, n: int, size: tuple[int, int]) -> Path:
    """Write a folder of gray images, which compress to a few bytes."""
    images = pytest.importorskip("PIL.Image")
    for number in range(n):
        path = folder / "north" / "ill"
        path.mkdir(parents=True, exist_ok=True)
        images.new("L", size).save(path / f"{number}.png")
    return folder


@pytest.mark.usefixtures("small_machine")
def test_images_beyond_the_memory_there_is_are_not_read(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "scans", 20, (250, 200))
    with pytest.raises(
        ValueError, match=r"scans unpacks to 5\.0 MB, but 4\.0 MB of memory"
    ):
        read_folder(folder)
    files = sorted(folder.rglob("*.png"))
    with pytest.raises(ValueError, match=r"ill unpacks to 5\.0 MB, but 4\.0 MB of memory"):
        read_images(files)
    # resized one at a time
    assert read_images(files, size=(20, 25)).x.shape == (20, 1, 20, 25)
    assert read_folder(write_images(tmp_path / "few", 10, (250, 200))).x.shape[0] == 10


@pytest.mark.usefixtures("small_machine")
def test_one_image_beyond_the_memory_there_is_is_not_decoded(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "scans", 1, (5000, 1000))
    with pytest.raises(ValueError, match=r"scans unpacks to 25\.0 MB"):
        read_folder(folder)
    with pytest.raises(ValueError, match=r"ill unpacks to 5\.\d MB"):
        read_images(sorted(folder.rglob("*.png")), size=(20, 25))
