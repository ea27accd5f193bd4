"""Clinical metrics from histograms of predicted probabilities, and regression metrics from moments.

A site sends counts, and the metrics of all sites follow from their sums.  Every function takes sums
of any number of sites or of bootstrap replicates (leading dimensions ``...``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.core.multilabel import UNKNOWN, read_digits
from fallow.core.suggestions import nearest
from fallow.core.wording import join_words

Floats = NDArray[np.float64]
Task = Literal["classification", "regression", "multilabel"]

STEPS = 200
"""Bins of equal width, of which the first and the last are divided further."""
SMALL = 10.0 ** -np.array([100, 70, 45, 30, 22, 17, 13, 10, 8, 7, 6, 5, 4, 3.5, 3, 2.6])
"""Edges within the first bin: most probabilities of a confident model are near 0 and 1."""
_MIDDLE = np.arange(1, STEPS) / STEPS
LOG_ODDS = np.concatenate(
    [np.log(SMALL), np.log(_MIDDLE / (1 - _MIDDLE)), -np.log(SMALL[::-1])]
)
"""Inner edges of the bins, as log-odds of a probability."""
BINS = len(LOG_ODDS) + 1
EDGES = np.concatenate([[0.0], SMALL, _MIDDLE, 1 - SMALL[::-1], [1.0]])
"""Edges of the bins, as probabilities."""
CENTERS = (EDGES[:-1] + EDGES[1:]) / 2
GROUPS = 10
"""Groups of equal width in a reliability diagram."""
REPLICATES = 500
"""Number of bootstrap replicates for an interval."""
MOMENTS = 4
"""Values of a regression example: absolute error, squared error, target, squared target."""


# -- counts of a site -----------------------------------------------------------------------------


def count_answers(outputs: Tensor, true: Tensor) -> Tensor:
    """Return the histograms of `count_scores` for several labels, without unknown answers.

    outputs: (n, L) log-odds; true: (n,) numbers of `fallow.core.multilabel` -> (L, 2, 2, BINS).
    """
    n_labels = outputs.shape[1]
    bins = np.searchsorted(LOG_ODDS, outputs.double().numpy(), side="right")
    predicted = (outputs > 0).long().numpy()
    digits = read_digits(true, n_labels).numpy()
    counts = np.zeros((n_labels, 2, 2, BINS), dtype=np.int64)
    for label in range(n_labels):
        at = digits[:, label] != UNKNOWN
        cells = (digits[at, label], predicted[at, label], bins[at, label])
        np.add.at(counts[label], cells, 1)
    return torch.from_numpy(counts)


def count_scores(outputs: Tensor, true: Tensor) -> Tensor:
    """Return the histograms of the predicted probabilities of each class.

    Parameters
    ----------
    outputs : Tensor
        (n, C) logits.
    true : Tensor
        (n,) class ids.

    Returns
    -------
    Tensor
        (C, 2, 2, BINS) counts, int64: by class, by whether an example has this class, by whether
        the class is predicted, and by the bin of its probability.
    """
    classes = outputs.shape[1]
    bins = bin_scores(outputs)
    predicted = outputs.argmax(1).numpy()
    labels = true.long().numpy()
    counts = np.zeros((classes, 2, 2, BINS), dtype=np.int64)
    for c in range(classes):
        has_class = (labels == c).astype(np.int64)
        is_predicted = (predicted == c).astype(np.int64)
        np.add.at(counts[c], (has_class, is_predicted, bins[:, c]), 1)
    return torch.from_numpy(counts)


def bin_scores(outputs: Tensor) -> NDArray[np.int64]:
    """Return the bin of the probability of each class.

    outputs: (n, C) logits -> (n, C).  Log-odds distinguish probabilities that round to 1.
    """
    logits = outputs.double()
    log_odds = torch.empty_like(logits)
    for c in range(logits.shape[1]):
        others = torch.cat([logits[:, :c], logits[:, c + 1 :]], dim=1)
        log_odds[:, c] = logits[:, c] - others.logsumexp(1)
    return np.searchsorted(LOG_ODDS, log_odds.numpy(), side="right")


def sum_moments(predicted: Tensor, true: Tensor) -> dict[str, Tensor]:
    """Return sums over examples from which regression metrics follow.

    Parameters
    ----------
    predicted, true : Tensor
        (n,) values, in the unit of the target.

    Returns
    -------
    dict of str to Tensor
        ``first`` (4,), the sums of absolute error, squared error, target and squared target, and
        ``second`` (4, 4), the sums of their products, float64.
    """
    error = (predicted.double() - true.double()).abs()
    target = true.double()
    values = torch.stack([error, error.square(), target, target.square()], dim=1)  # (n, 4)
    return {"first": values.sum(0), "second": values.T @ values}


# -- metrics of classes ---------------------------------------------------------------------------


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    """Return a quotient, NaN where the denominator is 0."""
    result = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


def _by_truth(counts: Floats) -> tuple[Floats, Floats]:
    """Return the histograms of negative and of positive examples, (..., C, BINS) each."""
    by_bin = counts.sum(-2)
    return by_bin[..., 0, :], by_bin[..., 1, :]


def auroc(counts: Floats) -> Floats:
    """Return the area under the ROC curve of each class against all others.

    counts: (..., C, 2, 2, BINS) -> (..., C); NaN for a class without positive or without negative
    examples.  Pairs within one bin count one half.

    >>> y = torch.tensor([0, 1, 1])
    >>> outputs = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> auroc(count_scores(outputs, y).numpy()).tolist()
    [1.0, 1.0]
    """
    negative, positive = _by_truth(counts)
    below = negative.cumsum(-1) - negative / 2
    pairs = positive.sum(-1) * negative.sum(-1)
    return _divide((positive * below).sum(-1), pairs.astype(np.float64))


def auroc_error(counts: Floats) -> Floats:
    """Return the largest possible difference of `auroc` from the area without bins, (..., C)."""
    negative, positive = _by_truth(counts)
    pairs = positive.sum(-1) * negative.sum(-1)
    return _divide((positive * negative).sum(-1) / 2, pairs.astype(np.float64))


def average_precision(counts: Floats) -> Floats:
    """Return the average precision of each class: precision weighted by the increase in recall.

    counts: (..., C, 2, 2, BINS) -> (..., C); NaN for a class without positive examples.
    """
    negative, positive = _by_truth(counts)
    true_positive = positive[..., ::-1].cumsum(-1)  # from the largest probability
    predicted = true_positive + negative[..., ::-1].cumsum(-1)
    precision = np.nan_to_num(_divide(true_positive, predicted))
    positive_from_top = positive[..., ::-1]
    return _divide((precision * positive_from_top).sum(-1), positive.sum(-1))


def sensitivity(counts: Floats, specificity: float) -> Floats:
    """Return the largest sensitivity of each class at a specificity of at least ``specificity``.

    counts: (..., C, 2, 2, BINS) -> (..., C); NaN for a class without positive or without negative
    examples.
    """
    negative, positive = _by_truth(counts)
    n_negative = negative.sum(-1)
    # with a threshold above a bin
    rejected = _divide(negative.cumsum(-1), n_negative[..., None])
    accepted = positive.sum(-1, keepdims=True) - positive.cumsum(-1)
    is_specific = rejected >= specificity - 1e-12
    detected = np.where(is_specific, accepted, 0).max(-1)
    result = _divide(detected, positive.sum(-1))
    return np.where(n_negative == 0, np.nan, result)


def f1(counts: Floats) -> Floats:
    """Return the F1 score of each class for the most probable class as prediction.

    counts: (..., C, 2, 2, BINS) -> (..., C); NaN for a class that neither occurs nor is predicted.
    """
    table = counts.sum(-1)  # (..., C, true, predicted)
    hits = table[..., 1, 1]
    wrong = table[..., 0, 1] + table[..., 1, 0]
    return _divide(2 * hits, 2 * hits + wrong)


def brier(counts: Floats) -> Floats:
    """Return the Brier score of each class: mean of (probability - 1 if it is the class)².

    counts: (..., C, 2, 2, BINS) -> (..., C).  Probabilities are those of the centers of bins.
    """
    negative, positive = _by_truth(counts)
    squares = negative * CENTERS**2 + positive * (1 - CENTERS) ** 2
    return _divide(squares.sum(-1), (negative + positive).sum(-1))


def reliability(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return a reliability diagram of each class.

    counts: (..., C, 2, 2, BINS).  The result has the mean probability, the share of the class, and
    the number of examples of each group of probabilities, (..., C, GROUPS) each; NaN for a group
    without examples.
    """
    negative, positive = _by_truth(counts)
    group = np.minimum((CENTERS * GROUPS).astype(np.int64), GROUPS - 1)
    starts = np.searchsorted(group, np.arange(GROUPS))
    both = negative + positive
    rows = np.add.reduceat(both, starts, axis=-1).astype(np.float64)
    means = _divide(np.add.reduceat(both * CENTERS, starts, axis=-1), rows)
    shares = _divide(np.add.reduceat(positive, starts, axis=-1), rows)
    return means, shares, rows


def calibration_error(counts: Floats) -> Floats:
    """Return the expected calibration error of each class, over 10 groups of equal width.

    counts: (..., C, 2, 2, BINS) -> (..., C): the mean over examples of the difference between mean
    probability and share of the class in the group.
    """
    means, shares, rows = reliability(counts)
    differences = np.nan_to_num(np.abs(means - shares)) * rows
    return _divide(differences.sum(-1), rows.sum(-1))


# -- metrics of numbers ---------------------------------------------------------------------------


def r2(means: Floats) -> Floats:
    """Return R² from the means of the four values of an example (`MOMENTS`), (..., 4) -> (...)."""
    variance = means[..., 3] - means[..., 2] ** 2
    return _divide(variance - means[..., 1], variance)


def mae(means: Floats) -> Floats:
    """Return the mean absolute error in the unit of the target, (..., 4) -> (...)."""
    return means[..., 0]


# -- names ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A metric by name.

    Parameters
    ----------
    name : str
        As in the setting ``metrics``.
    title : str
        As in tables.
    task : {"classification", "regression"}
        Tasks to which it applies.
    higher_is_better : bool
        Whether a larger value is better.
    compute : callable
        A function of counts or of means (this module).
    """

    name: str
    title: str
    task: Task
    higher_is_better: bool
    compute: Callable[[Floats], Floats]


SPECIFICITY = 0.9
"""Specificity of ``sensitivity`` without a number."""

_METRICS = (
    Metric("auroc", "AUROC", "classification", True, auroc),
    Metric(
        "average-precision",
        "Average precision",
        "classification",
        True,
        average_precision,
    ),
    Metric("f1", "F1", "classification", True, f1),
    Metric("brier", "Brier score", "classification", False, brier),
    Metric(
        "calibration-error", "Calibration error", "classification", False, calibration_error
    ),
    Metric("r2", "R²", "regression", True, r2),
    Metric("mae", "Mean absolute error", "regression", False, mae),
)
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _METRICS}
"""Metrics without a parameter, by name.  ``sensitivity@SPECIFICITY`` has one."""
NAMES = (*METRICS, "sensitivity")


def find_metric(text: str) -> Metric:
    """Return the metric that a text names.

    Raises
    ------
    ValueError
        If there is none, or if the specificity is not between 0 and 1.

    Examples
    --------
    >>> find_metric("auroc").title, find_metric("sensitivity@0.95").title
    ('AUROC', 'Sensitivity at specificity 0.95')
    """
    name, at, number = text.partition("@")
    if name == "sensitivity":
        return _sensitivity_at(text, number if at else str(SPECIFICITY))
    if text in METRICS:
        return METRICS[text]
    raise ValueError(f"metric {text!r} is unknown{nearest(text, list(NAMES))}")


def _sensitivity_at(text: str, number: str) -> Metric:
    try:
        specificity = float(number)
    except ValueError:
        specificity = math.nan
    if not 0 < specificity < 1:
        raise ValueError(
            f"metric {text!r} has no specificity between 0 and 1; write it as sensitivity@0.95"
        )
    return Metric(
        text,
        f"Sensitivity at specificity {specificity:g}",
        "classification",
        True,
        partial(sensitivity, specificity=specificity),
    )


def check_metrics(names: Iterable[str], task: Task) -> None:
    """Raise ValueError for a metric that is not defined for the task."""
    for name in names:
        metric = find_metric(name)
        is_for = "regression" if task == "regression" else "classification"
        if metric.task != is_for:
            known = [other.name for other in METRICS.values() if other.task == is_for]
            raise ValueError(
                f"metric {name!r} is for {metric.task}, and this is a {task} task; use "
                f"{join_words(known, last='or')}"
            )


# -- values with intervals ------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueWithInterval:
    """A value with the bounds of its 95 % interval; None where there are too few examples."""

    value: float | None
    low: float | None
    high: float | None


def resample(counts: Floats) -> Floats:
    """Return bootstrap replicates of histograms: examples drawn with replacement.

    counts: (C, 2, 2, BINS) -> (REPLICATES, C, 2, 2, BINS).  Classes are drawn independently.
    """
    rng = np.random.default_rng(0)
    flat = counts.reshape(len(counts), -1)
    replicates = np.zeros((REPLICATES, *flat.shape))
    for c, cells in enumerate(flat):
        rows = round(cells.sum())
        if rows:
            shares = cells / cells.sum()
            replicates[:, c] = rng.multinomial(rows, shares, size=REPLICATES)
    return replicates.reshape(REPLICATES, *counts.shape)


def estimate_classes(
    metric: Metric, counts: Floats, replicates: Floats | None
) -> tuple[ValueWithInterval, list[ValueWithInterval]]:
    """Return the mean over classes and the value of each class, with percentile intervals.

    The bounds of the mean are the means of the bounds of the classes: the interval is exact for
    two classes, and too wide rather than too narrow for more.  Without ``replicates`` there are no
    bounds.

    counts: (C, 2, 2, BINS); replicates: (R, C, 2, 2, BINS), from `resample`.
    """
    values = metric.compute(counts)
    bounds = np.full((2, len(values)), np.nan)
    if replicates is not None:
        drawn = metric.compute(replicates)  # (R, C)
        for c in range(len(values)):
            of_class = drawn[:, c][~np.isnan(drawn[:, c])]
            if len(of_class) and not np.isnan(values[c]):
                bounds[:, c] = np.quantile(of_class, [0.025, 0.975])
    classes = [
        ValueWithInterval(_known(value), _known(low), _known(high))
        for value, low, high in zip(values, *bounds, strict=True)
    ]
    mean = ValueWithInterval(_mean(values), _mean(bounds[0]), _mean(bounds[1]))
    return mean, classes


def estimate_numbers(
    metric: Metric, first: Floats, second: Floats, rows: int
) -> ValueWithInterval:
    """Return a regression metric with an interval by the delta method.

    first: (4,) and second: (4, 4), sums as in `sum_moments` over ``rows`` examples.
    """
    if not rows:
        return ValueWithInterval(None, None, None)
    means = first / rows
    value = _known(metric.compute(means))
    if value is None or rows < 2:
        return ValueWithInterval(value, None, None)
    covariance = (second / rows - np.outer(means, means)) / (rows - 1)
    slope = _gradient(metric, means)
    variance = float(slope @ covariance @ slope)
    if not math.isfinite(variance):
        return ValueWithInterval(value, None, None)
    width = 1.96 * math.sqrt(max(variance, 0.0))
    return ValueWithInterval(value, value - width, value + width)


def _gradient(metric: Metric, means: Floats) -> Floats:
    """Return the derivative of a metric of means, by central differences."""
    slope = np.zeros(MOMENTS)
    for at in range(MOMENTS):
        step = np.zeros(MOMENTS)
        step[at] = 1e-6 * max(abs(means[at]), 1e-6)
        rise = metric.compute(means + step) - metric.compute(means - step)
        slope[at] = float(rise) / (2 * step[at])
    return slope


def _known(value: Floats | float) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def _mean(values: Floats) -> float | None:
    """Return the mean of the known values, or None without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
