"""Selection of the best example of the largest cluster with the fewest labels."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import torch
from torch import Tensor


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
    picks: list[int] = []
    while line and len(picks) < n:
        covered, *_, c = heappop(line)
        picks.append(waiting[c].pop())
        if waiting[c]:
            heappush(line, (covered + 1, -size[c], c))
    return torch.tensor(picks, dtype=torch.int64)
