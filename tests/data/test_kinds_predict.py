"""Predict: new examples are read as those of training, or refused with the difference."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

import fallow as fl
from tests.each import each_of

rng = np.random.default_rng(5)
DIGITS = sklearn.datasets.load_digits()
PIXELS = DIGITS.images[:200].astype(np.uint8)[:, None]  # 0 to 16
CLASSES = DIGITS.target[:200]


def train(data: Any, **settings: Any) -> fl.Run:
    federation = fl.Federation(data, sites=2)
    return fl.run(federation, "random", cycles=0, progress=False, **settings)


@functools.cache
def digits() -> fl.Run:
    return train(fl.load("digits"), initial=200)


@functools.cache
def shares() -> fl.Run:
    return train(fl.from_arrays(PIXELS / 16, CLASSES), initial=60)


def agreement(run: fl.Run, pixels: np.ndarray[Any, Any]) -> float:
    return float((run.predict(pixels) == CLASSES.astype(str)).mean())


@each_of("kind", [np.uint8, np.int64, np.uint16])
def test_whole_pixels_are_normalized_as_the_named_dataset(kind: type) -> None:
    assert agreement(digits(), PIXELS.astype(kind)) > 0.9


def test_normalized_pixels_are_used_as_they_are() -> None:
    normal = ((PIXELS / 16 - 0.3053) / 0.3760).astype(np.float32)
    assert agreement(digits(), normal) > 0.9
    assert agreement(shares(), PIXELS / 16) > 0.8


@each_of(
    "model, pixels, output",
    [
        (
            digits,
            PIXELS / 16,
            "between 0 and 1, and those of the training data between -0.8",
        ),
        (digits, PIXELS * 1.0, "between 0 and 16, and those of the training data"),
        (
            digits,
            PIXELS.astype(np.int64) * 16,
            "go up to 256, and those of the training data",
        ),
        (
            shares,
            PIXELS * 1.0,
            "between 0 and 16, and those of the training data between 0",
        ),
        (shares, PIXELS * 16.0, "divide them by the same number"),
        (shares, PIXELS / 16 - 5, "between -5 and -4"),
    ],
)
def test_pixels_on_another_scale_are_refused(model: Any, pixels: Any, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        model().predict(pixels)


def test_a_saved_model_keeps_the_scale(tmp_path: Path) -> None:
    digits().save(tmp_path / "model")
    saved = fl.load_model(tmp_path / "model")
    assert (saved.predict(PIXELS) == digits().predict(PIXELS)).all()
    with pytest.raises(ValueError, match="those of the training data"):
        saved.predict(PIXELS / 16)


N = 80
FRAME = pd.DataFrame(
    {
        "age": (40 + 20 * rng.normal(size=N)).round(1),
        "ward": np.array(["A", "B", None])[rng.integers(0, 3, N)],
        "dose": [f"{value:.2f} mg" for value in rng.random(N)],
        "smokes": rng.integers(0, 2, N).astype(bool),
        "at": 1_700_000_000 + rng.integers(0, 600, N),
    }
)
FRAME["sick"] = np.where(FRAME["age"] + 10 * rng.normal(size=N) > 40, "yes", "no")


@functools.cache
def table() -> fl.Run:
    return train(fl.from_frame(FRAME, label="sick"), initial=20)


def write(frame: pd.DataFrame, container: str, folder: Path) -> Any:
    """Return the frame in a container."""
    if container == "csv":
        frame.to_csv(folder / "t.csv", index=False)
        return pd.read_csv(folder / "t.csv", dtype=str, keep_default_na=False)
    if container == "strings":
        return frame.astype("string")
    return frame.convert_dtypes() if container == "nullable" else frame


VARIANTS = {
    "as in training": lambda frame: frame,
    "reordered": lambda frame: frame[sorted(frame.columns, reverse=True)],
    "without the label": lambda frame: frame.drop(columns="sick"),
    "with more columns": lambda frame: frame.assign(more=1, remark="x"),
    "shuffled index": lambda frame: frame.set_index(np.arange(N)[::-1] * 7),
    "doses without a unit": lambda frame: frame.assign(
        dose=frame["dose"].str.removesuffix(" mg").astype(float)
    ),
}


@each_of(
    "variant, container",
    [
        (variant, container)
        for variant in VARIANTS
        for container in ("pandas", "csv", "strings", "nullable")
    ],
)
def test_a_table_is_predicted_alike_however_it_comes(
    variant: str, container: str, tmp_path: Path
) -> None:
    expected = table().predict(FRAME)
    container_of_rows = write(VARIANTS[variant](FRAME), container, tmp_path)
    assert table().predict(container_of_rows).tolist() == expected.tolist()


@each_of(
    "change, output",
    [
        (
            {"dose": [f"{value:.1f} g" for value in range(N)]},
            "'dose', row 1: '0.0 g' is a text",
        ),
        ({"ward": ["C"] * N}, "'C' is not one of the texts"),
        ({"age": ["old"] * N}, "'age', row 1: 'old' is a text"),
        ({"age": ["10_20"] * N}, "'10_20' is a text"),
        ({"age": [np.inf] * N}, "infinite"),
    ],
)
def test_other_values_are_refused_by_row(change: dict[str, Any], output: str) -> None:
    with pytest.raises(ValueError, match=output):
        table().predict(FRAME.assign(**change))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'dose'"):
        table().predict(FRAME.drop(columns="dose"))
