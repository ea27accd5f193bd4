"""k-means++ seeding: picks that are far from each other, with chance."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.queries.parts.kcenter import Points


def k_means_pp(points: Points, n: int, generator: torch.Generator) -> Tensor:
    """``n`` rows: the first has the largest norm, each next is drawn in proportion to its squared
    distance to the nearest pick (Arthur, Vassilvitskii, 2007).

    A pick has distance 0 from then on.  Where all distances are 0, rows are drawn uniformly.
    """
    left = points.half_norms().clone()
    picks = [int(left.argmax())] if n > 0 and len(left) else []
    is_free = torch.ones(len(left), dtype=torch.bool)
    is_free[picks] = False
    left = torch.full_like(left, torch.inf)
    while 0 < len(picks) < min(n, len(left)):
        torch.minimum(left, points.to(picks[-1]), out=left)
        left[~is_free] = 0
        mass = left.double().clamp_min(0)
        mass = mass if float(mass.sum()) > 0 else is_free.double()
        ends = mass.cumsum(0)
        draw = torch.rand(1, generator=generator, dtype=torch.float64) * ends[-1]
        j = int(torch.searchsorted(ends, draw, right=True).clamp_max(len(ends) - 1))
        j = j if is_free[j] else int(mass.argmax())  # the draw fell on the very end
        is_free[j] = False
        picks.append(j)
    return torch.tensor(picks, dtype=torch.int64)
