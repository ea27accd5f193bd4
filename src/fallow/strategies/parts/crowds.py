"""How typical rows are of the clusters that all sites share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fallow.strategies.parts.bundles import nearest_center
from fallow.strategies.parts.covering import members
from fallow.strategies.parts.density import typicality
from fallow.strategies.parts.top import order_ties

CROWD = (
    1000  # rows of a cluster, the nearest to its center, that are looked at for typicality
)


class Crowds(NamedTuple):
    """cluster: (m,) whose center is the nearest, -1 of a row that is not finite; score: (m,) how
    typical each row is of it, NaN of such a row; far: (m,) its squared distance from that
    center, infinite of such a row."""

    cluster: Tensor
    score: Tensor
    far: Tensor


def rank_in_clusters(
    x: Tensor,
    good: Tensor,
    centers: Tensor,
    *,
    neighbors: int,
    ties: torch.Generator | None = None,
    most: int = CROWD,
) -> Crowds:
    """The cluster of each row and 1 / its mean distance to the ``neighbors`` nearest rows of it.

    x: (m, D); good: positions of the rows that are finite; centers: (K, D).  Of a cluster of more
    than ``most`` rows those nearest to the center are compared, of equally near ones some that
    ``ties`` draws; others score 0.

    >>> x = torch.tensor([[0.0], [1.0], [3.0], [9.0]])
    >>> centers = torch.tensor([[1.0], [9.0]])
    >>> found = rank_in_clusters(x, torch.arange(4), centers, neighbors=2)
    >>> found.cluster.tolist(), found.score[:3]  # distances 1, 3; 1, 2; 2, 3
    ([0, 0, 0, 1], tensor([0.5000, 0.6667, 0.4000]))
    """
    near = nearest_center(x[good], centers)
    order = order_ties(len(x), ties)
    cluster = torch.full((len(x),), -1, dtype=torch.int64)
    cluster[good] = near
    score = torch.full((len(x),), torch.nan)
    far = torch.full((len(x),), torch.inf, dtype=x.dtype)  # from the center
    for c, rows in enumerate(members(near)):
        if not len(rows):
            continue
        rows = good[rows]
        far[rows] = (x[rows] - centers[c].to(x.dtype)).square().sum(1)
        rows = rows[order[rows].argsort()]
        crowd = rows[far[rows].argsort(stable=True)[:most]].sort().values
        score[rows] = 0.0  # outside the crowd: less typical than any in it
        score[crowd] = typicality(x[crowd], neighbors).float()
    return Crowds(cluster, score, far)
