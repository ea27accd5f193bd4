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


def test_rare_classes_and_few_rows_tell_nothing() -> None:
    rare = np.arange(N) < 10
    assert not warnings_of(rng.random(N), np.where(rare, "yes", "no"))
    frame = pd.DataFrame({"c": [1.0, 2.0] * 6, "label": ["a", "b"] * 6})
    assert not [n for n in fl.from_frame(frame, label="label").notes if "alone" in n]


def test_the_finding_names_the_setting_that_omits_the_column() -> None:
    frame = pd.DataFrame({"c": Y * 1.0, "d": TARGET, "label": Y})
    (finding,) = fl.from_frame(frame, label="label").findings  # and no Python warning
    assert finding.severity == "warning" and finding.fix == "drop=['c']"
