"""Delimited text: what pyarrow would read otherwise than Python's csv module is read right."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from fallow.core.load_options import DEFAULTS, LoadOptions
from fallow.data.loaders import delimited, table
from fallow.data.loaders.columns import Column, EncodedColumns, encode_columns
from fallow.data.loaders.dialect import Dialect
from fallow.data.loaders.table import read_table
from fallow.data.loaders.table_files import Table, read_file
from fallow.data.reading import ignore_bytes
from tests.each import each_of


def read(folder: Path, text: str, encoding: str = "utf-8") -> Table:
    path = folder / "t.csv"
    path.write_bytes(text.encode(encoding))
    return read_file(path)


def cells_of(table: Table) -> dict[str, list[str]]:
    return {
        name: [str(c) for c in cells.to_pylist()] for name, cells in table.columns.items()
    }


LIKE_CSV = [
    "a,b\n1,2\n3,4\n",
    "a,b\r\n1,2\r\n3,4\r\n",
    "a,b\r1,2\r3,4\r",
    "a,b\n1,2\n3,4",  # without a last newline
    "a,b\n\n1,2\n\n\n3,4\n\n",  # blank lines
    "\n\na,b\n1,2\n",
    'a,b\n"1",2\n',
    'a,b\n"x, y",2\n',
    'a,b\n"x\ny",2\n3,4\n',
    'a,b\n"x ""y"" z",2\n',
    'a,b\n"",2\n,3\n',
    'a,b\n6" tube,2\n',  # a quote inside a text
    'a,b\nx, "y"\n',  # and behind a space
    "a,b\n5'10\",2\n",
    'a,b\nx"y"z,2\n',
    "a,b\n 1 , 2 \n",
    "a,b\n1,\n,2\n",
    '"a","b"\n1,2\n',
    '"a\nc",b\n1,2\n',  # a newline in the header
    "a,b,c\n1,2,3\n4,5,6\n",
    "a,b\nNA,2\nNaN,3\n",
    "a,b\n1e5,0x1F\n1_0,01\n",
    "a,b\nTrue,false\n",
    "a,b\n'x',2\n",
    'a,b\n"x" ,2\n',
]


@each_of("text", LIKE_CSV)
def test_cells_are_those_of_pythons_csv_module(text: str, tmp_path: Path) -> None:
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    try:
        table = read(tmp_path, text)
    except ValueError as error:
        assert "is not a CSV file" in str(
            error
        )  # strict reading refuses text behind quotes
        assert '" ,' in text or '"z' in text
        return
    wanted = [list(column) for column in zip(*rows[1:], strict=True)]
    assert list(cells_of(table).values()) == wanted
    assert list(table.columns) == [name.strip() for name in rows[0]]


@each_of("text", LIKE_CSV[:10])
@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "cp1252"]
)
def test_the_encoding_changes_no_cell(text: str, encoding: str, tmp_path: Path) -> None:
    expected = cells_of(read(tmp_path, text))
    assert cells_of(read(tmp_path, text, encoding)) == expected


@each_of("separator", [";", "\t", "|", ","])
def test_the_separator_changes_no_cell(separator: str, tmp_path: Path) -> None:
    for text in LIKE_CSV[:9]:
        plain = text.replace("x, y", "xy")
        expected = cells_of(read(tmp_path, plain))
        assert cells_of(read(tmp_path, plain.replace(",", separator))) == expected


@each_of("line", ["sep=;", '"sep=;"', "SEP=;"])
def test_the_line_by_which_excel_declares_the_separator_is_no_header(
    line: str, tmp_path: Path
) -> None:
    table = read(tmp_path, f"{line}\na;b\n1;2\n")
    assert cells_of(table) == {"a": ["1"], "b": ["2"]}


def test_a_blank_line_of_a_file_with_one_column_is_an_empty_cell(tmp_path: Path) -> None:
    assert cells_of(read(tmp_path, "a\n1\n\n3\n\n")) == {"a": ["1", "", "3"]}


@each_of(
    "text, output",
    [
        ("a,b\n1,2\n3\n", "row 2 has 1 cells and the header 2"),
        ("a,b\n1,2,3\n", "row 1 has 3 cells and the header 2"),
        ("a,b\n# comment\n1,2\n", "row 1 has 1 cells"),
        ("a,a\n1,2\n", "more than one column 'a'"),
        ("", "has no rows"),
        ("a,b\n", "has no rows"),
        ('a,b\n"x,2\n', "is not a CSV file"),
    ],
)
def test_damaged_files_are_refused_by_row(text: str, output: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=output):
        read(tmp_path, text)


def test_a_difference_at_the_end_of_a_large_file_is_found(tmp_path: Path) -> None:
    lines = ["a,b", *(f"{row},x{row}" for row in range(20_000))]
    table = read(tmp_path, "\n".join(lines))
    assert table.findings == () and table.n_rows == 20_000
    assert table.texts("b")[-1] == "x19999" and table.texts("a")[12_345] == "12345"
    table = read(tmp_path, "\n".join([*lines, '6" tube,y']))
    assert table.texts("a")[-1] == '6" tube'
    assert "was read row by row" in table.findings[0].sentence


@each_of("row", [10_000, 19_999])
def test_a_quote_that_is_not_closed_in_a_large_file_is_refused(
    row: int, tmp_path: Path
) -> None:
    lines = ["a,b", *(f"{row},x{row}" for row in range(20_000))]
    lines[row + 1] = f'{row},"x'
    with pytest.raises(ValueError, match="is not a CSV file"):
        read(tmp_path, "\n".join(lines))


def test_empty_columns_between_separators_are_named_by_number(tmp_path: Path) -> None:
    assert list(read(tmp_path, "a,,c\n1,2,3\n").columns) == ["a", "column 2", "c"]


def test_a_cell_may_be_longer_than_the_limit_of_pythons_csv_module(tmp_path: Path) -> None:
    table = read(tmp_path, 'a,b\n"' + "x" * 200_000 + '",2\n')
    assert table.texts("b") == ["2"] and len(table.texts("a")[0]) == 200_000


def test_a_quote_inside_a_text_is_found_wherever_a_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "odd.csv"
    odd.write_text('a,b\n6" tube,2\n')
    usual = tmp_path / "usual.csv"
    usual.write_text('a,b\n"6, tube",2\n"x ""y""",3\n')
    for size in range(1, 20):
        monkeypatch.setattr(delimited, "BLOCK", size)
        assert delimited._has_odd_quotes(odd, Dialect())
        assert not delimited._has_odd_quotes(usual, Dialect())


def test_the_texts_of_a_column_are_freed_when_it_is_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "t.csv"
    rows = [f"{i},{i * 0.37:.15f},{i % 2}" for i in range(20_000)]
    file.write_text("\n".join(["n,x,y", *rows]))
    before = pa.total_allocated_bytes()
    sizes = []

    def encode(columns: list[Column], check_bytes: Callable[[int], None]) -> EncodedColumns:
        sizes.append(pa.total_allocated_bytes() - before)
        return encode_columns(columns, check_bytes)

    monkeypatch.setattr(table, "encode_columns", encode)
    read_table([partial(read_file, file, ignore_bytes, DEFAULTS)], LoadOptions(label="y"))
    assert sizes[0] < file.stat().st_size / 10


ROWS = "".join(f"{row * 0.37:.2f},{'ab'[row % 2]},{row % 7}\n" for row in range(30))
NAMED = "".join(f"{row},{line}\n" for row, line in enumerate(ROWS.splitlines()))


@each_of(
    "text, output",
    [
        (f"x,y,z\n{NAMED}", "name the first column, which has '0', .*row.names=FALSE"),
        (
            "x,y,z\n20,0,5,a\n21,1,5,b\n",
            "if 0,5 is one number, .*in quotes; or name the first",
        ),
        ("x,y,z\n20,0,a,\n21,1,b,\n", "remove the separator at the end of the rows"),
        ('"x" "y"\n"1" 20 0.5\n"2" 21 1\n', "t.csv: the cells are separated by spaces"),
        ("x y\n20 a\n21 b\n", "the cells are separated by spaces; .*write.csv in R"),
        (f"Study 2024\nx,y,z\n{ROWS}", "remove the lines above the header, .*'Study 2024'"),
        (f"Study\n\nx,y,z\n{ROWS}", "remove the lines above the header, .*'Study'"),
        (f"Study, 2024\nx,y,z\n{ROWS}", "remove the lines above the header"),
        (f"Study,,\nx,y,z\n{ROWS}", "column 3; remove the lines above the header"),
        (f"# from R\nx,y,z\n{ROWS}", "remove the lines above the header, .*'# from R'"),
        (f"x,y,z\n{ROWS}1,a,2,3\n", "row 31 has 4 cells .* correct this row"),
        (f"x,y,w\n{ROWS}", r"no column 'label'; its columns: x, y, w$"),
    ],
)
def test_title_lines_and_row_names_are_named_with_the_way_out(
    text: str, output: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=output):
        read_table(
            [partial(read_file, file, ignore_bytes, DEFAULTS)], LoadOptions(label="label")
        )


@each_of("text", ["full name\nAnn Lee\nJo Kim\n", "text\nno 1 of it\nno 2\n", "a\n1\n2\n"])
def test_texts_with_spaces_are_one_column(text: str, tmp_path: Path) -> None:
    assert len(read(tmp_path, text).columns) == 1


OTHERS = {  # text, encoding -> bytes in the warning, or none
    "Russian": ("Москва", "cp1251", "CC EE F1 EA E2 E0"),
    "Japanese": ("大阪", "shift_jis", "91 E5 8D E3"),
    "Chinese": ("北京", "gbk", "B1 B1 BE A9"),
    "Polish": ("Łódź", "cp1250", "A3 F3"),
    "Polish inside a word": ("Białystok", "cp1250", "61 B3 79"),
    "Greek": ("Αθήνα", "cp1253", "C1 E8 DE ED E1"),
    "German": ("Größe ÄÖ 5 °C", "cp1252", None),
    "French": ("«\xa0Élève\xa0» – déjà vu…", "cp1252", None),
    "Spanish": ("¿Año? “Sí” 1º", "cp1252", None),
    "signs": ("£5 3 m³ ½ l 10 µg/m² ±1", "cp1252", None),
}


@each_of("word, encoding, shown", OTHERS.values())
def test_an_encoding_that_is_not_western_is_a_warning_with_line_and_bytes(
    word: str, encoding: str, shown: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(f"a,b\nx,1\n{word},2\n".encode(encoding))
    findings = read_file(path).findings
    doubts = [f.sentence for f in findings if f.severity == "warning"]
    if shown is None:
        assert not doubts
    else:
        assert f"t.csv: line 3 has the bytes {shown}, which are no UTF-8" in doubts[0]


def test_a_byte_that_is_not_utf_8_changes_no_other_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\nfür,1\n".encode() + b"f\xfcr,2\n\x81,3\n")
    table = read_file(path)
    assert table.texts("a") == ["für", "für", "\x81"]
    (doubt,) = [f.sentence for f in table.findings if f.severity == "warning"]
    assert "line 3 has the byte FC, which is not UTF-8, and line 2 is in UTF-8" in doubt
