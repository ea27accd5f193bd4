"""Counts of the test examples of a site: hits, and sums of errors."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.core.types import Values


def count_hits(guess: Tensor, true: Tensor, classes: int) -> Values:
    """Count examples and hits in total and per class. ``guess`` and ``true`` are class IDs (m,).

    >>> counts = count_hits(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), 2)
    >>> counts["hits"], counts["class_rows"].tolist(), counts["class_hits"].tolist()
    (2.0, [2.0, 1.0], [1.0, 1.0])
    """
    hits = true[guess == true]
    return {
        "rows": float(len(true)),
        "hits": float(len(hits)),
        "class_rows": torch.bincount(true, minlength=classes).double(),
        "class_hits": torch.bincount(hits, minlength=classes).double(),
    }


def sum_errors(predicted: Tensor, true: Tensor) -> Values:
    """Return the number of examples and the sum of squared errors.

    predicted and true are (m,) in the unit of the target.
    """
    squares = (predicted - true).double().square().sum()
    return {"rows": float(len(true)), "squares": float(squares)}
