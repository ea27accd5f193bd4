"""Spreadsheets: titles, sheets, merged and hidden cells, formulas, numbers stored as text."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fallow as fl
from fallow.core.load_options import LoadOptions
from fallow.data.loaders.open import from_table
from fallow.data.loaders.table_files import Table, read_file
from fallow.data.loaders.workbook import find_unit_of_format
from fallow.deployment.schema import schema_of
from fallow.deployment.site.rows import read_rows
from tests.each import each_of

openpyxl = pytest.importorskip("openpyxl")

HEADER: list[object] = ["dose", "ward", "y"]
ROWS: list[list[object]] = [
    [row / 4, "AB"[row % 2], ("no", "yes")[row // 2 % 2]] for row in range(12)
]


def write(
    folder: Path, rows: Sequence[Sequence[object]], title: str = "Sheet"
) -> tuple[Path, Any]:
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(list(row))
    path = folder / "t.xlsx"
    book.save(path)
    return path, book


def read(folder: Path, rows: Sequence[Sequence[object]], **options: Any) -> Table:
    return read_file(write(folder, rows)[0], options=LoadOptions(**options))


def sentences(table: Table) -> str:
    return " | ".join(finding.sentence for finding in table.findings)


def test_a_sheet_is_the_same_data_as_a_csv_file(tmp_path: Path) -> None:
    path, _ = write(tmp_path, [HEADER, *ROWS])
    lines = [",".join(map(str, row)) for row in [HEADER, *ROWS]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    sheet = fl.load(path, label="y")
    table = fl.load(tmp_path / "t.csv", label="y")
    assert sheet.columns == table.columns == ("dose", "ward=A", "ward=B")
    assert sheet.x.tolist() == table.x.tolist() and sheet.classes == table.classes


@each_of(
    "cells, numbers",
    [
        (["1.5", "2", "3"], [1.5, 2.0, 3.0]),
        ([1.5, "2", 3], [1.5, 2.0, 3.0]),
        (["1.5", None, 3], [1.5, np.nan, 3.0]),
        ([" 1.5 ", "NA", "3"], [1.5, np.nan, 3.0]),
        ([1, 2, 3], [1.0, 2.0, 3.0]),
        ([True, False, True], [1.0, 0.0, 1.0]),
    ],
)
def test_numbers_stored_as_text_are_numbers(
    cells: list[object], numbers: list[float], tmp_path: Path
) -> None:
    table = read(tmp_path, [["c", "y"], *([cell, "a"] for cell in cells)])
    np.testing.assert_array_equal(table.numbers("c"), numbers)


@each_of(
    "cells, numbers, part",
    [
        (["1,5", "2,0", "2,5"], [1.5, 2.0, 2.5], "decimal comma were read as numbers in c"),
        (["1,5", 1.234, "NA"], [1.5, 1.234, np.nan], "decimal comma were read"),
        (["1.234,5", "2,0", 3], [1234.5, 2.0, 3.0], "decimal comma were read"),
        (["1.234", "845", 3], [1234.0, 845.0, 3.0], "1.234 were read as 1234, and may be"),
        (["1.234", "2.345", "3.5"], [1.234, 2.345, 3.5], "stored as text"),
        (["1.234", "2.345", "4.567"], [1.234, 2.345, 4.567], "and may be 1234"),
        (["1,234", "2,345", "1,234.5"], [1234.0, 2345.0, 1234.5], ""),
    ],
)
def test_texts_with_a_decimal_comma_are_numbers_as_in_a_csv_file(
    cells: list[object], numbers: list[float], part: str, tmp_path: Path
) -> None:
    table = read(tmp_path, [["c", "y"], *([cell, "a"] for cell in cells)])
    np.testing.assert_array_equal(table.numbers("c"), numbers)
    assert part in sentences(table)


@each_of("cells", [["1,5", "a", 1.25], ["1,5,2", "1,5", "2"], ["007", "008", "009"]])
def test_other_texts_of_a_sheet_keep_their_commas(
    cells: list[object], tmp_path: Path
) -> None:
    table = read(tmp_path, [["c", "y"], *([cell, "a"] for cell in cells)])
    assert table.texts("c") == [str(cell) for cell in cells]


def test_targets_with_a_decimal_comma_in_a_sheet_are_numbers(tmp_path: Path) -> None:
    rows = [[row, f"{row % 5},5"] for row in range(20)]
    path, _ = write(tmp_path, [["x", "y"], *rows])
    with pytest.warns(UserWarning, match="decimal comma"):
        data = fl.load(path, label="y")
    assert data.task == "regression" and {*data.y.tolist()} <= {0.5, 1.5, 2.5, 3.5, 4.5}


def test_numbers_stored_as_text_are_a_note(tmp_path: Path) -> None:
    table = read(tmp_path, [["c", "y"], ["1", "a"], ["2", "b"]])
    assert "numbers stored as text were read as numbers in c" in sentences(table)


@each_of("error", ["#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"])
def test_errors_are_empty_cells(error: str, tmp_path: Path) -> None:
    table = read(tmp_path, [["c", "y"], [1, "a"], [error, "b"], [3, "a"]])
    np.testing.assert_array_equal(table.numbers("c"), [1, np.nan, 3])


@each_of("titles", [["Study 2024"], [None, "Study 2024"], ["Study 2024", None, None]])
def test_a_title_above_the_header_is_refused_with_the_row_of_the_header(
    titles: list[object], tmp_path: Path
) -> None:
    rows: list[list[object]] = [titles, [], HEADER, *ROWS]
    with pytest.raises(
        ValueError, match=r"'Study 2024', which looks like a title.*header_row=3"
    ):
        read(tmp_path, rows)
    table = read(tmp_path, rows, header_row=3)
    assert list(table.columns) == HEADER and table.n_rows == len(ROWS)


@each_of("row", [0, 2, 99, -1])
def test_a_header_row_without_cells_is_refused(row: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no cells in row"):
        read(tmp_path, [HEADER, [], *ROWS], header_row=row)


def test_years_in_a_header_are_whole(tmp_path: Path) -> None:
    table = read(tmp_path, [[2019, 2020.5, True, "y"], [1, 2, 3, "a"]])
    assert list(table.columns) == ["2019", "2020.5", "True", "y"]


def test_another_sheet_is_read_by_its_name(tmp_path: Path) -> None:
    path, book = write(tmp_path, [HEADER, *ROWS], "first")
    other = book.create_sheet("other")
    for row in (["age", "y"], [1, "a"], [2, "b"]):
        other.append(row)
    book.save(path)
    first = read_file(path)
    assert list(first.columns) == HEADER and "only the first of 2 sheets" in sentences(
        first
    )
    assert first.findings[0].fix == "sheet='other'"
    second = read_file(path, options=LoadOptions(sheet="other"))
    assert list(second.columns) == ["age", "y"] and second.findings == ()
    with pytest.raises(ValueError, match="no sheet 'othe'; did you mean 'other'"):
        read_file(path, options=LoadOptions(sheet="othe"))


def test_merged_hidden_and_bare_cells_are_said(tmp_path: Path) -> None:
    path, book = write(tmp_path, [HEADER, *ROWS])
    sheet = book.active
    sheet.merge_cells("B2:B3")
    sheet.row_dimensions[5].hidden = True
    sheet["A4"] = "=1+1"
    sheet["A5"] = "=1+2"
    book.save(path)
    output = sentences(read_file(path))
    assert "1 range of merged cells" in output
    assert "1 hidden row" in output
    assert "2 formulas without a stored value" in output


@each_of(
    "value",
    [datetime.date(2024, 3, 1), datetime.datetime(2024, 3, 1, 12), datetime.time(12)],
)
def test_dates_are_left_out_as_dates(value: object, tmp_path: Path) -> None:
    path, _ = write(tmp_path, [["day", *HEADER], *([value, *row] for row in ROWS)])
    data = fl.load(path, label="y")
    assert data.columns == ("dose", "ward=A", "ward=B")
    assert any("'day' was left out: it contains dates" in note for note in data.notes)


@each_of("options", [{"sheet": "a"}, {"header_row": 1}])
def test_options_of_a_spreadsheet_are_refused_for_other_files(
    options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,no\n2,yes\n")
    with pytest.raises(ValueError, match=r"t\.csv is a text, .*does not apply to it; omit"):
        fl.load(tmp_path / "t.csv", label="y", **options)


@each_of("content", [b"", b"PK\x03\x04", b"no zip", b"\xd0\xcf\x11\xe0" * 200])
def test_a_damaged_file_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.xlsx could not be read as Excel"):
        read_file(tmp_path / "t.xlsx")


def test_a_hidden_or_empty_first_sheet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    book = openpyxl.Workbook()
    book.active.title = "codes"
    book.create_sheet("data").append(["a", "b"])
    book["data"].append([1, 2])
    book.save(path)
    with pytest.raises(
        ValueError, match=r"first of 2 sheets, 'codes', is empty; .*sheet='data'"
    ):
        read_file(path)
    book["codes"].append(["a", "b"])
    book["codes"].append([3, 4])
    book["codes"].sheet_state = "hidden"
    book.active = book["data"]
    book.save(path)
    hidden = [f.fix for f in read_file(path).findings if "is hidden" in f.sentence]
    assert hidden == ["sheet='data'"]


def test_colors_and_lines_through_cells_are_said(tmp_path: Path) -> None:
    path, book = write(tmp_path, [HEADER, *ROWS])
    assert sentences(read_file(path)) == ""
    red = openpyxl.styles.PatternFill("solid", fgColor="FFFF0000")
    for cell in ("A1", "A3", "A5", "B5"):  # one is of the header
        book.active[cell].fill = red
    book.active["C4"].font = openpyxl.styles.Font(strike=True)
    book.active["C5"].font = openpyxl.styles.Font(bold=True)
    book.save(path)
    output = sentences(read_file(path))
    assert "t.xlsx: 3 cells with a fill color, which is not read" in output
    assert "t.xlsx: 1 cell struck through" in output


FORMATS = {  # number format of Excel -> unit that the cell shows
    '0.0" mg/dL"': "mg/dL",
    '0.00\\ "mmol/L"': "mmol/L",
    "0.0\\ \\k\\g": "kg",
    '0.0" cm";-0.0" cm"': "cm",
    '[Red]0" mg"': "mg",
    "#,##0.00\\ [$€-407]": "€",
    '"$"#,##0.00': "$",
    "_-* #,##0.00\\ [$CHF-807]_-": "CHF",
    'General" bpm"': "bpm",
    "0%": "%",
    "0.0": "",
    "General": "",
    "0000": "",
    "yyyy-mm-dd": "",
    "#,##0": "",
    '0.0,"k"': "",  # thousands
    '[<1000]0" mg";0.0," g"': "",
    '"ID-"0': "",
    '0" days ago"': "",
    '0.0" kg";-0.0" lb"': "",
    "@": "",
}


@each_of("code, unit", FORMATS.items())
def test_the_unit_of_a_number_format_is_that_which_cells_show(code: str, unit: str) -> None:
    assert find_unit_of_format(code) == unit


def test_units_of_number_formats_are_those_of_columns(tmp_path: Path) -> None:
    names: list[object] = [f"c{at}" for at in range(len(FORMATS))]
    path, book = write(tmp_path, [names, [1.5] * len(names), [2.5] * len(names)])
    for at, code in enumerate(FORMATS, start=1):
        book.active.cell(2, at).number_format = code
        book.active.cell(3, at).number_format = code
    book.save(path)
    pairs = zip(names, FORMATS.values(), strict=True)
    assert read_file(path).units == {name: (unit,) for name, unit in pairs if unit}


def write_units(folder: Path, *units: str, name: str = "t.xlsx") -> Path:
    """Write the doses with number formats, which take turns."""
    _, book = write(folder, [HEADER, *ROWS])
    for row in range(2, 14):
        book.active.cell(row, 1).number_format = f'0.0" {units[row % len(units)]}"'
    book.save(folder / name)
    return folder / name


def test_a_unit_in_the_number_format_is_on_the_data_sheet(tmp_path: Path) -> None:
    data = fl.load(write_units(tmp_path, "mg"), label="y")
    assert data.reading is not None
    dose = next(read for read in data.reading.columns if read.name == "dose")
    assert dose.unit == "mg" and "number format" in dose.reason
    assert data.x[:, 0].tolist() == [row[0] for row in ROWS if row[0] in data.x[:, 0]]


def test_two_units_in_the_number_formats_of_a_column_are_a_warning(tmp_path: Path) -> None:
    path = write_units(tmp_path, "mg/dL", "mmol/L")
    with pytest.warns(
        UserWarning, match=r"different units .*: mg/dL \(6\) and mmol/L \(6\)"
    ):
        fl.load(path, label="y")


@each_of(
    "agreed, shown, outcome",
    [
        ("mg", "mg", 2.75),
        ("", "mg", 2.75),
        ("%", "%", 275.0),  # which the cell shows
        ("", "%", 2.75),
        ("g", "mg", "the unit 'mg' in the number format"),
        ("mg", "%", "the unit '%' in the number format"),
    ],
)
def test_a_unit_in_the_number_format_is_compared_with_the_agreed_one(
    agreed: str, shown: str, outcome: float | str, tmp_path: Path
) -> None:
    path, book = write(tmp_path, [HEADER, *ROWS])
    for row in range(2, 14):
        book.active.cell(row, 1).number_format = f'0.0" {shown}"' if shown != "%" else "0%"
    book.save(path)
    schema = schema_of(path, "y")
    columns = (replace(schema.columns[0], unit=agreed), *schema.columns[1:])
    if isinstance(outcome, str):
        with pytest.raises(ValueError, match=outcome):
            read_rows(path, replace(schema, columns=columns))
    else:
        rows = read_rows(path, replace(schema, columns=columns))
        assert float(rows.x[:, 0].max()) == pytest.approx(outcome)


def test_a_test_sheet_in_another_unit_is_refused(tmp_path: Path) -> None:
    test = write_units(tmp_path, "g", name="test.xlsx")
    train = write_units(tmp_path, "mg")
    with pytest.raises(ValueError, match=r"test\.xlsx: the number format of column 'dose'"):
        from_table(train, LoadOptions(label="y"), test=test)
