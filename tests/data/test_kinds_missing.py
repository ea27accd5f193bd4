"""Missing values: empty cells, masks, words, codes such as 999, and labels of -1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fallow as fl
from fallow.data.loaders.labels import encode_labels
from tests.data.kinds import column_of, quietly, sentences
from tests.each import each_of

WORDS = [
    "",
    " ",
    "NA",
    "na",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "NAN",
    "-nan",
    "NULL",
    "null",
    "None",
    "none",
    "?",
    "<NA>",
    "NaT",
    "#N/A",
    "#DIV/0!",
    "#VALUE!",
    "#REF!",
    "#NAME?",
    "#NUM!",
    "#NULL!",
    "1.#QNAN",
    "-1.#IND",
    "\\N",
    "(null)",
    "[NULL]",
    "<null>",
    "#NV",
    "#WERT!",
    "#BEZUG!",
    "#ZAHL!",
    "#N/D",
    "#VALEUR!",
    "#NOMBRE!",
    "#VALOR!",
]


@each_of("word", WORDS)
def test_words_for_missing_values_are_empty_cells_of_numbers(word: str) -> None:
    column = column_of(["1.5", word, "2.5", "3.5"])
    np.testing.assert_array_equal(column.cells, [1.5, np.nan, 2.5, 3.5])
    assert column.read.missing == 1 and column.is_missing.tolist() == [0, 1, 0, 0]


@each_of("word", WORDS)
def test_words_for_missing_values_are_empty_cells_of_categories(word: str) -> None:
    column = column_of(["mild", word, "grave", "mild"])
    assert column.read.values == ("grave", "mild") and column.read.missing == 1
    assert column.cells.tolist() == [1, -1, 0, 1]


@each_of("word", ["NA", "n/a", "n.a."])
@each_of("container", ["objects", "category", "polars"])
def test_words_in_frames_are_read_as_in_files(
    word: str, container: str, tmp_path: Path
) -> None:
    cells = {
        "age": [str(20 + row * 1.5) for row in range(24)],
        "sex": ["m", "f"] * 12,
        "y": ["no", "yes", "yes"] * 8,
    }
    places = [(2, "sex"), (4, "y"), (5, "y")]
    for row, column in places if word == "n.a." else [*places, (3, "age")]:
        cells[column][row] = word
    frame = pd.DataFrame(cells, dtype=object)
    frame.to_csv(tmp_path / "frame.csv", index=False)
    if container == "category":
        frame = frame.astype({"sex": container, "y": container})
    read = pl.DataFrame(cells) if container == "polars" else frame
    data = quietly(lambda: fl.load(read, label="y"))
    expected = quietly(lambda: fl.load(tmp_path / "frame.csv", label="y"))
    assert data.reading is not None and expected.reading is not None
    assert data.reading.columns == expected.reading.columns
    assert data.classes == expected.classes and data.notes == expected.notes
    np.testing.assert_array_equal(data.x, expected.x)


@each_of("word", ["none", "None", "NONE", "null"])
def test_a_word_that_may_be_a_value_is_a_warning(word: str) -> None:
    assert f"{word!r} in 2 cells counts as empty" in sentences(
        column_of(["light", word, "heavy", word])
    )


@each_of(
    "levels, word, is_told",
    [
        (["K", "Cl"], "Na", True),  # sodium
        (["CH", "DE", "ZA"], "NA", True),  # Namibia
        (["mild", "grave"], "NA", False),
        (["m", "f"], "NA", False),
    ],
)
def test_names_of_elements_and_countries_count_as_empty_with_a_warning(
    levels: list[str], word: str, is_told: bool
) -> None:
    output = sentences(column_of([*levels, word] * 9))
    assert (f"{word!r} in 9 cells counts as empty" in output) is is_told


@each_of("word", ["unknown", "-", ".", "missing", "x", "n.a."])
def test_other_words_among_numbers_are_refused_by_row(word: str) -> None:
    with pytest.raises(ValueError, match=r"row 3: .* is not a number"):
        column_of(["1", "2", word, "4", "5"])


@each_of("word", [".", "-", "--", "n.a.", "N.A.", "k.A.", "k. A.", "n/d"])
def test_a_text_that_may_mean_a_missing_value_is_named_as_a_level_and_as_a_class(
    word: str,
) -> None:
    for cells in (["m", "f"], ["3", "4", "5"], ["m"]):
        column = column_of([*cells, *cells, word] * 4)
        assert word in column.read.values
        assert f"{word!r} (4) may mean a missing value" in sentences(column)
    for labels in (["m", "f"], ["3", "4"]):
        assert f"{word!r} (2 rows) are classes" in encode([*labels, word] * 2)[1]


@each_of(
    "cells, part",
    [
        (["0", "1", "2", "x"], "such as 'x' in 5 cells, so that its 4 values are levels"),
        (["0", "1", "2", "missing"], "such as 'missing' in 5 cells"),
        (["0", "(1)", "(2)"], "such as '(1)' in 5 cells"),
        (["0", "1-", "2-"], "such as '1-'"),
        (["0", "5%", "7%"], "such as '5%'"),
        (["0", "<0.5", ">9"], "such as '<0.5'"),
        (["1,5", "2,5"], "'1,5'"),  # without a decimal comma in the file
        (["a", "b", "1"], ""),
        (["A1", "B2"], ""),
        (["0-4", "5-9"], ""),
        (["x", "y"], ""),
    ],
)
def test_texts_among_few_numbers_are_a_warning(cells: list[str], part: str) -> None:
    column = column_of(cells * 5)
    assert column.read.kind == "category"
    assert part in sentences(column) and bool(part) == bool(column.findings)


@each_of(
    "sentinel", [999.0, -999.0, 9999.0, -9999.0, 99999.0, -99.0, 888.0, 777.0, 1e20, -200.0]
)
def test_codes_for_missing_numbers_far_outside_are_a_warning(sentinel: float) -> None:
    ages = [f"{age}" for age in range(20, 60)]
    column = column_of([*ages, *[f"{sentinel:g}"] * 3])
    assert f"{sentinel:g} in 3 cells is far outside" in sentences(column)
    assert column.read.kind == "number"


AGES = [str(20 + at * 7 % 70) for at in range(120)]
SCORES = [str(at * 7 % 11) for at in range(120)]
HEATS = [f"{5 + at * 7 % 70 * 0.3:.1f}" for at in range(120)]
CODES = [
    (SCORES, ["-9", "-9", "-8", "-8", "-8"], "-9 in 2 cells and -8 in 3 cells are far"),
    (SCORES, ["-9", "-9"], "-9 in 2 cells is far"),
    (AGES, ["999", "999", "888", "888", "777"], "999 in 2 cells, 888 in 2 cells"),
    (AGES, ["999", "-99", "-99"], "999 in 1 cell and -99 in 2 cells"),
    (AGES, ["999"], "999 in 1 cell is far"),
    (AGES, ["2147483647"] * 2, "2147483647 in 2 cells"),
    (HEATS, ["999.9"] * 2, "999.9 in 2 cells"),
    (HEATS, ["-999.25"] * 2, "-999.25 in 2 cells"),
    (HEATS, ["9.96921e+36"] * 2, "9.96921e+36 in 2 cells"),
    (HEATS, ["9.969209968386869e+36"] * 2, "9.969209968e+36 in 2 cells"),
    (SCORES, ["-9"], ""),  # once
    (HEATS, ["-8", "-3.5", "-8"], ""),  # a frost
    (AGES, ["99", "98", "97", "99"], ""),
    (["1", "2", "3"] * 9, ["-1", "-1"], ""),
]


@each_of("cells, codes, part", CODES)
def test_every_code_is_named_in_columns_and_targets(
    cells: list[str], codes: list[str], part: str
) -> None:
    output = sentences(column_of([*cells, *codes]))
    targets = encode_labels(np.array([*cells, *codes]), "regression", "t")
    of_targets = " | ".join(finding.sentence for finding in targets.findings)
    assert part in output and part in of_targets
    assert bool(part) == ("far outside" in output) == ("far outside" in of_targets)


@each_of(
    "others, is_told",
    [
        (range(60, 120), True),  # blood pressures
        ([20.5 + 0.3 * step for step in range(90)], True),  # body mass indexes
        (range(1, 30), False),  # counts
        (range(10, 300, 10), False),
        ([0.1 * step for step in range(1, 50)], False),
        (range(5, 100), False),
        (range(-40, 40), False),
        ([60, 70, 80], False),  # too few
    ],
)
def test_zeros_far_below_other_numbers_may_be_missing(
    others: Sequence[float], is_told: bool
) -> None:
    column = column_of([*(f"{number:g}" for number in others), "0", "0"])
    output = [finding for finding in column.findings if "0 in 2 cells" in finding.sentence]
    assert bool(output) == is_told
    assert all(finding.is_doubtful for finding in output)


@each_of(
    "cells",
    [
        [str(number) for number in range(990, 1001)],  # 999 is one of many
        ["1", "2", "999"],  # once
        ["0.5", "0.25", "-1", "-0.75"],
        ["99", "98", "99", "97", "90"],
        ["-1", "0", "1", "-1"],
    ],
)
def test_the_same_numbers_among_their_like_are_none(cells: list[str]) -> None:
    assert "far outside" not in sentences(column_of(cells))


def encode(labels: list[object]) -> tuple[list[int], str]:
    result = encode_labels(np.array(labels), "auto", "t")
    return result.y.tolist(), " | ".join(finding.sentence for finding in result.findings)


@each_of(
    "labels, y",
    [
        ([-1, 0, 1, 1], [-1, 0, 1, 1]),
        (["-1", "0", "1", "1"], [-1, 0, 1, 1]),
        (["-1.0", "0.0", "1.0", "1.0"], [-1, 0, 1, 1]),
        ([-1.0, 0.0, 1.0, 1.0], [-1, 0, 1, 1]),
        ([-1, 3, 7, 9], [-1, 0, 1, 2]),
    ],
)
def test_minus_one_beside_other_labels_is_unlabeled_with_the_number_of_rows(
    labels: list[object], y: list[int]
) -> None:
    coded, output = encode(labels)
    assert coded == y and "1 label -1 beside other numbers count as unlabeled" in output


BESIDE_TEXTS: list[tuple[list[object], tuple[str, ...], list[int]]] = [
    (["ill", "well", "-1", "ill"], (), [0, 1, -1, 0]),
    (["ill", "well", "-1", ""], ("well", "ill"), [1, 0, -1, -1]),
    (["ill", "well", "-1"], ("ill", "well", "-1"), [0, 1, 2]),
    (["ill", "0", "-1"], (), [2, 1, 0]),
    (["usual", "-1", "-1"], (), [1, 0, 0]),
]


@each_of("labels, classes, y", BESIDE_TEXTS)
def test_minus_one_beside_two_texts_is_unlabeled_with_a_warning(
    labels: list[object], classes: tuple[str, ...], y: list[int]
) -> None:
    result = encode_labels(np.array(labels), "auto", "t", classes)
    assert result.y.tolist() == y
    warned = [f for f in result.findings if "-1 beside other labels count" in f.sentence]
    assert bool(warned) is (-1 in y)
    assert all(finding.severity == "warning" for finding in warned)


@each_of("word", ["NA", "nan", "NULL", "?", "None", "#N/A"])
def test_a_word_for_a_missing_label_among_numbers_is_said(word: str) -> None:
    coded, output = encode(["4", "7", word, "4"])
    assert coded == [0, 1, -1, 0] and f"1 of 4 labels are {word}" in output


@each_of("word", ["NA", "none", "null", "?"])
def test_such_a_word_among_texts_is_a_class_and_a_warning(word: str) -> None:
    coded, output = encode(["mild", "grave", word, "mild"])
    assert (
        min(coded) == 0 and f"{word!r} (1 row)" in output and "may mean a missing" in output
    )


@each_of(
    "labels", [["a", None, "b"], ["a", np.nan, "b"], ["a", pd.NA, "b"], ["a", "", "b"]]
)
def test_missing_labels_of_every_kind_are_unlabeled(labels: list[object]) -> None:
    data = quietly(lambda: fl.from_arrays(np.arange(30.0)[:, None], labels * 10))
    assert data.classes == ("a", "b") and int((~data.is_labeled).sum()) == 10


def test_masked_values_are_missing() -> None:
    x = np.ma.masked_array(np.arange(60.0).reshape(30, 2), mask=False)
    x[3, 1] = np.ma.masked
    y = np.arange(30) % 2
    with pytest.raises(ValueError, match="column 1 of the rows has 1 values that are not"):
        fl.from_arrays(x, y)
    kept = fl.from_arrays(x, y, drop_rows=True)
    assert len(kept.x) + len(kept.x_test) == 29
    masked = np.ma.masked_array(y, mask=np.arange(30) < 5)
    data = quietly(lambda: fl.from_arrays(x.data, masked))
    assert int((~data.is_labeled).sum()) == 5
    sites = np.ma.masked_array(y, mask=np.arange(30) < 5)
    with pytest.raises(ValueError, match="sites: 5 examples have none"):
        fl.from_arrays(x.data, y, sites=sites)
