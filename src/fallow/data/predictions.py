"""Predictions that come with the examples, in columns of their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fallow.data.dataset import Dataset

PREFIX = "prediction:"
"""Start of the name of a column with the probability of a class."""
UNCERTAINTY = "uncertainty"
"""Name of a column with the uncertainty of a prediction, from 0 to 1."""
PREDICTIONS = "predictions"
"""Name of an array with the probabilities of all classes, (n, k)."""
ROUNDING = 0.01
"""Largest difference between 1 and the sum of the probabilities of an example."""


def is_prediction(column: str) -> bool:
    """Return whether a column has given predictions by its name.

    >>> is_prediction("prediction:cat"), is_prediction("uncertainty"), is_prediction("age")
    (True, True, False)
    """
    return column.startswith(PREFIX) or column == UNCERTAINTY


def read_predictions(columns: Sequence[str], values: Tensor) -> Tensor:
    """Return the class probabilities of given predictions.

    columns: names of k columns; values: (n, k) -> (n, k) float64, or (n, 2) for an uncertainty u,
    whose margin is 1 - u.  Raises ValueError, with the row, for values that are no probabilities.

    >>> read_predictions(["uncertainty"], torch.tensor([[0.5]]))
    tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """
    if UNCERTAINTY in columns and len(columns) > 1:
        raise ValueError(
            f"predictions are in the columns {UNCERTAINTY!r} and {columns[0]!r}; keep either "
            "the uncertainty or the probabilities"
        )
    if len(columns) == 1 and columns[0] != UNCERTAINTY:
        raise ValueError(
            f"column {columns[0]!r} has the probabilities of a single class; add one column "
            f"{PREFIX}CLASS for each class, or name it {UNCERTAINTY!r} if it is an uncertainty"
        )
    shares = values.double()
    is_outside = ~((shares >= 0) & (shares <= 1))  # also NaN
    if bool(is_outside.any()):
        row, at = is_outside.nonzero()[0].tolist()
        raise ValueError(
            f"column {columns[at]!r} is {float(shares[row, at]):g} in row {row + 1}; "
            "predictions are numbers from 0 to 1 without empty cells"
        )
    if columns[0] == UNCERTAINTY:
        return torch.cat([1 - shares / 2, shares / 2], dim=1)
    total = shares.sum(1)
    is_wrong = (total - 1).abs() > ROUNDING
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise ValueError(
            f"the columns {PREFIX}CLASS of row {row + 1} add up to {float(total[row]):g}; "
            "probabilities of an example add up to 1"
        )
    return shares / total[:, None]


def split_predictions(dataset: Dataset) -> tuple[Dataset, Tensor | None]:
    """Return the dataset without its columns of predictions, and the predictions.

    These are class probabilities of the training examples, (n, k) float64, or None without such
    columns.
    """
    names = [column for column in dataset.columns if is_prediction(column)]
    if not names:
        return dataset, None
    kept = [at for at, name in enumerate(dataset.columns) if name not in names]
    if not kept:
        raise ValueError(
            f"{dataset.name} has predictions and no other column; add features"
        )
    at_predictions = [at for at, name in enumerate(dataset.columns) if name in names]
    values = dataset.x[:, at_predictions].double()
    offsets = dataset.offsets
    if offsets:
        values = values + torch.tensor(offsets, dtype=torch.float64)[at_predictions]
        offsets = tuple(offsets[at] for at in kept)
    missing = dataset.missing
    if missing is not None:
        position = {at: new for new, at in enumerate(kept)}
        levels = [
            (position[first], position[first] + end - first)
            for first, end in missing.levels
        ]
        missing = replace(missing, levels=tuple(levels))
    features = replace(
        dataset,
        x=dataset.x[:, kept],
        x_test=dataset.x_test[:, kept],
        columns=tuple(dataset.columns[at] for at in kept),
        offsets=offsets,
        missing=missing,
    )
    return features, read_predictions(names, values)
