"""K-means++ seeding: random selection of distant examples."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.strategies.parts.kcenter import Points


def k_means_pp(
    points: Points, n: int, generator: torch.Generator, first: int | None = None
) -> Tensor:
    """Select ``n`` examples by k-means++ (Arthur, Vassilvitskii, 2007).

    The first is ``first``, or has the largest norm; each next is drawn in proportion to its squared
    distance to the nearest selected one.  Selected examples have distance 0.  If all distances are
    0, examples are drawn uniformly.  Non-finite examples are last, in order.
    """
    half = points.half_norms()
    is_last = half.isinf()
    is_free = ~is_last
    left = torch.full_like(half, torch.inf).masked_fill(is_last, 0)
    picks: list[int] = []
    for _ in range(min(n, int(is_free.sum()))):
        if not picks and first is not None:
            j = first
        elif not picks:
            j = int(half.masked_fill(is_last, -1).argmax())
        else:
            torch.minimum(left, points.to(picks[-1]), out=left)
            left[picks[-1]] = 0
            j = draw_row(left, is_free, generator)
        is_free[j] = False
        picks.append(j)
    last = is_last.nonzero().squeeze(1)
    return torch.cat([torch.tensor(picks, dtype=torch.int64), last])[:n]


def draw_row(mass: Tensor, is_free: Tensor, generator: torch.Generator) -> int:
    """Draw an example in proportion to ``mass`` (m,), which is 0 for examples that are not free."""
    ends = mass.cumsum(0, dtype=torch.float64)
    if not ends[-1] > 0:
        ends = is_free.cumsum(0, dtype=torch.float64)
    u = torch.rand(1, generator=generator, dtype=torch.float64)
    return int(torch.searchsorted(ends / ends[-1], u, right=True))  # u < 1 = the last end
