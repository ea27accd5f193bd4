"""Typicality of examples in clusters that all sites share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fallow.strategies.parts.bundles import nearest_center
from fallow.strategies.parts.covering import members
from fallow.strategies.parts.density import typicality
from fallow.strategies.parts.top import order_ties

CROWD = 1000  # maximum number of examples of a cluster that are compared


class Crowds(NamedTuple):
    """Nearest cluster, typicality and distance of each example.

    cluster: (m,), -1 for a non-finite example; score: (m,) typicality, NaN for it; far: (m,)
    squared distance from the center, infinite for it.
    """

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
    """Assign examples to clusters, with 1 / their mean distance to ``neighbors`` of the cluster.

    x: (m, D); good: positions of finite examples; centers: (K, D).  In a cluster of more than
    ``most`` examples, those nearest to the center are compared (ties: drawn by ``ties``); others
    score 0.

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
        score[rows] = 0.0  # not compared: less typical than any other
        score[crowd] = typicality(x[crowd], neighbors).float()
    return Crowds(cluster, score, far)
