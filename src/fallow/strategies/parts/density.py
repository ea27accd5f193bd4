"""Density of examples in feature space."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.core.products import block_rows, to_device
from fallow.strategies.parts.kcenter import CHUNK, EXACT
from fallow.strategies.parts.magnitude import within_reach

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
