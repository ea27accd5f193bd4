"""Selection of the n best scores, and division of label budgets over classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def require_finite(
    is_finite: Tensor,
    what: str = "the features of all {n} examples",
    wrong: str = "NaN or infinite",
) -> None:
    """Raise ValueError if no example is finite.  is_finite: (n,)

    A query strategy must not become random sampling unnoticed.
    """
    if not bool(is_finite.any()):
        raise ValueError(
            f"{what.format(n=len(is_finite))} are {wrong}: the model has diverged; lower the "
            "learning rate or check the examples"
        )


ALL_SCORES = "all {n} scores"


def rank_rows(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Rank positions by descending score; ties in random order from ``generator``.  (n,) -> (n,).

    NaN and infinities are ranked last.  Raises ValueError if nothing is finite.
    """
    if not len(scores):
        return torch.empty(0, dtype=torch.int64)
    good = scores.isfinite()
    require_finite(good, ALL_SCORES)
    mixed = torch.randperm(len(scores), generator=generator)
    scores = scores.masked_fill(~good, -torch.inf)
    return mixed[scores[mixed].argsort(descending=True, stable=True)]


def top(scores: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Return positions of the ``min(n, len)`` largest scores, best first.

    >>> top(torch.tensor([0.1, 0.9, float("nan"), 0.5]), 2, torch.Generator())
    tensor([1, 3])
    """
    return rank_rows(scores, generator)[:n]


def order_ties(n: int, generator: torch.Generator | None) -> Tensor:
    """Return the order of ties, (n,): by position without a generator."""
    if generator is None:
        return torch.arange(n)
    return torch.randperm(n, generator=generator)


def first_best(scores: Tensor, order: Tensor, tolerance: float = 0.0) -> int:
    """Return the position of the largest score; ties by ``order`` (`order_ties`).

    tolerance: relative difference below which scores are equal.

    >>> scores = torch.tensor([1.0, 3 - 1e-12, 3.0], dtype=torch.float64)
    >>> first_best(scores, torch.arange(3), 1e-10), first_best(scores, torch.arange(3))
    (1, 2)
    """
    largest = scores.max()
    least = largest
    if tolerance:
        least = largest - tolerance * largest.abs()
    rows = (scores >= least).nonzero()[:, 0]
    if not len(rows):  # NaN, which is neither larger nor smaller
        return int(scores.argmax())
    return int(rows[order[rows].argmin()])


def shuffle_equal(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Return all positions, (n,), in order, but shuffled among equal scores.

    >>> scores = torch.tensor([5.0, 7.0, 6.0])
    >>> shuffle_equal(scores, torch.Generator())  # no two are equal
    tensor([0, 1, 2])
    """
    mixed = torch.randperm(len(scores), generator=generator)
    by_position = scores.argsort(stable=True)
    order = torch.empty_like(mixed)
    order[by_position] = mixed[scores[mixed].argsort(stable=True)]
    return order


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
