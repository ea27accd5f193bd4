"""Counts of test examples that a site may disclose: none over too few examples."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.core.types import Values
from fallow.engine.conformal import count_nonconformity
from fallow.engine.score_metrics import count_scores, sum_moments


def count_hits(guess: Tensor, true: Tensor, classes: int, least: int) -> Values:
    """Count examples and hits in total and per class. ``guess`` and ``true`` are class IDs (m,).

    Counts over fewer than ``least`` examples are suppressed, also per class. If the suppressed
    classes have fewer examples together, the smallest other class is suppressed too, so that no
    difference reveals them.

    >>> y = torch.tensor([0] * 9 + [1] * 6 + [2] * 2)
    >>> counts = count_hits(y, y, 3, 5)
    >>> counts["rows"], counts["class_rows"].tolist()
    (17.0, [9.0, 0.0, 0.0])
    """
    rows = torch.bincount(true, minlength=classes).double()
    hits = torch.bincount(true[guess == true], minlength=classes).double()
    output = choose_classes(rows, least)
    n_rows = 0.0
    n_hits = 0.0
    if len(true) >= least:
        n_rows = float(rows.sum())
        n_hits = float(hits.sum())
    return {
        "rows": n_rows,
        "hits": n_hits,
        "class_rows": torch.where(output, rows, 0.0),
        "class_hits": torch.where(output, hits, 0.0),
    }


def choose_classes(rows: Tensor, least: int) -> Tensor:
    """Return the classes whose counts may be disclosed, a Boolean mask (C,)."""
    output = rows >= least
    while bool(output.any()) and 0 < float(rows[~output].sum()) < least:
        output[rows.masked_fill(~output, torch.inf).argmin()] = False
    return output


def count_scores_of_many(outputs: Tensor, true: Tensor, least: int) -> Tensor:
    """Return the histograms of `count_scores`, with zeros for classes that are not disclosed.

    outputs: (m, C); true: (m,).  A class is not disclosed if `choose_classes` suppresses its counts,
    or if fewer than ``least`` examples have another class.
    """
    counts = count_scores(outputs, true).double()
    rows = torch.bincount(true, minlength=outputs.shape[1]).double()
    shown = choose_classes(rows, least) & (len(true) - rows >= least)
    counts[~shown] = 0.0
    return counts


def count_bins_of_many(
    scores: Values, outputs: Tensor, true: Tensor, is_regression: bool
) -> Tensor:
    """Return the counts of `count_nonconformity`, all 0 if ``scores`` are over no examples.

    The counts are of all classes together, so that no small class has to be left out.
    """
    shown = float(torch.as_tensor(scores["rows"])) > 0
    many = slice(None) if shown else slice(0)
    return count_nonconformity(outputs[many], true[many], is_regression)


def sum_errors(predicted: Tensor, true: Tensor, least: int, *, has_metrics: bool) -> Values:
    """Return the sum of squared errors and, for metrics, the sums of `sum_moments`.

    predicted and true are (m,) in the unit of the target.  All are 0 for fewer than ``least``
    examples.
    """
    if len(true) < least:
        predicted = predicted[:0]
        true = true[:0]
    squares = (predicted - true).double().square().sum()
    errors: Values = {"rows": float(len(true)), "squares": float(squares)}
    if has_metrics:
        errors |= sum_moments(predicted, true)
    return errors
