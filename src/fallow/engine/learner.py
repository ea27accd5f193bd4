"""Gradients by autograd and optimiser steps: what the engine does for a method's ``step``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

from fallow.core.banks import Layout
from fallow.core.local import Batch, Near, RowLoss, Slot
from fallow.core.plan import Optimiser
from fallow.engine.losses import weighted_mean
from fallow.engine.optimise import step


class Pass(NamedTuple):
    """A forward pass: outputs (..., b, c), the leaves of its graph, whose gradients side by side
    are the gradient of w, and the statistics after it (..., s)."""

    outputs: Tensor
    leaves: Sequence[Tensor]
    stats: Tensor


class Network(Protocol):
    """One model, or K models at once, with weights that are put in for each pass."""

    def __call__(self, w: Tensor, stats: Tensor, x: Tensor) -> Pass:
        """A pass in training mode.  w: (..., d); stats: (..., s); x: (..., b, *shape)."""
        ...


@final
@dataclass
class Autograd:
    """`fallow.core.local.Learner` for a network.  Models that run at once do not mix, so one
    backward pass through the sum of their losses serves all.

    ``moves``: the (d,) mask of the parameters that move now; None for all of them.
    """

    network: Network
    loss: RowLoss
    optimiser: Optimiser
    moves: Tensor | None = None

    def gradient(self, at: Slot, batch: Batch, near: Near | None = None) -> tuple[Tensor, Tensor]:
        outputs, leaves, stats = self.network(at.w, at.stats, batch.x)
        value = weighted_mean(self.loss(outputs, batch.y), batch.weight)
        parts = torch.autograd.grad(
            value, leaves, torch.ones_like(value), allow_unused=True, materialize_grads=True
        )
        g = torch.cat([part.reshape(*at.w.shape[:-1], -1) for part in parts], -1)
        return (g if near is None else g + slope(near, at.w)), stats

    def apply(self, at: Slot, gradient: Tensor, lr: float | Tensor) -> Slot:
        return step(self.optimiser, at, gradient.clone(), lr, self.moves)

    def descend(self, at: Slot, batch: Batch, near: Near | None = None) -> Slot:
        g, stats = self.gradient(at, batch, near)
        return step(self.optimiser, at, g, batch.lr, self.moves)._replace(stats=stats)


def slope(near: Near, w: Tensor) -> Tensor:
    """The gradient of a penalty at ``w``: (..., d) -> (..., d)."""
    at = w.detach().requires_grad_()
    (g,) = torch.autograd.grad(near(at).sum(), at)
    return g


def movable(model: nn.Module, layout: Layout, part: str) -> Tensor | None:
    """The (d,) mask of the parameters of a part, without those that the model has frozen by
    ``requires_grad=False``; None where that leaves all."""
    mask = layout.part(part)
    free = [parameter.requires_grad for parameter in model.parameters()]
    if all(free):
        return mask
    thawed = torch.tensor(free).repeat_interleave(torch.tensor(layout.param_sizes))
    return thawed if mask is None else mask & thawed
