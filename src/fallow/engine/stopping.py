"""When training ends before its last epoch: no lower loss for some time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

Heard = list[tuple[Tensor, Tensor]]
"""The loss of each gradient of an epoch and of how many rows it is the mean: () for a site alone,
(k,) for the first k of those that train in step."""


def mean_losses(heard: Heard, sites: int) -> list[float]:
    """The mean over the rows of an epoch for each site; 0 without rows.

    >>> mean_losses(
    ...     [
    ...         (torch.tensor([1.0, 2.0]), torch.tensor([4.0, 3.0])),
    ...         (torch.tensor([6.0]), torch.tensor([1.0])),
    ...     ],
    ...     2,
    ... )
    [2.0, 2.0]
    """
    total, rows = torch.zeros(2, sites, dtype=torch.float64)
    for loss, n in heard:
        total[: loss.numel()] += (loss * n).cpu()
        rows[: loss.numel()] += n.cpu()
    means: list[float] = (total / rows.clamp_min(1)).tolist()
    return means


@dataclass
class Patience:
    """Counts the epochs since the mean training loss of a site was last lower than ever before."""

    epochs: int | None  # how many it waits; None: for ever
    best: float = inf
    waited: int = 0

    def ends(self, loss: float) -> bool:
        """Whether the epoch of this loss is the last one."""
        if loss < self.best:
            self.best = loss
            self.waited = 0
        else:
            self.waited += 1
        return self.epochs is not None and self.waited >= self.epochs
