"""Division of label budgets over classes, in proportion and within capacities."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def apportion(n: int, weight: Tensor) -> Tensor:
    """Divide ``n`` in proportion to ``weight`` by largest remainders.  (C,) -> (C,) int64.

    Ties go to the larger weight, then to the lower class.  Remainders are compared after rounding
    to 1e-9, so rounding errors do not break exact ties.  Raises ValueError for weights that are
    negative, not finite or all zero.

    >>> apportion(7, torch.tensor([1.0, 1.0, 1.0]))
    tensor([3, 2, 2])
    """
    weight = weight.double()
    if not bool((weight >= 0).all()) or not 0 < float(weight.sum()) < math.inf:
        raise ValueError(
            f"weights {weight.tolist()} give no proportions: they must be finite, 0 or more, and "
            "not all 0"
        )
    share = n * weight / weight.sum()
    base = (share + 1e-9).floor()
    rest = ((share - base) * 1e9).round()

    # the largest remainder first, then the larger weight, then the lower class
    keys = zip((-rest).tolist(), (-weight).tolist(), range(len(weight)), strict=True)
    order = [c for _, _, c in sorted(keys)]
    missing = int(n - base.sum())
    base[order[:missing]] += 1
    return base.long()


def fill(n: int, weight: Tensor, caps: Tensor) -> Tensor:
    """Run `apportion` within ``caps`` (C,), and divide the excess over open classes.

    A class of weight 0 gets the remainder.  The result sums to ``min(n, caps.sum())``.

    >>> fill(10, torch.tensor([1.0, 1.0, 0.5, 0.25]), torch.tensor([3, 100, 100, 100]))
    tensor([3, 4, 2, 1])
    """
    quota = torch.zeros_like(caps)
    share = weight
    missing = min(n, int(caps.sum()))
    total = missing
    while missing > 0:  # each turn closes a class, or is the last
        if not bool(share.any()):  # only classes of weight 0 have room left
            share = (quota < caps).double()
        quota = torch.minimum(quota + apportion(missing, share), caps)
        share = weight * (quota < caps)
        missing = total - int(quota.sum())
    return quota
