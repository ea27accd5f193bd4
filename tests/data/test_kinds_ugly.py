"""Files as people bring them from instruments, spreadsheets and cameras: read right or reported."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fallow as fl
from fallow.data import Dataset
from fallow.data.loaders.images import read_images
from fallow.data.loaders.labels import encode_labels
from fallow.data.loaders.marks import Marks
from fallow.deployment.site.pictures import read_pictures
from tests.data.kinds import column_of, quietly, sentences
from tests.each import each_of

images = pytest.importorskip("PIL.Image")
N = 30
LABELS = ["ill", "well"] * (N // 2)

INSIDE: dict[str, Callable[[int], str]] = {
    "blood pressure": lambda i: f"{110 + i}/{70 + i % 9}",
    "typographic minus": lambda i: f"−{i / 10}" if i % 2 else f"{i / 10}",
    "minus in brackets": lambda i: f"({i})" if i % 2 else f"{i}",
    "measurement error": lambda i: f"{i}.2±0.1",
    "flag of a laboratory": lambda i: f"{i / 10} H" if i % 2 else f"{i / 10} L",
    "duration": lambda i: f"{i % 3} h {i} min",
    "age in years and months": lambda i: f"{i}y 3m",
    "power of ten": lambda i: f"{i}x10^3",
    "coordinate": lambda i: f"52°{i}'N",
    "apostrophe of Excel": lambda i: f"'{i}",
    "dilution": lambda i: f"1:{i + 10}",
    "grams and milligrams": lambda i: f"{i + 1} mg" if i % 2 else f"{i + 1} g",
}


@each_of("write", INSIDE.values())
def test_texts_around_numbers_are_reported(write: Callable[[int], str]) -> None:
    column = column_of([write(i) for i in range(N)])
    assert "texts around numbers" in sentences(column) or "dates or times" in str(
        column.read
    )


NAMES: dict[str, Callable[[int], str]] = {
    "age group": lambda i: f"{i % 15 * 5}-{i % 15 * 5 + 4}",
    "registry number": lambda i: f"{i + 10}-17-5",
    "patient number": lambda i: f"p{i:03}",
    "hexadecimal": lambda i: f"{i * 7919:04x}",
    "diagnosis": lambda i: f"E{10 + i % 5}",
    "structure": lambda i: ["CCO", "c1ccccc1", "CC(=O)O"][i % 3],
    "rating": lambda i: ["1 - low", "2 - mid", "3 - high"][i % 3],
    "stage": lambda i: ["I", "II", "III", "IV"][i % 4],
    "several answers": lambda i: ["a;b", "a", "b;c"][i % 3],
}


@each_of("write", NAMES.values())
def test_names_with_digits_are_names(write: Callable[[int], str]) -> None:
    column = column_of([write(i) for i in range(N)])
    assert column.read.kind in ("category", "identifier")
    assert "texts around numbers" not in sentences(column)


DAYS = [f"2023{i % 12 + 1:02}{i % 28 + 1:02}" for i in range(N)]


@each_of(
    "cells, is_date",
    [
        (DAYS, True),
        ([day[:6] for day in DAYS], True),
        ([f"{10 + i % 18}{i % 12 + 1:02}2023" for i in range(N)], True),
        ([f"{day}{i % 24:02}{i % 60:02}" for i, day in enumerate(DAYS)], True),
        ([f"{1940 + i}" for i in range(N)], False),
        ([f"{202300 + i}" for i in range(N)], False),
        ([f"{20231300 + i}" for i in range(N)], False),
        ([f"{10000000 + 37 * i}" for i in range(N)], False),
    ],
)
def test_whole_numbers_that_may_be_dates_are_reported(
    cells: list[str], is_date: bool
) -> None:
    column = column_of(cells)
    assert column.read.kind == "number"
    assert ("which may be dates" in sentences(column)) is is_date


SERIALS = (
    ("visit_date", ["44927", "45010", "45333"], True),
    ("Datum der Aufnahme", ["44927", "45010,5", "45333"], True),
    ("DOB", ["29281", "20140", "31000"], True),
    ("income", ["44927", "45010", "45333"], False),
    ("day", ["1", "2", "365"], False),
    ("updated", ["70000", "45010", "45333"], False),
)


@each_of("name, cells, is_date", SERIALS)
def test_days_as_excel_counts_them_are_reported(
    name: str, cells: list[str], is_date: bool
) -> None:
    column = column_of(cells * 9, name, marks=Marks(","))
    assert column.read.kind == "number"
    assert ("which may be dates" in sentences(column)) is is_date


def test_dates_beside_days_as_excel_counts_them_are_reported() -> None:
    column = column_of(["1980-03-04", "29281", "30112"] * 9)
    assert "beside numbers such as 29281, which may be dates as Excel" in sentences(column)


WRITTEN_DATES = (
    "{0}-Jan-2024",
    "{0}JAN2024",
    "{0} January 2024",
    "Jan {0}, 2024",
    "1/{0}/2024 10:30:00 AM",
    "2024-01-{0}T10:30Z",
)


@each_of("form", WRITTEN_DATES)
def test_dates_in_other_writings_are_left_out(form: str) -> None:
    column = column_of([form.format(10 + i % 9) for i in range(N)])
    assert column.read.kind == "date", column.read


SHORT_DATES = (
    ([f"2024-{1 + i % 9:02}" for i in range(N)], True),
    ([f"{1 + i % 9}-Jan" for i in range(N)], True),
    ([f"20{10 + i % 9}-{11 + i % 9}" for i in range(N)], False),  # seasons
    ([f"ward {1 + i % 9}" for i in range(N)], False),
    (["may", "march", "april"] * (N // 3), False),
)


@each_of("cells, is_named", SHORT_DATES)
def test_texts_that_may_be_dates_are_named(cells: list[str], is_named: bool) -> None:
    column = column_of(cells)
    assert column.read.kind == "category"
    assert ("may be dates" in sentences(column)) is is_named


MADE_DATES = (
    (["0-4", "05-Sep", "10-14"], True),
    (["0-4", "2024-09-05", "15-19"], True),
    (["0-4", "Oct-14", "15-19"], True),
    (["DEC1", "2024-09-02 00:00:00", "MARC1"], True),
    (["0-4", "5-9", "10-14"], False),
    (["north", "south", "may"], False),
)


@each_of("levels, is_named", MADE_DATES)
def test_dates_that_a_spreadsheet_made_are_named(levels: list[str], is_named: bool) -> None:
    words = "a spreadsheet may have made it"
    assert (words in sentences(column_of(levels * 9))) is is_named
    labels = encode_labels(np.array(levels * 9), "auto", "toy")
    assert any(words in finding.sentence for finding in labels.findings) is is_named


def load_text(path: Path, text: str) -> Dataset:
    path.write_text(text, encoding="utf-8")
    return quietly(lambda: fl.load(path, label="y"))


ROWS = [f"{i % 7},{'ab'[i % 2]},{LABELS[i]}" for i in range(N)]
HEADER = "u,v,y"
REFUSED = {
    "two files, one after the other": (
        [HEADER, *ROWS[:9], HEADER, *ROWS[9:]],
        "row 10 repeats the header",
    ),
    "row of units": ([HEADER, "mg,,", *ROWS], "column 'u', row 1: 'mg' is not a number"),
    "row of totals": ([HEADER, *ROWS, "Total,,"], "row 31: 'Total' is not a number"),
    "line of the program below": (
        [HEADER, *ROWS, "", "by LabSoft 3"],
        "row 31 has 1 cells",
    ),
    "comments above": (
        ["# X200", "# 2024", HEADER, *ROWS],
        "remove the lines above the header",
    ),
    "two columns of one name": (["u,u ,y", *ROWS], "more than one column 'u'"),
    "detection limit": ([HEADER, *ROWS, "<0.5,a,ill"], "'<0.5' is not a number"),
    "word for missing": ([HEADER, *ROWS, "unclear,a,ill"], "'unclear' is not a number"),
    "dash for missing": ([HEADER, *ROWS, "-,a,ill"], "'-' is not a number"),
    "infinity": ([HEADER, *ROWS, "Inf,a,ill"], "1 infinite values"),
}


@each_of("lines, message", REFUSED.values())
def test_a_file_with_other_lines_is_refused(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        load_text(tmp_path / "t.csv", "\n".join(lines) + "\n")


def test_a_repeated_header_among_texts_is_refused(tmp_path: Path) -> None:
    rows = [f"{'ab'[i % 2]},{LABELS[i]}" for i in range(N)]
    with pytest.raises(ValueError, match=r"t\.csv: row 31 repeats the header"):
        load_text(tmp_path / "t.csv", "\n".join(["v,y", *rows, "v,y"]) + "\n")


CLASSES = {
    "total": (["a", "b"] * 10 + ["Total"], "the class 'Total' has one row"),
    "code of SPSS": ([0, 1] * 10 + [-9, -9], r"the class '-9' \(2 rows\) may be the code"),
    "code 99": ([1, 2, 3] * 10 + [99], r"the class '99' \(1 row\) may be the code"),
    "unknown as 9": ([0, 1] * 10 + [9], r"the class '9' \(1 row\) may be the code"),
    "digits": ([0, 1, 8] * 10 + [9], None),
    "temperatures": ([98, 99, 100] * 10, None),
    "two totals": (["a", "Total"] * 10, None),
}


@each_of("labels, message", CLASSES.values())
def test_a_class_that_may_be_none_is_reported(
    labels: list[object], message: str | None
) -> None:
    data = quietly(lambda: fl.from_arrays(np.arange(len(labels))[:, None] / 7, labels))
    odd = [note for note in data.notes if "the class " in note]
    assert bool(odd) is (message is not None)
    if message is not None:
        assert re.search(message, odd[0])


def write_images(folder: Path, pixels: np.ndarray, name: str = "{}.png") -> Path:
    for number in range(12):
        file = folder / "ab"[number % 2] / name.format(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        images.fromarray(pixels + np.array(number, pixels.dtype)).save(file)
    return folder


@each_of("largest, is_dark", [(3000, True), (4000, True), (9000, False), (60_000, False)])
def test_twelve_bits_in_sixteen_are_reported(
    largest: int, is_dark: bool, tmp_path: Path
) -> None:
    folder = write_images(tmp_path / str(largest), np.full((4, 4), largest, np.uint16))
    data = quietly(lambda: fl.load(folder))
    assert any("images of 10 or 12 bits" in note for note in data.notes) is is_dark


@each_of(
    "ending, n_blank, is_reported",
    [
        (".png", 1, True),
        (".jpg", 2, True),
        (".tif", 5, True),
        (".png", 0, False),
        (".png", 12, False),
    ],
)
def test_images_of_one_color_among_others_are_reported(
    ending: str, n_blank: int, is_reported: bool, tmp_path: Path
) -> None:
    folder = tmp_path / f"{n_blank}{ending}"
    for number in range(12):
        pixels = np.full((8, 8, 3), [255, 17 * number, 0], np.uint8)
        if number >= n_blank:
            pixels[2:5, 2:5] = 90
        file = folder / "ab"[number % 2] / f"{number:02}{ending}"
        file.parent.mkdir(parents=True, exist_ok=True)
        images.fromarray(pixels).save(file)
    data = quietly(lambda: fl.load(folder))
    at_site = read_pictures(folder).findings
    for findings in (data.findings, at_site):
        blank = [item for item in findings if "one color only" in item.sentence]
        assert bool(blank) is is_reported
        assert all(f"00{ending}" in item.sentence for item in blank)
        assert not any(item.is_doubtful for item in blank)


def test_pages_of_one_color_are_shown_and_no_python_warning(tmp_path: Path) -> None:
    pages = [
        images.fromarray(np.eye(8, dtype=np.uint8) * 200 * (at > 0)) for at in range(4)
    ]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    findings = read_images([tmp_path / "a.tif"], pages="each").findings
    (blank,) = (item for item in findings if "one color only" in item.sentence)
    assert blank.is_doubtful


def write_color_png(path: Path, pixels: np.ndarray) -> None:
    """Write a color image (height, width, 3) of 16 bits, which Pillow cannot write."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    content = b"\x89PNG\r\n\x1a\n"
    for kind, part in parts:
        checksum = struct.pack(">I", zlib.crc32(kind + part))
        content += struct.pack(">I", len(part)) + kind + part + checksum
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@each_of("largest, is_dark", [(4000, True), (60_000, False)])
def test_twelve_bits_in_color_are_reported(
    largest: int, is_dark: bool, tmp_path: Path
) -> None:
    folder = tmp_path / str(largest)
    for number in range(12):
        pixels = np.full((4, 4, 3), largest - 100 * number)
        write_color_png(folder / "ab"[number % 2] / f"{number}.png", pixels)
    data = quietly(lambda: fl.load(folder))
    assert data.x.shape[1] == 3
    assert any("images of 10 or 12 bits" in note for note in data.notes) is is_dark


@each_of(
    "name, is_mask",
    [
        ("{}_mask.png", True),
        ("{}-seg.png", True),
        ("{}_thumb.png", True),
        ("{}_aug2.png", True),
        ("x{}.png", False),
    ],
)
def test_masks_beside_images_are_reported(name: str, is_mask: bool, tmp_path: Path) -> None:
    folder = tmp_path / name[:4]
    write_images(folder, np.zeros((4, 4), np.uint8))
    write_images(folder, np.full((4, 4), 99, np.uint8), name)
    data = quietly(lambda: fl.load(folder))
    assert (
        any(
            "12 images named as the mask or a copy of another" in note
            for note in data.notes
        )
        is is_mask
    )


def test_an_empty_file_among_images_is_refused_as_such(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", np.zeros((4, 4), np.uint8))
    (folder / "a" / "x.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x\.png could not be .* the file is empty"):
        fl.load(folder)


TWO_LABELS = (  # labels of 40 examples, of which the last one is a copy of the first
    ("images", True),
    ("rows", True),
    ("counts", False),  # rows with few different values
)


@each_of("kind, is_reported", TWO_LABELS)
def test_equal_examples_with_two_labels_are_reported(kind: str, is_reported: bool) -> None:
    n = 40
    x = np.random.default_rng(0).random((n, 1, 4, 4))
    if kind != "images":
        x = x.reshape(n, 16)
    if kind == "counts":
        x = (2 * x[:, :2]).round()
    x[-1] = x[0]
    labels = [f"{number % 2}" for number in range(n)]
    data = quietly(lambda: fl.from_arrays(x, labels))
    sentence = "1 example is equal to another one with another label: rows 1 and 40"
    assert any(sentence in note for note in data.notes) is is_reported
    labels[-1] = labels[0]
    assert not any("another label" in note for note in fl.from_arrays(x, labels).notes)


@each_of("ending", ["svg", "nef", "heic", "xmp", "txt", "mp4", "dat"])
def test_other_files_among_images_are_refused_by_name(ending: str, tmp_path: Path) -> None:
    folder = write_images(tmp_path / ending, np.zeros((4, 4), np.uint8))
    (folder / "a" / f"x.{ending}").write_bytes(b"\0\1\2 no image")
    with pytest.raises(ValueError, match=rf"x\.{ending} could not be read as an image"):
        fl.load(folder)


WRAPPED = {  # cells of a file -> their columns, and the note
    "typographic quotes": ("“{}”", ("number", "category"), "texts are in “ ”"),
    "German quotes": ("„{}“", ("number", "category"), "texts are in „ “"),
    "French quotes": ("«{}»", ("number", "category"), "texts are in « »"),
    "text of Excel": ('"=""{}"""', ("number", "category"), 'texts are in =" "'),
    "apostrophe of Excel": ("'{}", ("number", "category"), "texts begin with '"),
    "nothing": ("{}", ("number", "category"), None),
}


@each_of("form, kinds, part", WRAPPED.values())
def test_signs_around_all_cells_are_no_part_of_them(
    form: str, kinds: tuple[str, str], part: str | None, tmp_path: Path
) -> None:
    rows = [(i % 9 / 2, "ab"[i % 2], LABELS[i]) for i in range(N)]
    lines = [",".join(form.format(cell) for cell in row) for row in rows]
    header = ",".join(form.format(name) for name in ("u", "v", "y"))
    data = load_text(tmp_path / f"{ord(form[0])}.csv", "\n".join([header, *lines]))
    assert data.reading is not None
    columns = {column.name: column for column in data.reading.columns}
    assert (columns["u"].kind, columns["v"].kind) == kinds
    assert columns["v"].values == ("a", "b") and data.classes == ("ill", "well")
    signs = [note for note in data.notes if "texts are in" in note or "begin with" in note]
    assert len(signs) == (part is not None) and (part or "") in "".join(signs)


def test_a_sign_around_some_cells_is_kept(tmp_path: Path) -> None:
    rows = [f"{i % 9},{['“a”', 'b'][i % 2]},{LABELS[i]}" for i in range(N)]
    data = load_text(tmp_path / "t.csv", "\n".join([HEADER.replace("v", "w"), *rows]))
    assert "w=“a”" in data.columns


@each_of("cell, is_told", [("1.2345{}E+11", True), ("1.23e+11", False), ("{}E+02", False)])
def test_numbers_that_a_spreadsheet_shortened_are_reported(
    cell: str, is_told: bool
) -> None:
    column = column_of([cell.format(i % 9) for i in range(N)] + ["3"])
    assert ("may have cut off" in sentences(column)) is is_told


POWERS = ("1.5D+0{}", "{}.5×10^3", "{}½", "{} 1/2")


@each_of("form", POWERS)
def test_few_numbers_in_other_writings_are_reported(form: str) -> None:
    cells = [form.format(i % 5) for i in range(N)]
    assert "texts around numbers" in sentences(column_of(cells))


def test_titers_are_no_dates() -> None:
    for levels in (["1:20", "1:40", "1:160", "1:320"], ["1:20", "1:40"]):
        column = column_of(levels * 9)
        assert column.read.kind == "category", column.read
        assert "date" not in sentences(column)


SPLIT_COLUMNS = (
    ("split", ["train", "test"], True),
    ("Fold", ["training", "validation", "test"], True),
    ("set", ["train", "val"], True),
    ("set", ["a", "b"], False),
    ("test", ["pos", "neg"], False),
)


@each_of("name, levels, is_reported", SPLIT_COLUMNS)
def test_a_column_of_training_and_test_rows_is_reported(
    name: str, levels: list[str], is_reported: bool
) -> None:
    column = column_of([levels[i % len(levels)] for i in range(N)], name)
    assert ("training and test rows" in sentences(column)) is is_reported


BESIDE = {
    "legend": (["Legend", "1 = mild", "2 = grave"], True),
    "two sheets in one": (["u2", *map(str, range(8))], True),
    "filled later": (["u2", *[""] * 25, *"12345"], False),
    "filled everywhere": (["u2", *["1", "", "2"] * 10], False),
    "two rows": (["u2", *["x", "y"] * 15], False),
}


@each_of("cells, is_reported", BESIDE.values())
def test_a_legend_beside_a_table_is_reported(
    cells: list[str], is_reported: bool, tmp_path: Path
) -> None:
    beside = [*cells, *[""] * N][: N + 1]
    lines = [f"{row},,{cell}" for row, cell in zip([HEADER, *ROWS], beside, strict=True)]
    data = load_text(tmp_path / "t.csv", "\n".join(lines))
    sentence = "has cells only in the first"
    assert any(sentence in note for note in data.notes) is is_reported


WHERE = {
    "second header": ([HEADER, "Unit,Ward,Outcome", *ROWS], "row 1 .* second header"),
    "legend below": (
        [HEADER, *ROWS, "Legend:,,", "1 = low,,", "2 = high,,"],
        "last rows .* legend",
    ),
    "inside": ([HEADER, *ROWS[:9], "low,a,ill", *ROWS[9:]], "or omit the column"),
}


@each_of("lines, message", WHERE.values())
def test_the_place_of_a_text_among_numbers_tells_what_it_is(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        load_text(tmp_path / "t.csv", "\n".join(lines))


@each_of("first", ["0.5,1,0", "0,1,0", "4.5,NaN,1"])
def test_a_file_without_a_header_is_refused_as_such(first: str, tmp_path: Path) -> None:
    lines = [first, *(f"{i}.5,{i % 7},{i % 2}" for i in range(N))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="row has numbers in place of names; add a header"):
        fl.load(tmp_path / "t.csv", label="2")


def test_many_constant_columns_are_one_note(tmp_path: Path) -> None:
    names = [f"g{i}" for i in range(40)]
    lines = [",".join([str(i), *"0" * 40, LABELS[i]]) for i in range(N)]
    data = load_text(tmp_path / "t.csv", "\n".join([",".join(["u", *names, "y"]), *lines]))
    (constant,) = [note for note in data.notes if "g0" in note]
    assert "40 columns were left out, because all rows are equal" in constant


def test_a_refusal_without_features_has_the_warnings(tmp_path: Path) -> None:
    lines = [f"{110 + i}/{70 + i},{LABELS[i]}" for i in range(N)]
    with pytest.raises(ValueError, match=r"no feature column.* texts around numbers"):
        load_text(tmp_path / "t.csv", "\n".join(["u,y", *lines]))
