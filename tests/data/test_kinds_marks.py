"""Decimal marks: 3,215 may be a fraction or thousands; nothing decides silently."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import fallow as fl
from fallow.core.load_options import KnownMarks, LoadOptions
from fallow.data import Dataset
from fallow.data.loaders.columns import Setting, recognize_column
from fallow.data.loaders.marks import Marks
from fallow.data.loaders.open import from_table
from fallow.data.loaders.table_files import read_file
from tests.data.kinds import quietly
from tests.each import each_of


def write(path: Path, separator: str, *columns: Sequence[str], n: int = 24) -> Path:
    """Write columns, repeated to n rows, and a label; cells with the separator are quoted."""
    lines = [separator.join([*(f"c{at}" for at in range(len(columns))), "y"])]
    for row in range(n):
        cells = [column[row % len(column)] for column in columns]
        quoted = [f'"{cell}"' if separator in cell else cell for cell in cells]
        lines.append(separator.join([*quoted, "ab"[row % 2]]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def load(path: Path, **options: Any) -> Dataset:
    return quietly(lambda: fl.load(path, label="y", **options))


def list_rows(dataset: Dataset) -> list[list[float]]:
    """Return all training and test examples."""
    rows = torch.cat([dataset.x, dataset.x_test]).double()
    listed: list[list[float]] = rows.round(decimals=3).tolist()
    return listed


def list_doubts(dataset: Dataset) -> list[str]:
    return [finding.fix for finding in dataset.findings if "may be" in finding.sentence]


AMBIGUOUS = [
    (";", ["3,215", "12,500", "1,001"], 3.215, "decimal='.'"),
    (";", ["3,215", "845", "97"], 3215, "decimal=','"),
    (";", ["3,215", "4512"], 3.215, "decimal='.'"),
    (";", ["-3,215", "+2,100"], -3.215, "decimal='.'"),
    (";", ["2.037", "5.100"], 2.037, "decimal=','"),
    (";", ["2.037", "845"], 2037, "decimal='.'"),
    (";", ["2.037", "4512"], 2.037, "decimal=','"),
    ("\t", ["3,215", "12,500"], 3215, "decimal=','"),
    ("\t", ["3,215", "4512"], 3.215, "decimal='.'"),
    ("\t", ["2.037", "845"], 2.037, "decimal=','"),
    ("|", ["3,215", "12,500"], 3215, "decimal=','"),
    (",", ["3,215", "12,500"], 3215, "decimal=','"),
    (",", ["2.037", "5.100"], 2.037, "decimal=','"),
]


@each_of("separator, cells, first, fix", AMBIGUOUS)
def test_a_number_of_two_readings_is_a_warning_with_the_option(
    separator: str, cells: list[str], first: float, fix: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "t.csv", separator, cells)
    dataset = load(path)
    assert [first] in list_rows(dataset)
    assert list_doubts(dataset) == [fix]
    other = {"decimal='.'": ".", "decimal=','": ","}[fix]
    chosen = load(path, decimal=other)
    assert not list_doubts(chosen)
    factor = 1000 if first < 1000 else 0.001
    assert [round(first * factor, 3)] in list_rows(chosen)


DECIDED = [
    (";", (["3,215", "12,500"], ["1,5", "2,25"]), [3.215, 1.5]),
    (";", (["3,215", "12,500"], ["1.5", "2.25"]), [3215, 1.5]),
    (";", (["2.037", "5.100"], ["1,5", "2,25"]), [2037, 1.5]),
    (";", (["2.037", "5.100"], ["1.5", "2.25"]), [2.037, 1.5]),
    (";", (["0,215", "3,500"],), [0.215]),
    (";", (["0.215", "3.500"],), [0.215]),
    (";", (["3,215", "1,234,567"],), [3215]),
    (";", (["1.234.567", "845"],), [1234567]),
    (";", (["1.234,5", "2.000"],), [1234.5]),
    ("\t", (["3,215.5", "12,500"],), [3215.5]),
    (",", (["3,215", "12,500"], ["1.5", "2.25"]), [3215, 1.5]),
    (",", (["7", "8"], ["1.5", "2.25"]), [7, 1.5]),
    (";", (["1.234 kg", "2.100 kg"], ["1,5", "2,25"]), [1234, 1.5]),
    (";", (["12,5 %", "1.037 %"],), [1037]),
    (";", (["12,5 kg", "1.037,5 kg"],), [1037.5]),
    (",", (["$1,250", "$980"], ["1.5", "2.25"]), [1250, 1.5]),
    (",", (["2.5 mg", "7.25 mg"], ["1", "2"]), [2.5, 1]),
]


@each_of("separator, columns, first", DECIDED)
def test_one_unambiguous_cell_decides_without_a_warning(
    separator: str, columns: tuple[list[str], ...], first: list[float], tmp_path: Path
) -> None:
    dataset = load(write(tmp_path / "t.csv", separator, *columns))
    assert first in [row[: len(first)] for row in list_rows(dataset)]
    assert not list_doubts(dataset)


LATER = [
    (";", ["400", "999"], ["1.000", "1.599"], ["0,5"], 1599),
    (";", ["0,5", "999,5"], ["1.000", "1.000,5"], ["1"], 1000.5),
    (";", ["400", "999"], ["1,000", "1,599"], ["0.5"], 1599),
    (";", ["400 g", "999 g"], ["1.000 g", "1.599 g"], ["0,5"], 1599),
    (",", ["400.5", "999.5"], ["1,000", "1,000.5"], ["1"], 1000.5),
    (",", ["400", "999"], ["1.25", "1.5"], ["7"], 1.5),
]


@each_of("separator, cells, later, others, number", LATER)
def test_a_mark_after_the_first_rows_decides_as_one_in_them(
    separator: str,
    cells: list[str],
    later: list[str],
    others: list[str],
    number: float,
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "t.csv", separator, cells * 300 + later * 12, others, n=624)
    table = read_file(path)
    column = recognize_column(
        table.columns["c0"], Setting("c0", path.name, marks=table.marks.of("c0"))
    )
    assert number in column.cells and column.read.kind == "number"
    assert not table.marks.doubt


def test_thousands_after_the_first_rows_are_doubted_without_another_mark(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "t.csv", ";", ["400", "999"] * 300 + ["1.000"] * 24, n=624)
    marks = read_file(path).marks
    assert marks.doubt == "1.000" and marks.thousands == "."


APART = [
    (["0,5", "1,0"], ["14.30", "9.05"], [0.5, 14.3]),  # times of day
    (["0,5", "1,0"], ["2.0", "2.1"], [0.5, 2.0]),  # versions
    (["0,5", "1.234"], ["14.30", "9.05"], [1234, 9.05]),
    (["0,5", "1,0"], ["2.000", "2.1"], [0.5, 2.0]),
]


@each_of("commas, points, first", APART)
def test_columns_with_commas_and_columns_with_points_are_both_numbers_and_a_warning(
    commas: list[str], points: list[str], first: list[float], tmp_path: Path
) -> None:
    dataset = load(write(tmp_path / "t.csv", ";", commas, points))
    assert first in list_rows(dataset)
    assert "numbers such as 0,5 and" in " ".join(dataset.notes)


@each_of("answers", [["1,3", "1,2,3"], ["1,3", "none of them"], ["1,3", "1.3"]])
def test_lists_with_commas_do_not_decide_beside_decimal_points(
    answers: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "t.csv", ";", answers, ["1.5", "2.25"])
    assert read_file(path).marks.decimal == "."


@each_of("codes", [["2.0", "2.1"], ["14.30", "9.05"]])
def test_versions_and_times_of_day_leave_the_doubt_of_another_column(
    codes: list[str], tmp_path: Path
) -> None:
    for cells, first in ((["1.234", "5.678"], 1.234), (["1,234", "5,678"], 1234)):
        data = load(write(tmp_path / "t.csv", ";", codes, cells))
        assert list_doubts(data) == ["decimal=','"]
        assert first in [row[1] for row in list_rows(data)]


@each_of("cells", [["12,5 kg", "1.037 kg"], ["1.037,5 kg", "12 kg"]])
def test_targets_with_units_have_the_marks_of_the_file(
    cells: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{at};{cells[at % 3 > 0]}" for at in range(24)]
    path.write_text("\n".join(["x;y", *rows]), encoding="utf-8")
    numbers = {"12,5 kg": 12.5, "1.037 kg": 1037, "1.037,5 kg": 1037.5, "12 kg": 12}
    dataset = quietly(lambda: fl.load(path, label="y", task="regression"))
    assert {*dataset.y.tolist()} == {numbers[cell] for cell in cells}


@each_of("cells", [["10.123.123.100", "1.2.3.4"], ["1.234.567", "2.0.1"]])
def test_addresses_and_versions_do_not_decide(cells: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ",", cells, ["1.5", "2.5"])
    assert read_file(path).marks.decimal == "."


def test_the_warning_is_a_python_warning_that_names_both_readings(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ";", ["3,215", "12,500"])
    sentence = "numbers such as 3,215 were read as 3.215, and may be 3215.*set decimal='.'"
    with pytest.warns(UserWarning, match=sentence):
        fl.load(path, label="y")


@each_of(
    "decimal, cells, values",
    [
        (",", ["1.234,5", "3,25"], [1234.5, 3.25]),
        (".", ["1,234.5", "3.25"], [1234.5, 3.25]),
        (",", ["3,215", "2"], [3.215, 2]),
        (".", ["3,215", "2"], [3215, 2]),
    ],
)
def test_texts_of_a_frame_have_the_decimal_mark_of_the_option(
    decimal: Any, cells: list[str], values: list[float]
) -> None:
    frame = pd.DataFrame({"c": cells * 12, "y": ["a", "b", "b"] * 8})
    dataset = quietly(lambda: fl.load(frame, label="y", decimal=decimal))
    assert {*values} == {number for (number,) in list_rows(dataset)}


@each_of("cell, target", [("3,25", 3.25), ("1.234,5", 1234.5), (" 7,5", 7.5)])
def test_targets_have_the_marks_of_the_file(
    cell: str, target: float, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{at};{cell if at % 3 else '1,5'}" for at in (7, 3, 5, 2, 9, 8) * 4]
    path.write_text("\n".join(["x;y", *rows]), encoding="utf-8")
    dataset = load(path)
    assert dataset.task == "regression"
    assert {target, 1.5} == {*dataset.y.tolist()}


@each_of("name", ["1,5 to 2", "3,25a"])
def test_classes_with_commas_keep_their_names(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{at},5;{name if at % 2 else 'low'}" for at in range(24)]
    path.write_text("\n".join(["x;y", *rows]), encoding="utf-8")
    assert name in load(path).classes


TESTS = [
    (["1,5", "2,25"], ["3,215", "4,100"], 3.215),  # ambiguous: as in training
    (["1.5", "2.25"], ["3,215", "4,100"], 3215),
    (["7", "8"], ["3,25", "4,5"], 3.25),  # training has no mark
    (["1,5", "2,25"], ["7", "8"], 7),
]


@each_of("cells, of_tests, first", TESTS)
def test_test_files_are_read_as_the_training_file(
    cells: list[str], of_tests: list[str], first: float, tmp_path: Path
) -> None:
    train = write(tmp_path / "t.csv", ";", cells)
    test = write(tmp_path / "e.csv", ";", of_tests)
    dataset = quietly(lambda: from_table(train, LoadOptions(label="y"), test=test))
    assert [first] in list_rows(dataset)
    assert not list_doubts(dataset)


@each_of(
    "cells, of_tests",
    [(["1,5", "2,25"], ["1.5", "2.75"]), (["1.5", "2.25"], ["3,25", "4,5"])],
)
def test_a_test_file_with_another_decimal_mark_is_refused(
    cells: list[str], of_tests: list[str], tmp_path: Path
) -> None:
    train = write(tmp_path / "t.csv", ";", cells)
    test = write(tmp_path / "e.csv", ";", of_tests)
    with pytest.raises(ValueError, match=r"e.csv: the decimal mark is .* that of t.csv"):
        from_table(train, LoadOptions(label="y"), test=test)


def test_the_marks_of_a_file_are_known_only_if_a_number_has_one(tmp_path: Path) -> None:
    assert (
        read_file(write(tmp_path / "a.csv", ";", ["1", "2"])).marks.known.decimal == "auto"
    )
    assert read_file(write(tmp_path / "b.csv", ";", ["1,5"])).marks.known.decimal == ","
    assert read_file(write(tmp_path / "c.csv", ";", ["1.5"])).marks.known.decimal == "."
    assert Marks().known.decimal == "auto"


BY_COLUMN = [
    (["2", "3"], ["3.215", "4.100"], [2, 3.215]),
    (["1,234", "2,500"], ["3.25", "4.5"], [1.234, 3.25]),
    (["1,234", "2,500"], ["3.215", "4.100"], [1.234, 3.215]),
    (["1.234", "2.500"], ["3.215", "4.100"], [1234, 3.215]),
]


@each_of("commas, points, first", BY_COLUMN)
def test_each_column_has_the_decimal_mark_that_it_had_in_training(
    commas: list[str], points: list[str], first: list[float], tmp_path: Path
) -> None:
    train = read_file(write(tmp_path / "t.csv", ";", ["0,5", "1,5"], ["3.25", "2.5"]))
    assert train.marks.known == KnownMarks(",", points=("c1",))
    table = read_file(
        write(tmp_path / "n.csv", ";", commas, points), expected=train.marks.known
    )
    columns = [table.numbers(name) for name in ("c0", "c1")]
    assert [column[0] for column in columns if column is not None] == first
    assert not table.marks.warn_of_doubt("n.csv")


GAPPED = {
    "francs before": ("CHF 1'234.50", "CHF 12'345.75", 1234.5, "CHF"),
    "francs behind": ("1’234.50 CHF", "12’345.75 CHF", 1234.5, "CHF"),
    "euro": ("1 234,50 €", "12 345,75 €", 1234.5, "€"),
    "narrow gaps": ("1\u202f234,5 mg", "12\u202f345,7 mg", 1234.5, "mg"),
    "no unit": ("1 234,50", "12 345,75", 1234.5, ""),
    "dollar": ("$1,234.50", "$12,345.75", 1234.5, "$"),
}


@each_of("first, second, number, unit", GAPPED.values())
def test_numbers_have_thousands_and_a_unit(
    first: str, second: str, number: float, unit: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{ord(first[0])}{ord(unit[:1] or '0')}{len(first)}.csv"
    rows = [
        f"{cell};{row};{'no' if row % 3 else 'yes'}"
        for row, cell in enumerate([first, second] * 12)
    ]
    file.write_text("\n".join(["v;w;y", *rows]), encoding="utf-8")
    column = recognize_column(
        read_file(file).columns["v"], Setting("v", "t", marks=read_file(file).marks)
    )
    assert (column.read.kind, column.read.unit) == ("number", unit)
    assert column.cells[0] == number
