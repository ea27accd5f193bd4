"""What a model scored and how even its labels are: pure functions of labels and counts.

Every function takes tensors, arrays or lists.  Shares and accuracies are fractions in [0, 1];
spreads are percentage points.  A class that cannot be scored is ``None``, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Numbers = ArrayLike | Tensor
"""A tensor, an array or a (nested) list of numbers."""

Floats = NDArray[np.float64]


def _labels(predicted: Numbers, true: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    p, y = np.asarray(predicted, dtype=np.int64), np.asarray(true, dtype=np.int64)
    if p.shape != y.shape or p.ndim != 1:
        raise ValueError(
            f"predictions of shape {p.shape} do not pair with labels of shape "
            f"{y.shape}; give two vectors of one length"
        )
    if not len(y):
        raise ValueError("a score needs at least one row, and there are 0; give a test set")
    return p, y


def _matrix(counts: Numbers) -> Floats:
    n = np.asarray(counts, dtype=np.float64)
    if n.ndim != 2 or (n < 0).any() or not np.isfinite(n).all():
        raise ValueError(
            f"counts of shape {n.shape} are not a sites x classes matrix of "
            "non-negative numbers; give one row per site"
        )
    return n


def _site_shares(counts: Numbers) -> Floats:
    """Class shares of each site that has rows.  counts: (N, C) -> (M, C), M <= N."""
    n = _matrix(counts)
    n = n[n.sum(1) > 0]
    if not len(n):
        raise ValueError(
            "no site holds a row, so no site has class shares; give counts that are not all 0"
        )
    shares: Floats = n / n.sum(1, keepdims=True)
    return shares


def accuracy(predicted: Numbers, true: Numbers) -> float:
    """Share of rows that are right.  predicted, true: (n,) class ids.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    p, y = _labels(predicted, true)
    return float((p == y).mean())


def per_class_accuracy(predicted: Numbers, true: Numbers, classes: int) -> list[float | None]:
    """Accuracy of each class's rows (recall); ``None`` for a class without rows.

    >>> per_class_accuracy([0, 1, 1], [0, 1, 0], classes=3)
    [0.5, 1.0, None]
    """
    p, y = _labels(predicted, true)
    outside = y[(y < 0) | (y >= classes)]
    if len(outside):
        raise ValueError(f"label {outside[0]} is not one of {classes} classes; labels count from 0")
    return [float((p[y == c] == c).mean()) if (y == c).any() else None for c in range(classes)]


def balanced_accuracy(predicted: Numbers, true: Numbers, classes: int) -> float:
    """Mean of the per-class accuracies over the classes that have rows.

    >>> balanced_accuracy([0, 0, 0, 0], [0, 0, 0, 1], classes=3)
    0.5
    """
    return float(
        np.mean([a for a in per_class_accuracy(predicted, true, classes) if a is not None])
    )


def macro_f1(predicted: Numbers, true: Numbers) -> float:
    """Mean F1 over the classes that occur among the labels or the predictions.

    >>> round(macro_f1([0, 0, 1], [0, 1, 1]), 4)
    0.6667
    """
    p, y = _labels(predicted, true)
    seen = np.union1d(p, y)
    return float(
        np.mean([2 * ((p == c) & (y == c)).sum() / ((p == c).sum() + (y == c).sum()) for c in seen])
    )


def class_spread(counts: Numbers) -> list[float]:
    """Spread sigma_c of the class shares over sites, in percentage points.

    counts: (N, C), rows per site and class.  Population standard deviation (divisor N); a site
    without rows is left out (AHFAL, section 3).

    >>> [round(s, 2) for s in class_spread([[8, 1, 1], [2, 5, 3], [0, 4, 6]])]
    [33.99, 17.0, 20.55]
    """
    return [float(s) for s in 100 * _site_shares(counts).std(axis=0)]


def count_variation(counts: Numbers) -> list[float | None]:
    """Coefficient of variation of each class's counts over sites; ``None`` for an absent class.

    >>> count_variation([[4, 1, 0], [0, 1, 0]])
    [1.0, 0.0, None]
    """
    n = _matrix(counts)
    return [float(c.std() / c.mean()) if c.sum() else None for c in n.T]


def high_classes(sigma: Numbers) -> list[bool | None]:
    """The half of the classes that the partition spreads most: True high, False low.

    The floor(C/2) largest spreads are high, the floor(C/2) smallest low, and the middle class of
    an odd C is neither (``None``).  Of equal spreads the smaller class id counts as the lower.

    >>> high_classes([3.0, 1.0, 2.0, 9.0])
    [True, False, False, True]
    >>> high_classes([1.0, 1.0, 1.0])
    [False, None, True]
    """
    order = np.argsort(np.asarray(sigma, dtype=np.float64), kind="stable")
    half = len(order) // 2
    side: list[bool | None] = [None] * len(order)
    for rank, c in enumerate(order):
        side[c] = False if rank < half else True if rank >= len(order) - half else None
    return side


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
    low = [a for a, high in zip(per_class, side, strict=True) if a is not None and high is False]
    top = [a for a, high in zip(per_class, side, strict=True) if a is not None and high is True]
    return Halves(float(np.mean(low)), float(np.mean(top))) if low and top else None


@dataclass(frozen=True)
class Imbalance:
    """How unevenly labels fall on classes (classification metrics of FairFAL, Observation 2).

    ``max_min`` is largest over smallest count (inf when a class is empty), ``entropy`` is divided
    by ln C (1 is even), ``gini`` is 0 when even, ``minority_share`` is the share of the
    ceil(C/2) rarest classes (0.5 when even and C is even).
    """

    max_min: float
    entropy: float
    gini: float
    minority_share: float


def imbalance(counts: Numbers) -> Imbalance:
    """Imbalance of one count vector.  counts: (C,), at least two classes, not all 0.

    >>> imbalance([5, 5, 5, 5])
    Imbalance(max_min=1.0, entropy=1.0, gini=0.0, minority_share=0.5)
    """
    n = np.sort(np.asarray(counts, dtype=np.float64))
    if n.ndim != 1 or len(n) < 2 or n.sum() <= 0 or n[0] < 0:
        raise ValueError(
            f"counts {n.tolist()} have no balance; give at least two classes with a positive total"
        )
    p, size = n / n.sum(), len(n)
    held = p[p > 0]
    gini = 2 * (np.arange(1, size + 1) * p).sum() / size - (size + 1) / size
    return Imbalance(
        max_min=float(n[-1] / n[0]) if n[0] else math.inf,
        entropy=float(-(held * np.log(held)).sum() / math.log(size)),
        gini=max(0.0, float(gini)),
        minority_share=float(p[: math.ceil(size / 2)].sum()),
    )


def kl_to_global(counts: Numbers) -> float:
    """Mean over sites of KL(site's class shares || pooled class shares), in nats.

    counts: (N, C).  A share of 0 adds 0; a site without rows is left out.

    >>> round(kl_to_global([[1, 0], [0, 1]]), 4)
    0.6931
    """
    shares, n = _site_shares(counts), _matrix(counts)
    pooled = n.sum(0) / n.sum()
    ratio = np.divide(shares, pooled, out=np.ones_like(shares), where=shares > 0)
    return abs(float((shares * np.log(ratio)).sum(1).mean()))


def _curve(fractions: Numbers, scores: Numbers) -> tuple[Floats, Floats]:
    x = np.asarray(fractions, dtype=np.float64)
    y = np.asarray(scores, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or not len(x):
        raise ValueError(
            f"{x.size} labelled fractions do not pair with {y.size} scores; give one "
            "score per point of the curve"
        )
    if (np.diff(x) <= 0).any():
        raise ValueError(f"labelled fractions {x.tolist()} do not increase; give one per cycle")
    return x, y


def aulc(fractions: Numbers, scores: Numbers) -> float:
    """Area under the learning curve: trapezoids over the fraction axis, divided by its range.

    In the unit of the scores: a flat curve has its own height as area.

    >>> round(aulc([0.1, 0.2, 0.4], [0.0, 0.6, 0.6]), 4)
    0.5
    """
    x, y = _curve(fractions, scores)
    if len(x) < 2:
        raise ValueError("a curve of 1 point has no area; run at least two cycles")
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def labels_to_reach(fractions: Numbers, scores: Numbers, target: float) -> float | None:
    """Smallest labelled fraction at which the (linearly joined) curve is at ``target``.

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


def labels_saved(curve: Mapping[float, float], baseline: Mapping[float, float]) -> float | None:
    """Share of labels saved on the way to the baseline's final score: 1 - f / f_baseline.

    Both curves map labelled fraction to score, and both f are `labels_to_reach` of the last
    score of ``baseline``.  Negative when more labels were needed; ``None`` when never reached.

    >>> round(labels_saved({0.1: 0.5, 0.2: 0.9}, baseline={0.1: 0.5, 0.2: 0.7}), 4)
    0.25
    """
    target = baseline[max(baseline)]
    f, f0 = (labels_to_reach(list(c), list(c.values()), target) for c in (curve, baseline))
    return None if f is None or f0 is None else 1 - f / f0
