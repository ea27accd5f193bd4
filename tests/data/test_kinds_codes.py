"""Codes and names: they stay as written, and names that look alike are a warning."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

import fallow as fl
from fallow.data.loaders.labels import encode_labels
from fallow.data.loaders.text_rules import find_similar_names
from tests.data.kinds import column_of, quietly, sentences
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
    [("a", "b"), ("Sick", "Well"), ("1", "2"), ("01", "02"), ("I", "II"), ("é", "e")],
)
def test_different_names_are_no_warning(names: tuple[str, str]) -> None:
    assert find_similar_names(Counter([*names] * 5)) == []


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
