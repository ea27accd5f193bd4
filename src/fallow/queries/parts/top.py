"""The n best of many scores."""

from __future__ import annotations

import torch
from torch import Tensor


def rank_rows(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Positions by descending score; ties in random order from ``generator``.  (n,) -> (n,).

    NaN and infinities come last.  Raises ValueError when nothing is finite: a strategy must not
    turn into random picks unnoticed.
    """
    if not len(scores):
        return torch.empty(0, dtype=torch.int64)
    good = scores.isfinite()
    if not bool(good.any()):
        raise ValueError(
            f"all {len(scores)} scores are NaN or infinite: the model has diverged; lower the "
            "learning rate or check the rows"
        )
    mixed = torch.randperm(len(scores), generator=generator)
    scores = scores.masked_fill(~good, -torch.inf)
    return mixed[scores[mixed].argsort(descending=True, stable=True)]


def top(scores: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Positions of the ``min(n, len)`` largest scores, best first.

    >>> top(torch.tensor([0.1, 0.9, float("nan"), 0.5]), 2, torch.Generator())
    tensor([1, 3])
    """
    return rank_rows(scores, generator)[:n]
