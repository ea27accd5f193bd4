"""Typicality: density of examples in feature space, and in clusters that all sites share."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.products import block_rows, to_device
from fallow.strategies.parts.bundles import nearest_center
from fallow.strategies.parts.kcenter import CHUNK, EXACT, within_reach
from fallow.strategies.parts.top import order_ties

NEIGHBORS = 20  # as in Hacohen et al. (2022)
APART = 1e-5  # distance of duplicates, for a finite density


def typicality(x: Tensor, k: int = NEIGHBORS) -> Tensor:
    """Return 1 / the mean distance to the ``k`` nearest others (Hacohen et al., 2022, Eq. 4).

    x: (m, d) -> (m,).  Fewer examples have fewer neighbors; a single example scores 0.  A
    non-finite example scores NaN and is not a neighbor.  Very large values are scaled, which
    preserves the ranking.  Scores have single precision: two examples that are each other's only
    neighbors are equally typical, and rounding must not rank them.

    >>> typicality(torch.tensor([[0.0], [1.0], [3.0]]), k=2)  # distances 1, 3; 1, 2; 2, 3
    tensor([0.5000, 0.6667, 0.4000])
    """
    score = torch.full((len(x),), torch.nan, dtype=x.dtype)
    good = x.isfinite().all(1)
    score[good] = _density(x[good], k)
    return score


def _density(x: Tensor, k: int) -> Tensor:
    k = min(k, len(x) - 1)
    if k < 1:
        return x.new_zeros(len(x))
    y = x
    if len(x) < EXACT:
        y = x.double()
    y = within_reach(y, y.dtype)
    y = to_device(y - y.mean(0))  # centering reduces rounding of squares
    half = y.square().sum(1) / 2
    scores = []
    first = 0  # position of the first example of the block
    size = block_rows(CHUNK, len(y))
    for block, own in zip(torch.split(y, size), torch.split(half, size), strict=True):
        far = torch.addmm(half, block, y.T, alpha=-1)
        far = far.add_(own[:, None])  # (b, m) half squared distances
        at = torch.arange(len(block))
        far[at, first + at] = torch.inf  # not its own neighbor, but its duplicates are
        near = far.topk(k, 1, largest=False).values.clamp_min(0)
        scores.append(1 / ((2 * near).sqrt().mean(1) + APART))
        first += len(block)
    return torch.cat(scores).float().to(x)


def members(cluster: Tensor) -> list[Tensor]:
    """Return the examples of each cluster, ascending; ``cluster``: (m,)."""
    return list(torch.split(cluster.argsort(stable=True), torch.bincount(cluster).tolist()))


def cover(cluster: Tensor, score: Tensor, n: int) -> Tensor:
    """Select ``n`` examples of the pool one by one.

    Each is the one with the best score in the largest cluster among those with the fewest labeled
    and selected examples.  cluster: (m + l,) of the pool, then of labeled examples; score: (m,).

    >>> cluster = torch.tensor([0, 0, 0, 1, 1, 2, 0])  # the last row is labeled
    >>> cover(cluster, torch.tensor([3.0, 2.0, 1.0, 4.0, 5.0, 6.0]), 4)
    tensor([4, 5, 0, 3])
    """
    size = torch.bincount(cluster).tolist()
    labels = torch.bincount(cluster[len(score) :], minlength=len(size)).tolist()
    best = score.argsort(descending=True, stable=True)
    waiting = []  # examples of each cluster, the best one last, for pop
    for rows in members(cluster[best]):
        waiting.append(best[rows].tolist()[::-1])
    line = [(labels[c], -size[c], c) for c, rows in enumerate(waiting) if rows]
    heapify(line)  # the fewest labels first, then the largest cluster
    selected: list[int] = []
    while line and len(selected) < n:
        covered, *_, c = heappop(line)
        selected.append(waiting[c].pop())
        if waiting[c]:
            heappush(line, (covered + 1, -size[c], c))
    return torch.tensor(selected, dtype=torch.int64)


CROWD = 1000  # maximum number of examples of a cluster that are compared


class ClusterRanking(NamedTuple):
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
    limit: int = CROWD,
) -> ClusterRanking:
    """Assign examples to clusters, with 1 / their mean distance to ``neighbors`` of the cluster.

    x: (m, D); good: positions of finite examples; centers: (K, D).  In a cluster of more than
    ``limit`` examples, those nearest to the center are compared (ties: drawn by ``ties``); others
    score 0.

    >>> x = torch.tensor([[0.0], [1.0], [3.0], [9.0]])
    >>> centers = torch.tensor([[1.0], [9.0]])
    >>> order = rank_in_clusters(x, torch.arange(4), centers, neighbors=2)
    >>> order.cluster.tolist(), order.score[:3]  # distances 1, 3; 1, 2; 2, 3
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
        crowd = rows[far[rows].argsort(stable=True)[:limit]].sort().values
        score[rows] = 0.0  # not compared: less typical than any other
        score[crowd] = typicality(x[crowd], neighbors).float()
    return ClusterRanking(cluster, score, far)
