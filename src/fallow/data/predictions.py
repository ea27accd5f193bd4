"""Predictions that come with the examples, in columns of their table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fallow.core.suggestions import nearest
from fallow.data.dataset import DONE, Dataset

PREFIX = "prediction:"
"""Start of the name of a column with the probability of a class."""
UNCERTAINTY = "uncertainty"
"""Name of a column with the uncertainty of a prediction, from 0 to 1."""
ROUNDING = 1e-4
"""Rounding error of a sum in single precision."""
PREDICTIONS = "predictions"
"""Name of an array with the probabilities of all classes, (n, k)."""


def find_tolerance(classes: int) -> float:
    """Return the largest difference between 1 and the sum of probabilities of two digits.

    >>> find_tolerance(2), find_tolerance(10)
    (0.02, 0.05)
    """
    return max(0.02, 0.005 * classes)


def is_prediction(column: str) -> bool:
    """Return whether a column has given predictions by its name.

    >>> is_prediction("prediction:cat"), is_prediction("uncertainty"), is_prediction("age")
    (True, True, False)
    """
    return column.startswith(PREFIX) or column == UNCERTAINTY


def name_row(row: int) -> str:
    """Return the number of a row as people count."""
    return f"row {row + 1}"


def read_predictions(
    columns: Sequence[str], values: Tensor, describe: Callable[[int], str] = name_row
) -> Tensor:
    """Return the class probabilities of given predictions.

    columns: names of k columns; values: (n, k) -> (n, k) float64, or (n, 2) for an uncertainty u,
    whose margin is 1 - u.  Raises ValueError for values that are no probabilities, with what
    ``describe`` says of the row.

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
            f"column {columns[at]!r} is {float(shares[row, at]):g} in {describe(row)}; "
            "predictions are numbers from 0 to 1 without empty cells"
        )
    if columns[0] == UNCERTAINTY:
        return torch.cat([1 - shares / 2, shares / 2], dim=1)
    total = shares.sum(1)
    is_wrong = (total - 1).abs() > find_tolerance(len(columns)) + ROUNDING
    if bool(is_wrong.any()):
        row = int(is_wrong.nonzero()[0])
        raise ValueError(
            f"the columns {PREFIX}CLASS of {describe(row)} add up to {float(total[row]):g}; "
            "probabilities of an example add up to 1"
        )
    return shares / total[:, None]


def check_predicted_classes(columns: Sequence[str], classes: Sequence[str]) -> None:
    """Raise ValueError for a column with predictions of an unknown class.

    Any class may be predicted where the only label is `DONE`.
    """
    for column in columns:
        named = column.removeprefix(PREFIX)
        if column == UNCERTAINTY or list(classes) in ([], [DONE]) or named in classes:
            continue
        raise ValueError(
            f"column {column!r} has predictions of {named!r}, which is not one of the classes"
            f"{nearest(named, list(classes))}"
        )


def split_predictions(dataset: Dataset) -> tuple[Dataset, Tensor | None]:
    """Return the dataset without its columns of predictions, and the predictions.

    These are class probabilities of the training examples, (n, k) float64, or None without such
    columns. Raises ValueError for a column of an unknown class, and for values that are no
    probabilities, also of test examples.
    """
    names = [column for column in dataset.columns if is_prediction(column)]
    if not names:
        return dataset, None
    kept = [at for at, name in enumerate(dataset.columns) if name not in names]
    if not kept:
        raise ValueError(
            f"{dataset.name} has predictions and no other column; add features"
        )
    check_predicted_classes(names, dataset.classes)
    at_predictions = [at for at, name in enumerate(dataset.columns) if name in names]
    values = torch.cat([dataset.x, dataset.x_test])[:, at_predictions].double()
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

    def describe(row: int) -> str:
        if dataset.ids is not None and row < len(dataset.ids):
            return f"example {dataset.ids[row]!r}"
        return "an example"

    return features, read_predictions(names, values, describe)[: len(dataset.x)]
