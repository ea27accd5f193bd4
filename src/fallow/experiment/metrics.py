"""Metrics: pure functions of predictions, labels and learning curves.

All functions take tensors, arrays or lists. Accuracies are fractions in [0, 1]. A class that cannot
be scored is ``None``, never 0. For class imbalance, see `fallow.experiment.metrics_counts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fallow.experiment.metrics_counts import Floats, Numbers, high_classes


def _check_labels(
    predicted: Numbers, true: Numbers
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both as vectors of class ids, (n,).  Raises ValueError unless they pair."""
    p = np.asarray(predicted, dtype=np.int64)
    y = np.asarray(true, dtype=np.int64)
    if p.shape != y.shape or p.ndim != 1:
        raise ValueError(
            f"predictions of shape {p.shape} do not pair with labels of shape "
            f"{y.shape}; give two vectors of one length"
        )
    if not len(y):
        raise ValueError("a score needs at least one row, and there are 0; give a test set")
    return p, y


def accuracy(predicted: Numbers, true: Numbers) -> float:
    """Share of rows that are right.  predicted, true: (n,) class ids.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    p, y = _check_labels(predicted, true)
    return float((p == y).mean())


def per_class_accuracy(
    predicted: Numbers, true: Numbers, classes: int
) -> list[float | None]:
    """Accuracy of each class's rows (recall); ``None`` for a class without rows.

    >>> per_class_accuracy([0, 1, 1], [0, 1, 0], classes=3)
    [0.5, 1.0, None]
    """
    p, y = _check_labels(predicted, true)
    outside = y[(y < 0) | (y >= classes)]
    if len(outside):
        raise ValueError(
            f"label {outside[0]} is not one of {classes} classes; labels count from 0"
        )
    scores: list[float | None] = []
    for c in range(classes):
        guesses = p[y == c]  # for the rows that are of this class
        score = None
        if len(guesses):
            score = float((guesses == c).mean())
        scores.append(score)
    return scores


def balanced_accuracy(predicted: Numbers, true: Numbers, classes: int) -> float:
    """Mean of the per-class accuracies over the classes that have rows.

    >>> balanced_accuracy([0, 0, 0, 0], [0, 0, 0, 1], classes=3)
    0.5
    """
    per_class = per_class_accuracy(predicted, true, classes)
    scored = [score for score in per_class if score is not None]
    return float(np.mean(scored))


@dataclass(frozen=True)
class Halves:
    """Mean accuracy of the low- and the high-variance classes, and their gap (low - high)."""

    low: float
    high: float

    @property
    def gap(self) -> float:
        """Positive when the classes that sites hold unevenly are learned worse."""
        return self.low - self.high


def variance_gap(per_class: Sequence[float | None], sigma: Numbers) -> Halves | None:
    """Accuracy of the classes split at the median spread of the *partition* (`high_classes`).

    per_class: (C,) accuracies, ``None`` where absent (left out of its half's mean); sigma: (C,).
    ``None`` when a half has no class that was scored.  AHFAL prints the gap without its split.

    >>> round(variance_gap([0.9, 0.5, 0.8, 0.6], [1, 9, 2, 8]).gap, 2)
    0.3
    """
    side = high_classes(sigma)
    if len(side) != len(per_class):
        raise ValueError(
            f"{len(per_class)} class accuracies do not pair with {len(side)} spreads; "
            "give one of each per class"
        )
    low = []
    high = []
    for score, is_high in zip(per_class, side, strict=True):
        if (
            score is None or is_high is None
        ):  # no rows, or the middle class of an odd number
            continue
        if is_high:
            high.append(score)
        else:
            low.append(score)
    if not low or not high:
        return None
    return Halves(low=float(np.mean(low)), high=float(np.mean(high)))


def _curve(fractions: Numbers, scores: Numbers) -> tuple[Floats, Floats]:
    x = np.asarray(fractions, dtype=np.float64)
    y = np.asarray(scores, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or not len(x):
        raise ValueError(
            f"{x.size} labeled fractions do not pair with {y.size} scores; give one "
            "score per point of the curve"
        )
    if (np.diff(x) <= 0).any():
        raise ValueError(
            f"labeled fractions {x.tolist()} do not increase; give one per cycle"
        )
    return x, y


def aulc(
    fractions: Numbers, scores: Numbers, within: tuple[float, float] | None = None
) -> float:
    """Area under the learning curve: trapezoids over the fraction axis, divided by its range.

    In the unit of the scores: a flat curve has its own height as area.  ``within``: the part of the
    axis that counts, inside the curve's; whole by default.

    >>> round(aulc([0.1, 0.2, 0.4], [0.0, 0.6, 0.6]), 4)
    0.5
    """
    x, y = _curve(fractions, scores)
    if len(x) < 2:
        raise ValueError("a curve of 1 point has no area; run at least two cycles")
    low, high = within or (x[0], x[-1])
    if not x[0] <= low < high <= x[-1]:
        raise ValueError(
            f"the part {low} to {high} is not inside the curve's, {x[0]} to {x[-1]}"
        )
    inside = np.unique(np.concatenate([[low], x[(x > low) & (x < high)], [high]]))
    return float(np.trapezoid(np.interp(inside, x, y), inside) / (high - low))


def labels_to_reach(fractions: Numbers, scores: Numbers, target: float) -> float | None:
    """Smallest labeled fraction at which the (linearly joined) curve is at ``target``.

    ``None`` when it never is; the first fraction when it starts there.  For errors, negate
    scores and target.

    >>> round(labels_to_reach([0.1, 0.2, 0.3], [0.5, 0.7, 0.9], target=0.8), 4)
    0.25
    """
    x, y = _curve(fractions, scores)
    if y[0] >= target:
        return float(x[0])
    for i in range(1, len(x)):
        if y[i] >= target:
            part = (target - y[i - 1]) / (y[i] - y[i - 1])
            return float(x[i - 1] + part * (x[i] - x[i - 1]))
    return None


def labels_saved(
    curve: Mapping[float, float], baseline: Mapping[float, float]
) -> float | None:
    """Share of labels saved on the way to the baseline's final score: 1 - f / f_baseline.

    Both curves map labeled fraction to score, and both f are `labels_to_reach` of the last
    score of ``baseline``.  Negative when more labels were needed; ``None`` when never reached.

    >>> round(labels_saved({0.1: 0.5, 0.2: 0.9}, baseline={0.1: 0.5, 0.2: 0.7}), 4)
    0.25
    """
    target = baseline[max(baseline)]
    needed = labels_to_reach(list(curve), list(curve.values()), target)
    needed_by_baseline = labels_to_reach(list(baseline), list(baseline.values()), target)
    if needed is None or needed_by_baseline is None:
        return None
    return 1 - needed / needed_by_baseline
