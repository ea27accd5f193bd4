"""Bounded weights of sites in an average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

FEW = 3
"""Minimum number of sites for the detection of outliers."""


def lower_median(values: Iterable[float]) -> float:
    """Return the lower median of the positive values; 0 if there are none.

    >>> lower_median([0.0, 9.0, 1.0]), lower_median([])
    (1.0, 0.0)
    """
    result = sorted(value for value in values if value > 0)
    if not result:
        return 0.0
    return result[(len(result) - 1) // 2]


def cap_weights(weights: Sequence[float], share: float, ratio: float) -> list[float]:
    """Cap weights at a ``share`` of the total and at ``ratio`` times the median.

    Weights of 0 and those of two sites are unchanged.

    >>> cap_weights([4.0, 4.0, 1000.0], 0.5, 10.0), cap_weights([4.0, 1000.0], 0.5, 10.0)
    ([4.0, 4.0, 8.0], [4.0, 1000.0])
    >>> cap_weights([1.0, 2.0, 3.0], 0.25, 10.0)
    [1.0, 1.0, 1.0]
    """
    counted = sorted(weight for weight in weights if weight > 0)
    if len(counted) < FEW:
        return list(weights)
    limit = ratio * lower_median(counted)
    limit = min(limit, _most_by_share([min(n, limit) for n in counted], share))
    return [min(weight, limit) for weight in weights]


def _most_by_share(ascending: Sequence[float], share: float) -> float:
    """Return the cap so that no weight exceeds a share of the new total.

    It is the smallest weight if there are too few sites for such a share.
    """
    for larger in range(len(ascending)):  # number of capped sites
        left = 1.0 - larger * share
        if left <= 0:
            break
        rest = math.fsum(ascending[: len(ascending) - larger])
        limit = share * rest / left  # solution of most = share * (rest + larger * most)
        if limit >= ascending[-1 - larger]:
            return limit
    return ascending[0]
