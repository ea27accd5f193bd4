"""Class budgets by the ratio of a class's share at the site to that of all sites."""

from __future__ import annotations

import math
from collections.abc import Sequence

AT_ONCE = 5  # labels for a class without any
FEW = 3  # a smaller rest is distributed one by one


def ratios(n_labeled: Sequence[int], shares: Sequence[float]) -> list[float]:
    """Return the share of a class among the site's labels over that of the federation.

    It is 0 at a site without labels, and infinite for a class that no other site has.

    >>> ratios([0, 10, 30], [0.5, 0.25, 0.25])
    [0.0, 1.0, 3.0]
    """
    total = sum(n_labeled)
    if not total:
        return [0.0] * len(n_labeled)
    result = []
    for n, share in zip(n_labeled, shares, strict=True):
        if share:
            result.append(n / total / share)
        else:
            result.append(math.inf)
    return result


def allocate(
    n: int, n_labeled: Sequence[int], shares: Sequence[float], present: Sequence[bool]
) -> list[int]:
    """Distribute ``n`` labels over the classes that are ``present`` in the pool (at least
    one).

    n_labeled: labels of the site per class; shares: of each class over the federation,
    summing to 1.

    The arithmetic follows the public code step by step in double precision, also for ties
    of exact numbers.  It multiplies a class's share of the site's labels by their number,
    which may differ from the count, and rounds without a tolerance.

    >>> allocate(20, [5, 10, 85], [1 / 3] * 3, [True] * 3)
    [12, 6, 2]
    """
    classes = [c for c, is_there in enumerate(present) if is_there]
    missing = [c for c in classes if n_labeled[c] == 0]
    ratio = ratios(n_labeled, shares)
    future = sum(n_labeled) + n
    counts = _counts(n_labeled)
    if missing and len(missing) <= n:
        quota = _missing_first(n, ratio, classes, missing)
    else:
        quota = [0 for _ in n_labeled]
        for c in classes:
            quota[c] = max(0, math.ceil(shares[c] * future - counts[c]))
    if sum(quota) > n:
        quota = _in_steps(n, ratio, classes)
    while sum(quota) < n:

        def filling(c: int) -> float:
            wanted = future * shares[c]
            if wanted <= 0:
                return math.inf
            return (counts[c] + quota[c]) / wanted

        for c in sorted(classes, key=filling)[: n - sum(quota)]:
            quota[c] += 1
    return quota


def _counts(n_labeled: Sequence[int]) -> list[float]:
    """Return the labels per class as in the public code: their share times the total."""
    total = sum(n_labeled)
    if total == 0:
        return [0.0] * len(n_labeled)
    return [count / total * total for count in n_labeled]


def _missing_first(
    n: int, ratio: Sequence[float], classes: Sequence[int], missing: Sequence[int]
) -> list[int]:
    """Give some labels to each class without any, and the rest to small ratios, rounded
    down.
    """
    quota = [0 for _ in ratio]
    for c in missing:
        quota[c] = min(AT_ONCE, n // len(missing))
    rest = n - sum(quota)
    weight = {}
    total = 0.0  # added one by one: sum() rounds differently from Python 3.12 on
    for c in classes:
        weight[c] = 100.0
        if ratio[c] > 0:
            weight[c] = 1 / (ratio[c] + 0.01)
        total += weight[c]
    if total == 0:
        return quota
    for c in classes:
        quota[c] += math.floor(rest * weight[c] / total)
    return quota


def _in_steps(n: int, ratio: Sequence[float], classes: Sequence[int]) -> list[int]:
    """Give fixed portions of the rest, by ascending ratio.

    As in the public code, the portion of a class replaces a single label that it received
    before. `allocate` distributes such labels again.
    """
    quota = [0 for _ in ratio]
    left = n
    order = sorted(classes, key=lambda c: ratio[c])
    for c in order:
        if not left:
            break
        quota[c] = min(left, max(1, math.ceil(left * _portion(ratio[c]))))
        left -= quota[c]
        if 0 < left <= FEW:
            for k in order[:left]:
                quota[k] += 1
            left -= min(left, len(order))
    return quota


def _portion(ratio: float) -> float:
    """Return the fraction of the rest for a class at this ratio of its share."""
    if ratio < 0.5:
        return 0.5
    if ratio < 0.8:
        return 0.3
    return 0.2


def spill(
    n: int,
    quota: Sequence[int],
    n_labeled: Sequence[int],
    shares: Sequence[float],
    caps: Sequence[int],
) -> list[int]:
    """Limit ``quota`` to ``caps``; the excess fills the open classes one after another, by
    ratio.

    >>> spill(9, [6, 2, 1], [1, 5, 9], [1 / 3] * 3, [2, 4, 30])
    [2, 4, 3]
    """
    filled = [min(q, cap) for q, cap in zip(quota, caps, strict=True)]
    ratio = ratios(n_labeled, shares)
    for c in sorted(range(len(caps)), key=lambda c: ratio[c]):
        filled[c] += min(n - sum(filled), caps[c] - filled[c])
    return filled
