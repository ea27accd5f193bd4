"""Budgets over classes: whole numbers in given proportions, within capacities."""

from __future__ import annotations

import torch
from torch import Tensor


def apportion(n: int, weight: Tensor) -> Tensor:
    """``n`` units in proportion to ``weight`` by largest remainders.  (C,) -> (C,) int64.

    Ties go to the larger weight, then to the lower class.  Remainders are compared after rounding
    to 1e-9: exact ties must not be broken by floating-point noise.

    >>> apportion(7, torch.tensor([1.0, 1.0, 1.0]))
    tensor([3, 2, 2])
    """
    share = n * weight.double() / weight.double().sum()
    base = (share + 1e-9).floor()
    rest = ((share - base) * 1e9).round()
    keys = zip((-rest).tolist(), (-weight.double()).tolist(), range(len(weight)), strict=True)
    first = [c for *_, c in sorted(keys)][: int(n - base.sum())]
    base[first] += 1
    return base.long()


def fill(n: int, weight: Tensor, caps: Tensor) -> Tensor:
    """`apportion` within ``caps`` (C,): what a class cannot take goes to the open classes in the
    same proportions.  The result sums to ``min(n, caps.sum())``.

    >>> fill(10, torch.tensor([1.0, 1.0, 0.5, 0.25]), torch.tensor([3, 100, 100, 100]))
    tensor([3, 4, 2, 1])
    """
    weight = weight.double()
    quota = torch.minimum(apportion(n, weight), caps)
    while (missing := min(n, int(caps.sum())) - int(quota.sum())) > 0:
        room = caps - quota
        share = weight * (room > 0)
        if not bool(share.any()):  # only classes of weight 0 have room left
            share = (room > 0).double()
        quota = quota + torch.minimum(apportion(missing, share), room)  # closes a class, or ends
    return quota
