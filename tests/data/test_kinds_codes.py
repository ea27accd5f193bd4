"""Codes and names: they stay as written, and names that look alike are a warning."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

import fallow as fl
from fallow.data.loaders.labels import encode_labels, encode_test_labels
from fallow.data.loaders.text_rules import find_similar_names, settle_names
from tests.data.kinds import CONTAINERS, column_of, contain, quietly, sentences
from tests.each import each_of

NAMES = [
    ("01", "02"),
    ("007", "008"),
    ("1_1", "1_2"),
    ("1E5", "2E5"),  # positions on a plate
    ("+1", "+2"),
    ("0x1F", "0x2A"),
    ("E10", "E11"),  # ICD codes
    ("E10.1", "E10.2"),
    ("8001", "8002"),  # postal codes
    ("01099", "1099"),
    ("TRUE", "FALSE"),
    ("T1a", "T1b"),
    ("a", "b"),
    ("<1", ">1"),
    ("No", "Yes"),
    ("ja", "nein"),
    ("1.10", "1.20"),
    ("Grade I", "Grade II"),
    ("0", "1"),
    ("-2", "-1.5x"),
    ("１", "２"),
    ("٣", "٤"),
    ("\u00e9", "e"),
    ("x=1", "x=2"),
    ("a,b", "c"),
    ("#1", "#2"),
]


def encode(labels: list[str], classes: tuple[str, ...] = ()) -> tuple[tuple[str, ...], str]:
    """Return the names of the classes, and all sentences."""
    result = encode_labels(np.array(labels), "classification", "t", classes)
    return result.classes, " | ".join(finding.sentence for finding in result.findings)


@each_of("names", NAMES)
def test_classes_keep_their_names(names: tuple[str, str]) -> None:
    classes, _ = encode([*names] * 10)
    assert set(classes) == set(names)


@each_of("names", [pair for pair in NAMES if pair not in (("TRUE", "FALSE"),)])
def test_categories_keep_their_names_unless_all_are_plain_numbers(
    names: tuple[str, str],
) -> None:
    column = column_of([*names] * 10)
    if column.read.kind == "number":
        assert set(column.cells.tolist()) == {float(name) for name in names}
        assert not any(name.startswith("0") and name != "0" for name in names)
    else:
        assert set(column.read.values) == set(names)


ALIKE = [
    ("Sick", "sick"),
    ("yes", "YES"),
    ("no", "NO"),
    ("TRUE", "true"),
    ("01", "1"),
    ("007", "7"),
    ("1.0", "1"),
    ("1E5", "100000"),
    ("grade 1", "grade  1"),
    ("grade 1", "grade1"),
    ("Grade I", "grade I"),
    ("1\u00a0a", "1 a"),
    ("１", "1"),
    ("\ufb01n", "fin"),
    ("stra\u00dfe", "STRASSE"),
    ("+1", "1"),
    ("0.50", "0.5"),
    ("TRUE", "1"),
    ("0", "False"),
    ("123456789012345678900.0", "123456789012345678900"),
    ("-0", "0"),
    ("1e-400", "10E-401"),
    ("yes\u200b", "yes"),
    ("ye\u00ads", "yes"),
    ("non\u2013smoker", "non-smoker"),
    ("don\u2019t", "don't"),
    ("c\u0430t", "cat"),
    ("ex_smoker", "ex smoker"),
]


@each_of("names", ALIKE)
def test_names_that_differ_only_in_writing_are_one_warning_with_both_counts(
    names: tuple[str, str],
) -> None:
    counts = {names[0]: 3, names[1]: 9, "another": 25}
    assert find_similar_names(counts) == [[names[1], names[0]]]
    labels = [name for name, times in counts.items() for _ in range(times)]
    classes, output = encode(labels)
    assert {*names} <= {*classes}
    assert f"{names[1]!r} (9 rows) and {names[0]!r} (3 rows) differ only in their" in output
    if not all(name.isdecimal() for name in names):
        written = sentences(column_of([*labels, "x"]))
        assert repr(names[0]) in written and repr(names[1]) in written


@each_of(
    "names",
    [
        ("a", "b"),
        ("Sick", "Well"),
        ("1", "2"),
        ("01", "02"),
        ("I", "II"),
        ("é", "e"),
        ("9007199254740993", "9007199254740992"),  # equal as floats
        ("12345678901234567890", "12345678901234567891"),
        ("1" + "0" * 400, "2" + "0" * 400),
        ("1e400", "1e500"),
        ("1e99999999999999999999", "2e99999999999999999999"),
        ("0.30000000000000004", "0.3"),
        ("inf", "-inf"),
        ("TRUE", "yes"),
        ("1_2", "12"),
        ("a_1", "a1"),
        ("1-2", "12"),
        ("non-smoker", "nonsmoker"),
        ("\u044f", "r"),
    ],
)
def test_different_names_are_no_warning(names: tuple[str, str]) -> None:
    assert find_similar_names(Counter([*names] * 5)) == []


def test_several_groups_of_similar_names_are_one_warning() -> None:
    names = [f"{letter}{space}1" for letter in "abcde" for space in ("", " ")]
    _, output = encode(names * 5)
    assert output.count("differ only in their writing") == 1
    assert "names of 2 more groups differ" in output
    assert sentences(column_of(names * 5)).count("differ only") == 1


MEASURED = [
    (["7 %", "8 %", "9 %"], "such as '7 %'", "task='regression' to predict numbers in '%'"),
    (["7 mg", "8 mg"], "such as '7 mg'", "task='regression'"),
    (["<0.5", "0.6", "0.9"], "such as '<0.5'; for regression", "task='classification'"),
    (["7 mg", "8 g", "9 mg"], "such as '7 mg'; for regression", "task='classification'"),
    (["≥ 90", "20", "30"], "such as '≥ 90'", "task='classification'"),
]


@each_of("names, part, fix", MEASURED)
def test_measurements_as_classes_are_a_warning_with_the_way_to_regression(
    names: list[str], part: str, fix: str
) -> None:
    labels = np.array(names * 10)
    (finding,) = encode_labels(labels, "auto", "t").findings
    assert finding.severity == "warning" and part in finding.sentence
    assert fix in finding.fix
    assert encode_labels(labels, "classification", "t").findings == ()


@each_of(
    "names",
    [("<5", "5-10", ">10"), ("1", "2"), ("T1", "T2"), ("<5", ">=5"), ("1st", "2nd")],
)
def test_classes_that_only_bound_or_name_numbers_are_no_warning(
    names: tuple[str, ...],
) -> None:
    assert encode_labels(np.array(names * 10), "auto", "t").findings == ()


@each_of(
    "labels, task, unit",
    [
        (["7.5 mg", "8 mg", ""], "auto", "mg"),
        (["7 %", "8 %", "NA"], "regression", "%"),
        (["0.5%", "7%", " 8 %"], "auto", "%"),
    ],
)
def test_targets_with_one_unit_are_numbers(labels: list[str], task: Any, unit: str) -> None:
    train = encode_labels(np.array(labels), task, "t")
    assert train.unit == unit and not train.classes
    assert f"in {unit!r}" in " ".join(finding.sentence for finding in train.findings)
    for label in (f"9 {unit}", "9"):
        assert encode_test_labels(np.array([label]), train, "t").tolist() == [9.0]
    with pytest.raises(ValueError, match="test targets are in 'kg'"):
        encode_test_labels(np.array(["9 kg"]), train, "t")


def test_different_texts_around_numbers_are_named_as_numbers() -> None:
    labels = np.array([f"{row / 7:.3f} {'mg' if row % 2 else 'g'}" for row in range(40)])
    with pytest.raises(ValueError, match="most of them numbers: write the numbers alone"):
        encode_labels(labels, "auto", "t")


@each_of("spaced", [" a", "a ", "\ta", "a\u00a0", "  a  "])
def test_spaces_around_a_name_are_no_part_of_it(spaced: str) -> None:
    assert encode([spaced, "a", "b"])[0] == ("a", "b")


FORMS = [("f\u00ealure", "fe\u0302lure"), ("\u00e5", "a\u030a"), ("\uac00", "\u1100\u1161")]


@each_of("composed, decomposed", FORMS)
def test_two_forms_of_unicode_are_one_name(composed: str, decomposed: str) -> None:
    classes, output = encode([composed, decomposed, "sain"])
    assert set(classes) == {composed, "sain"} and output == ""
    column = column_of([composed, decomposed, "sain"])
    assert set(column.read.values) == {composed, "sain"}
    assert encode([decomposed, "sain"], (composed, "sain"))[0] == (composed, "sain")
    assert encode([composed, "sain"], (decomposed, "sain"))[0] == (composed, "sain")


def test_numbers_with_a_decimal_point_in_every_label_are_whole_classes() -> None:
    assert encode(["9.0", "10.0", "2.0"])[0] == ("2", "9", "10")
    assert encode(["9.0", "10.0", ""])[0] == ("9", "10")


def test_leading_zeros_in_a_feature_make_a_category_with_a_note() -> None:
    column = column_of(["01", "02", "10"] * 5)
    assert column.read.values == ("01", "02", "10")
    assert "codes with leading zeros, such as '01'" in sentences(column)


def test_classes_that_are_given_decide() -> None:
    labels = np.array(["Sick", "sick", "well"])
    result = encode_labels(labels, "auto", "t", ("Sick", "sick", "well"))
    assert result.classes == ("Sick", "sick", "well")
    assert not any("differ" in finding.sentence for finding in result.findings)


NFC = "f\u00e4llig"
NFD = "fa\u0308llig"


@each_of("container", ["csv", *CONTAINERS])
def test_names_of_columns_have_one_form_of_unicode(container: str, tmp_path: Path) -> None:
    for header, label in ((NFC, NFD), (NFD, NFC)):
        columns = {header: pa.array(["a", "b", "b"] * 8), f"x{NFD}": pa.array(range(5, 29))}
        data: Any = tmp_path / "t.csv"
        if container == "csv":
            pyarrow.csv.write_csv(pa.table(columns), data)
        else:
            data = contain(container, columns, tmp_path)
        options: dict[str, Any] = {"label": label, "columns": [f"x{NFC}"]}
        dataset = quietly(partial(fl.load, data, **options))
        assert dataset.columns == (f"x{NFC}",) and dataset.classes == ("a", "b")


@each_of("container", CONTAINERS)
def test_two_forms_of_one_name_of_a_column_are_refused(
    container: str, tmp_path: Path
) -> None:
    columns = {NFC: pa.array(["a", "b"] * 8), NFD: pa.array(range(16))}
    with pytest.raises(ValueError, match=f"more than one column '{NFC}'"):
        fl.load(contain(container, columns, tmp_path), label=NFC)


@each_of("names", ALIKE)
def test_merging_makes_one_name_of_them_in_classes_sites_and_categories(
    names: tuple[str, str],
) -> None:
    column = [*[names[0]] * 3, *[names[1]] * 9, *["another"] * 25]
    frame = pd.DataFrame({"c": pd.Series(column, dtype="category"), "dose": range(37)})
    data = quietly(
        lambda: fl.from_frame(
            frame.assign(y=column, s=column), label="y", site="s", merge=True
        )
    )
    assert set(data.classes) == set(data.site_names) == {names[1], "another"}
    assert {f"c={names[1]}", "c=another"} < set(data.columns) and len(data.columns) == 3
    assert sum("merged" in note and repr(names[0]) in note for note in data.notes) == 3


GARBLED = [
    ("MÃ¼ller", "perhaps 'Müller'"),
    ("Ã‰cole", "perhaps 'École'"),
    ("M\ufffdller", "were written in another encoding"),
    ("Müller", ""),
    ("Straße 5 °C", ""),
    ("Łódź", ""),
]


@each_of("name, part", GARBLED)
def test_letters_of_a_wrong_encoding_are_a_warning(name: str, part: str) -> None:
    names = [name, "other"] * 12
    labels = encode_labels(np.array(names), "auto", "t")
    of_labels = " | ".join(finding.sentence for finding in labels.findings)
    _, findings = settle_names("sites", np.array(names), merge=False)
    of_sites = " | ".join(finding.sentence for finding in findings)
    for output in (sentences(column_of(names)), of_labels, of_sites):
        assert part in output and bool(part) == ("another encoding" in output)
