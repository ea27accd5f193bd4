"""Imbalance of classes over sites and labels, computed from counts.

Every function takes tensors, arrays or lists of counts; matrices have sites as rows and
classes as columns. Spreads are in percentage points, divergences in nats. A class that no
site has is ``None``, never 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Numbers = ArrayLike | Tensor
"""A tensor, an array or a (nested) list of numbers."""

Floats = NDArray[np.float64]


def _matrix(counts: Numbers) -> Floats:
    return np.asarray(counts, dtype=np.float64)


def _site_shares(counts: Numbers) -> Floats:
    """Return class shares of each site with examples. counts: (N, C) -> (M, C), 1 <= M <= N."""
    n = _matrix(counts)
    n = n[n.sum(1) > 0]
    shares: Floats = n / n.sum(1, keepdims=True)
    return shares


def class_spread(counts: Numbers) -> list[float]:
    """Return the spread sigma_c of the class shares over sites, in percentage points.

    counts: (N, C), examples per site and class.  The spread is the population standard
    deviation (divisor N) over sites with examples (AHFAL, section 3).

    >>> [round(s, 2) for s in class_spread([[8, 1, 1], [2, 5, 3], [0, 4, 6]])]
    [33.99, 17.0, 20.55]
    """
    return [float(s) for s in 100 * _site_shares(counts).std(axis=0)]


def count_variation(counts: Numbers) -> list[float | None]:
    """Return the coefficient of variation of each class over sites; ``None`` for an absent
    class.

    >>> count_variation([[4, 1, 0], [0, 1, 0]])
    [1.0, 0.0, None]
    """
    variations: list[float | None] = []
    for of_class in _matrix(counts).T:  # (N,), one count a site
        variation = None
        if of_class.sum():
            variation = float(of_class.std() / of_class.mean())
        variations.append(variation)
    return variations


def high_classes(sigma: Numbers) -> list[bool | None]:
    """Return which classes have a high spread in the partition: True high, False low.

    The floor(C/2) largest spreads are high, and the floor(C/2) smallest are low.  The
    middle class of an odd C is neither (``None``).  Ties are ordered by class id.

    >>> high_classes([3.0, 1.0, 2.0, 9.0])
    [True, False, False, True]
    >>> high_classes([1.0, 1.0, 1.0])
    [False, None, True]
    """
    order = np.argsort(np.asarray(sigma, dtype=np.float64), kind="stable")  # class ids
    half = len(order) // 2
    side: list[bool | None] = [None] * len(order)
    for c in order[:half]:
        side[c] = False
    for c in order[len(order) - half :]:
        side[c] = True
    return side


@dataclass(frozen=True)
class Imbalance:
    """Class imbalance of labels (classification metrics of FairFAL, Observation 2).

    ``max_min`` is the ratio of the largest to the smallest count (inf if a class is empty).
    ``entropy`` is divided by ln C (1 is even).  ``gini`` is 0 for equal counts.
    ``minority_share`` is the share of the ceil(C/2) rarest classes (0.5 for equal counts
    and even C).
    """

    max_min: float
    entropy: float
    gini: float
    minority_share: float


def imbalance(counts: Numbers) -> Imbalance:
    """Compute the imbalance of one count vector.  counts: (C,), at least two classes, not
    all 0.

    >>> imbalance([5, 5, 5, 5])
    Imbalance(max_min=1.0, entropy=1.0, gini=0.0, minority_share=0.5)
    """
    n = np.sort(np.asarray(counts, dtype=np.float64))
    size = len(n)
    p = n / n.sum()  # (C,), the rarest class first
    max_min = math.inf
    if n[0]:
        max_min = float(n[-1] / n[0])
    positive = p[p > 0]  # 0 log 0 is 0
    entropy = float(-(positive * np.log(positive)).sum() / math.log(size))
    ranks = np.arange(1, size + 1)
    gini = 2 * (ranks * p).sum() / size - (size + 1) / size
    return Imbalance(
        max_min=max_min,
        entropy=entropy,
        gini=max(0.0, float(gini)),  # rounding may take it below
        minority_share=float(p[: math.ceil(size / 2)].sum()),
    )


def kl_to_global(counts: Numbers) -> float:
    """Return the mean over sites of KL(site's class shares || pooled class shares), in
    nats.

    counts: (N, C).  A share of 0 adds 0, and sites without examples are excluded.

    >>> round(kl_to_global([[1, 0], [0, 1]]), 4)
    0.6931
    """
    shares = _site_shares(counts)
    n = _matrix(counts)
    pooled = n.sum(0) / n.sum()
    ratio = np.divide(shares, pooled, out=np.ones_like(shares), where=shares > 0)
    return abs(float((shares * np.log(ratio)).sum(1).mean()))


def total_variation(counts: Numbers) -> float:
    """Return the mean over sites of the total variation of class shares to the pooled ones.

    It is the fraction of a site's examples that would have to change their class.

    counts: (N, C); sites without examples are excluded.  The result is 0 for equal sites,
    and always below 1.

    >>> total_variation([[1, 0], [0, 1]])
    0.5
    """
    shares = _site_shares(counts)
    n = _matrix(counts)
    pooled = n.sum(0) / n.sum()
    return float(np.abs(shares - pooled).sum(1).mean() / 2)


def empty_cells(counts: Numbers) -> int:
    """Return the number of (site, class) pairs without an example.  counts: (N, C).

    >>> empty_cells([[4, 0], [0, 0]])
    3
    """
    return int((_matrix(counts) == 0).sum())
