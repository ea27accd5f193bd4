"""Columns that alone predict the label are named."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fallow as fl
from tests.data.kinds import quietly
from tests.each import each_of

rng = np.random.default_rng(3)
N = 200
Y = rng.integers(0, 2, N)
TARGET = rng.normal(size=N)
GIVEAWAYS = {
    "the label": Y * 1.0,
    "the label in words": np.where(Y, "treated", "untreated"),
    "a threshold": Y * 10 + rng.random(N),
    "with one error in a hundred": np.where(np.arange(N) % 100 == 0, 1 - Y, Y) * 1.0,
    "empty for one class": np.where(Y, rng.random(N), np.nan),
    "a code of three levels": np.where(Y, "c", np.where(np.arange(N) % 2, "a", "b")),
}
ORDINARY = {
    "noise": rng.random(N),
    "a good predictor": Y + 0.6 * rng.normal(size=N),
    "categories": np.array(list("abcd"))[rng.integers(0, 4, N)],
    "40 categories": np.array([f"c{k}" for k in range(40)])[rng.integers(0, 40, N)],
    "some empty": np.where(rng.random(N) < 0.3, np.nan, rng.random(N)),
}


def warnings_of(column: np.ndarray, label: np.ndarray) -> list[str]:
    frame = pd.DataFrame({"c": column, "noise": rng.random(N), "label": label})
    data = quietly(lambda: fl.from_frame(frame, label="label"))
    return [note for note in data.notes if "alone predict" in note]


@each_of("kind", GIVEAWAYS)
def test_a_column_that_alone_predicts_the_class_is_named(kind: str) -> None:
    (warning,) = warnings_of(GIVEAWAYS[kind], np.where(Y, "yes", "no"))
    assert "column 'c' alone predicts the label almost perfectly" in warning


@each_of("kind", ORDINARY)
def test_other_columns_are_not(kind: str) -> None:
    assert warnings_of(ORDINARY[kind], np.where(Y, "yes", "no")) == []


def test_a_linear_function_of_the_target_is_named() -> None:
    assert warnings_of(3 * TARGET + 1, TARGET)
    assert not warnings_of(TARGET + 0.5 * rng.normal(size=N), TARGET)
    assert not warnings_of(np.where(TARGET > 0, "high", "low"), TARGET)


FUNCTIONS = {
    "the logarithm": np.log(TARGET - TARGET.min() + 1),
    "the square": -((TARGET - TARGET.min()) ** 2),
    "the rank": TARGET.argsort().argsort() * 0.5,
    "five categories": np.array(list("abcde"))[np.searchsorted([-1, 0, 0.5, 1], TARGET)],
}


@each_of("kind", FUNCTIONS)
def test_a_monotone_function_of_the_target_is_named(kind: str) -> None:
    assert warnings_of(FUNCTIONS[kind], TARGET)


UNRELATED = {
    "a square without its sign": TARGET**2,
    "categories": np.array(list("abcd"))[np.arange(N) % 4],
    "categories with an overlap": np.array(list("abc"))[
        np.searchsorted([-0.5, 0.5], TARGET + 0.2 * rng.normal(size=N))
    ],
}


@each_of("kind", UNRELATED)
def test_a_column_that_leaves_the_target_open_is_not_named(kind: str) -> None:
    assert not warnings_of(UNRELATED[kind], TARGET)


RARE = np.arange(N) % 20 == 7
OF_RARE = {
    "the label": RARE * 1.0,
    "a threshold": RARE * 10 + rng.random(N),
    "a range in the middle": np.where(RARE, 0.5, rng.integers(0, 2, N)) + rng.random(N) / 9,
    "empty for the rare class": np.where(RARE, np.nan, rng.random(N)),
    "texts": np.where(RARE, "dead", "alive"),
}
NOT_OF_RARE = {
    "noise": rng.random(N),
    "empty somewhere": np.where(np.arange(N) % 20 == 6, np.nan, rng.random(N)),
    "a code for half of the rare class": (RARE & (np.arange(N) < N // 2)) * 1.0,
    "categories": np.array(list("abcd"))[np.arange(N) % 4],
}


@each_of("kind", OF_RARE)
def test_a_column_that_alone_predicts_a_rare_class_is_named(kind: str) -> None:
    assert warnings_of(OF_RARE[kind], np.where(RARE, "yes", "no"))


@each_of("kind", NOT_OF_RARE)
def test_other_columns_beside_a_rare_class_are_not(kind: str) -> None:
    assert not warnings_of(NOT_OF_RARE[kind], np.where(RARE, "yes", "no"))


def test_very_rare_classes_and_few_rows_tell_nothing() -> None:
    rare = np.arange(N) < 4
    assert not warnings_of(rare * 1.0, np.where(rare, "yes", "no"))
    frame = pd.DataFrame({"c": [1.0, 2.0] * 6, "label": ["a", "b"] * 6})
    assert not [n for n in fl.from_frame(frame, label="label").notes if "alone" in n]


def test_the_finding_names_the_setting_that_omits_the_column() -> None:
    frame = pd.DataFrame({"c": Y * 1.0, "d": TARGET, "label": Y})
    (finding,) = fl.from_frame(frame, label="label").findings  # and no Python warning
    assert finding.severity == "warning" and finding.fix == "drop=['c']"


def test_columns_of_arrays_are_checked_as_those_of_tables() -> None:
    draw = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = np.stack([draw.normal(5, 1, 60), y + 0.1 * draw.random(60)], axis=1)
    x[::7, 0] = -999
    output = " | ".join(quietly(lambda: fl.from_arrays(x, y)).notes)
    assert "x[:, 0]: -999 in 9 cells" in output
    assert "column 'x[:, 1]' alone predicts the label" in output


def test_truth_values_are_classes() -> None:
    data = fl.from_arrays(np.arange(40.0)[:, None] % 7, np.arange(40) % 3 > 0)
    assert data.classes == ("False", "True")
