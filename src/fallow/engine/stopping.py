"""Early stopping if the loss has not decreased for a number of epochs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

Heard = list[tuple[Tensor, Tensor]]
"""Losses of the gradients of an epoch, each with its number of examples.

Losses have shape () for one site, and (k,) for the first k of several.
"""


def mean_losses(heard: Heard, sites: int) -> list[float]:
    """Return the mean over the examples of an epoch for each site; 0 without examples.

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
    """Counter of epochs since the mean training loss of a site reached its minimum."""

    epochs: int | None  # number of epochs without improvement; None: unlimited
    best: float = inf
    waited: int = 0

    def ends(self, loss: float) -> bool:
        """Return whether the epoch with this loss is the last one."""
        if loss < self.best:
            self.best = loss
            self.waited = 0
        else:
            self.waited += 1
        return self.epochs is not None and self.waited >= self.epochs
