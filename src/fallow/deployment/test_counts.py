"""Counts of the test examples of a site: hits, and sums of errors."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.core.multilabel import UNKNOWN, read_digits
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


def count_right(outputs: Tensor, true: Tensor, n_labels: int) -> Values:
    """Count examples, and for each of several labels known and right answers.

    outputs: (m, L) log-odds; true: (m,) numbers of `fallow.core.multilabel`.

    >>> counts = count_right(
    ...     torch.tensor([[2.0, -1.0], [1.0, 3.0]]), torch.tensor([1, 6]), 2
    ... )
    >>> counts["label_rows"].tolist(), counts["label_hits"].tolist()
    ([2.0, 1.0], [1.0, 1.0])
    """
    digits = read_digits(true, n_labels)
    is_known = digits != UNKNOWN
    is_right = is_known & ((outputs > 0).long() == digits)
    return {
        "rows": float(len(true)),
        "label_rows": is_known.sum(0).double(),
        "label_hits": is_right.sum(0).double(),
    }


def sum_errors(predicted: Tensor, true: Tensor) -> Values:
    """Return the number of examples and the sum of squared errors.

    predicted and true are (m,) in the unit of the target.
    """
    squares = (predicted - true).double().square().sum()
    return {"rows": float(len(true)), "squares": float(squares)}
