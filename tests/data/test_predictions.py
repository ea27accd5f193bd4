"""Predictions in columns of a table."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

import fallow as fl
from fallow.core.missing import Missing
from fallow.data.predictions import read_predictions, split_predictions
from tests.each import each_of

TWO = ["prediction:a", "prediction:b"]


@each_of(
    "columns, row, sentence",
    [
        (TWO, [0.5, 0.4], "of row 2 add up to 0.9"),
        (TWO, [1.5, -0.5], "column 'prediction:a' is 1.5 in row 2"),
        (TWO, [torch.nan, 1.0], "without empty cells"),
        (TWO, [torch.inf, 1.0], "numbers from 0 to 1"),
        (TWO[:1], [0.5], "has the probabilities of a single class"),
        (["prediction:a", "uncertainty"], [0.5, 0.5], "keep either"),
    ],
)
def test_wrong_predictions_are_named(
    columns: list[str], row: list[float], sentence: str
) -> None:
    good = [1.0, 0.0][: len(row)]
    with pytest.raises(ValueError, match=sentence):
        read_predictions(columns, torch.tensor([good, row]))


def test_probabilities_are_normalized_after_rounding() -> None:
    shares = read_predictions(TWO, torch.tensor([[0.333, 0.666]]))
    assert_close(shares.sum(1), torch.ones(1, dtype=torch.float64))


def test_the_margin_of_an_uncertainty_is_its_complement() -> None:
    shares = read_predictions(["uncertainty"], torch.tensor([[0.0], [0.25], [1.0]]))
    margin = shares[:, 0] - shares[:, 1]
    assert_close(margin, torch.tensor([1.0, 0.75, 0.0], dtype=torch.float64))


def test_columns_of_predictions_leave_the_features_in_order() -> None:
    x = torch.tensor([[5.0, 0.25, 1.0, 0.75, 0.0], [6.0, 0.5, 0.0, 0.5, 1.0]])
    data = fl.Dataset(
        "toy",
        x,
        torch.tensor([0, 1]),
        x[:0],
        torch.tensor([], dtype=torch.int64),
        classes=("n", "y"),
        columns=("age", "prediction:n", "kind=u", "prediction:y", "kind=v"),
        missing=Missing(levels=((2, 3), (4, 5))),
        offsets=(10.0, 0.0, 0.0, 0.0, 0.0),
    )
    features, shares = split_predictions(data)
    assert shares is not None
    assert shares.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert features.columns == ("age", "kind=u", "kind=v")
    assert features.x.tolist() == x[:, [0, 2, 4]].tolist()
    assert features.offsets == (10.0, 0.0, 0.0)
    assert features.missing == Missing(levels=((1, 2), (2, 3)))
    assert split_predictions(features) == (features, None)
    only = replace(data, x=x[:, [1, 3]], x_test=x[:0, [1, 3]], columns=tuple(TWO))
    with pytest.raises(ValueError, match="no other column"):
        split_predictions(replace(only, missing=None, offsets=()))


def table(**columns: list[float]) -> fl.Dataset:
    frame = {"age": [5.0, 6.0, 7.0, 8.0], "kind": ["n", "y", "n", "y"], **columns}
    return fl.from_frame(pd.DataFrame(frame), label="kind")


@each_of(
    "columns, sentence",
    [
        (
            {"prediction:n": [0.7] * 4, "prediction:y": [0.7] * 4},
            "an example add up to 1.4",
        ),
        (
            {"prediction:n": [0.7] * 4, "prediction:z": [0.3] * 4},
            "predictions of 'z', which",
        ),
    ],
)
def test_columns_of_one_value_and_of_unknown_classes_are_read(
    columns: dict[str, list[float]], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        split_predictions(table(**columns))


def test_predictions_of_test_examples_are_checked() -> None:
    data = table(**{"prediction:n": [0.7] * 4, "prediction:y": [0.3] * 4})
    wrong = data.x[:1].clone()
    wrong[:, [name.startswith("prediction") for name in data.columns]] += 0.2
    with pytest.raises(ValueError, match=r"of an example add up to 1\.4"):
        split_predictions(replace(data, x_test=wrong, y_test=data.y[:1]))
