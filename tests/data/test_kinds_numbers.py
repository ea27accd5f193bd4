"""Number syntax: numbers are those that CSV programs read; everything else is text or named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fallow.data.loaders.columns import keep_at_least_one
from fallow.data.loaders.labels import encode_labels
from fallow.data.loaders.marks import Marks
from tests.data.kinds import column_of, sentences, with_decimal_comma
from tests.each import each_of

PLAIN = [
    ("1", 1.0),
    ("+1", 1.0),
    ("-1.5", -1.5),
    (".5", 0.5),
    ("-.5", -0.5),
    ("1.", 1.0),
    ("1e5", 1e5),
    ("2.5E-3", 0.0025),
    ("+1e+2", 100.0),
    (" 7 ", 7.0),
    ("\u00a07", 7.0),
    ("0.0", 0.0),
    ("-0", 0.0),
    ("123456789", 123456789.0),
]


@each_of("cell, number", PLAIN)
def test_a_cell_that_csv_programs_read_as_a_number_is_one(cell: str, number: float) -> None:
    column = column_of([cell, "3.25", "4.5"])
    assert column.read.kind == "number" and column.read.role == "feature"
    assert column.cells.tolist() == [number, 3.25, 4.5]


NO_NUMBERS = [
    ("10_20", "30_40"),  # ranges of ages, numbers to Python
    ("1_000", "2_000"),
    ("0x1F", "0x2A"),  # numbers to pyarrow
    ("0b11", "0o17"),
    ("１２", "３４"),  # full width
    ("١٢", "٣٤"),  # Arabic
    ("½", "¾"),
    ("²", "³"),
    ("- 3", "- 4"),
    ("1 2", "3 4"),
    ("--1", "++2"),
    ("1.2.3", "4.5.6"),
    ("<0.5", ">9"),
    ("≤3", "≥4"),
    ("1/2", "3/4"),
    ("3:1", "4:1:2"),
    ("1e", "2e"),
    ("e5", "E6"),
    ("1d5", "2d6"),
    ("(1)", "(2)"),
    ("1-2", "3-4"),
    ("~5", "~6"),
    ("1,5", "2,5"),  # without a decimal comma in the file
    ("nan(1)", "inf2"),
    ("A1", "B2"),
    ("1+", "2+"),
]


@each_of("cells", NO_NUMBERS)
def test_other_writings_stay_text(cells: tuple[str, str]) -> None:
    column = column_of([*cells, *cells, *cells])
    assert column.read.kind == "category"
    assert column.read.values == tuple(sorted(cells))


@each_of("cell", [pair[0] for pair in NO_NUMBERS])
def test_a_text_among_numbers_is_named_with_its_row(cell: str) -> None:
    with pytest.raises(ValueError, match="column 'c', row 4: ") as caught:
        column_of(["1", "2", "3", cell, "5", "6"])
    assert repr(cell) in str(caught.value)


@each_of(
    "cells, unit, first",
    [
        (("0.123 mg", "0.5 mg"), "mg", 0.123),
        (("5 %", "7 %"), "%", 5.0),
        (("5%", "7.5%"), "%", 5.0),
        (("12 kg", "13kg"), "kg", 12.0),
        (("37.5 °C", "36.6 °C"), "°C", 37.5),
        (("$ 12", "$13.5"), "$", 12.0),
        (("€1000", "€2000"), "€", 1000.0),
        (("100 mmHg", "120 mmHg"), "mmHg", 100.0),
        (("1.5 µg/ml", "2 µg/ml"), "µg/ml", 1.5),
        (("-3 m", "+4 m"), "m", -3.0),
    ],
)
def test_a_unit_that_all_cells_have_is_named_and_omitted(
    cells: tuple[str, ...], unit: str, first: float
) -> None:
    column = column_of(cells)
    assert column.read.kind == "number" and column.read.unit == unit
    assert column.cells[0] == first
    assert repr(unit) in sentences(column)


@each_of(
    "cells",
    [("5 mg", "0.1 g"), ("1 kg", "2000 g"), ("70 kg", "154 lb"), ("5 %", "0.5 mol")],
)
def test_numbers_with_different_units_are_a_warning_with_each_unit(
    cells: tuple[str, ...],
) -> None:
    column = column_of(cells * 3)
    assert column.read.kind == "category"
    (finding,) = column.findings
    assert finding.severity == "warning" and "different units" in finding.sentence


@each_of(
    "cells, thousands, numbers",
    [
        (("1,5", "2,25"), "", [1.5, 2.25]),
        (("1.234,5", "2,5"), ".", [1234.5, 2.5]),
        (("1 234,5", "2,5"), " ", [1234.5, 2.5]),
        (("-1,5", "+2,25"), "", [-1.5, 2.25]),
        (("1,5e3", "2"), "", [1500.0, 2.0]),
        (("1.234.567", "1"), ".", [1234567.0, 1.0]),
    ],
)
def test_decimal_commas_and_thousands_are_those_of_the_file(
    cells: tuple[str, ...], thousands: str, numbers: list[float]
) -> None:
    assert with_decimal_comma(cells, thousands).cells.tolist() == numbers


@each_of(
    "cells, numbers",
    [
        (("True", "False"), [1, 0]),
        (("TRUE", "FALSE"), [1, 0]),
        (("true", "", "false"), [1, np.nan, 0]),
    ],
)
def test_true_and_false_are_one_and_zero_as_in_a_frame(
    cells: tuple[str, ...], numbers: list[float]
) -> None:
    column = column_of(cells)
    np.testing.assert_array_equal(column.cells, numbers)
    assert "true and false" in sentences(column)


@each_of("cell", ["inf", "-inf", "Infinity", "1e39", "-1e400"])
def test_infinite_numbers_are_marked(cell: str) -> None:
    assert column_of(["1.5", cell, "2"]).is_infinite.tolist() == [False, True, False]


@each_of(
    "cells, kind, part",
    [
        (["1E5", "2E3", "7E1"], "category", "codes with an E, such as '1E5'"),
        (["1E50", "1E51", "2E10"], "category", "codes with an E"),
        (["1E5", "20", "7E1"], "number", "may be codes"),
        (["1E+05", "2E+03"], "number", ""),
        (["1e5", "2e3"], "number", ""),
        (["1.5E5", "2.5E3"], "number", ""),
        (["TRUE", "true", "false"], "number", "true and false"),
    ],
)
def test_codes_with_an_e_are_names_and_numbers_with_exponents_are_numbers(
    cells: list[str], kind: str, part: str
) -> None:
    column = column_of(cells)
    assert column.read.kind == kind
    assert part in sentences(column)
    assert bool(part) == bool(sentences(column))


@each_of(
    "cells",
    [
        ("TRUE", "1", "False", "0"),
        ("true", "0"),
        ("1.0", "false", "0"),
        ("True", "", "0"),
    ],
)
def test_truths_written_as_words_and_digits_are_one_and_zero(
    cells: tuple[str, ...],
) -> None:
    column = column_of([*cells, *cells])
    assert column.read.kind == "number" and "true and false" in sentences(column)
    assert {*column.cells[~np.isnan(column.cells)].tolist()} == {0.0, 1.0}


@each_of("cells", [("TRUE", "2", "False"), ("yes", "1", "0"), ("t", "f", "1")])
def test_other_words_beside_digits_stay_names(cells: tuple[str, ...]) -> None:
    assert column_of(cells * 6).read.kind == "category"


SHOWN = {  # cells and their marks -> what became of the first one
    "thousands": (("1.000", "2.500", "12,5"), Marks(decimal=",", thousands="."), "1000"),
    "a decimal comma": (("20,0", "3,5", "1,0"), Marks(decimal=","), "20"),
    "a unit": (("0.5 mg", "1 mg", "2 mg"), Marks(), "0.5"),
    "a truth value": (("true", "false", "true"), Marks(), "1"),
    "an offset": (("1700000000", "1700000600", "1700000100"), Marks(), "-300"),
    "below float32": (("1e-50", "0.5", "2"), Marks(), "0"),
    "more digits than float32": (("16777217", "0.5", "2"), Marks(), "16777216"),
    "an empty cell": (("n/a", "0.5", "2"), Marks(), "missing"),
    "a text": ((" red", "blue", "blue"), Marks(), "c=red"),
}


@each_of("cells, marks, became", SHOWN.values())
def test_examples_show_what_became_of_a_cell(
    cells: Sequence[str], marks: Marks, became: str
) -> None:
    first = column_of(cells, marks=marks).read.examples[0]
    assert (first.cell, first.value) == (cells[0].strip(), became)


def test_a_merged_text_and_a_counter_show_what_they_became() -> None:
    merged = column_of(["Red", "red", "red", "blue"], merge=True)
    assert merged.read.examples[0].value == "c=red"
    counter = column_of([f"{row}.0" for row in range(200)])
    assert counter.read.examples[2].value == "left out"
    (kept,) = keep_at_least_one([counter])
    assert [example.value for example in kept.read.examples] == ["0", "1", "2"]


def test_numbers_that_float32_has_not_are_named() -> None:
    assert "2 numbers are smaller than 1e-38" in sentences(
        column_of(["1e-50", "3e-60", "0.5", "2", "0", "0.0"])
    )
    assert sentences(column_of(["1e-30", "0.5", "2", "0"])) == ""


def test_targets_that_float32_has_not_are_named_or_refused() -> None:
    targets = np.array([1e-50, 0.5, 2.0, 0.0])
    coded = encode_labels(targets, "regression", "toy")
    assert "1 of 4 targets are smaller than 1e-38" in coded.findings[0].sentence
    with pytest.raises(ValueError, match=r"4 of 4 targets .* write their logarithms"):
        encode_labels(np.array([1e-50, 2e-50, 3e-51, 1e-60]), "regression", "toy")
