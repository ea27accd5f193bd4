"""Losses, gradients by autograd and optimizer steps, for the ``step`` of an algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor, nn

from fallow.core.local import (
    Batch,
    Near,
    Objective,
    Proximal,
    RowLoss,
    TrainState,
    weighted_mean,
)
from fallow.core.model_vectors import Layout
from fallow.core.multilabel import UNKNOWN, read_digits
from fallow.core.training_config import Optimizer
from fallow.engine.batches import BatchLosses
from fallow.engine.optimize import step


class Network(Protocol):
    """One model, or K models at once: weights are set, then forward passes are computed."""

    def put(self, w: Tensor, stats: Tensor) -> Sequence[Tensor]:
        """Set the weights w (..., d) and stats (..., s) of the next passes, and return the
        leaves of the graph.

        The concatenated gradients with respect to the leaves are the gradient of w.
        """
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """Run a pass in training mode, which updates the statistics. (..., b, *shape) ->
        (..., b, c)
        """
        ...

    def stats(self) -> Tensor:
        """Return the statistics (..., s) after the passes since `put`."""
        ...

    def predict(self, w: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        """Run a pass in evaluation mode without a graph; the weights that were set are
        kept.
        """
        ...


@final
@dataclass
class Autograd:
    """`fallow.core.local.Learner` for a network.

    Models that run at once are independent, so one backward pass through the sum of their
    losses is sufficient. ``moves``: (d,) mask of the parameters that are trained; None for
    all. ``batch_losses``: list to which the losses of all gradients are appended, or None.
    """

    network: Network
    loss: RowLoss
    optimizer: Optimizer
    moves: Tensor | None = None
    batch_losses: BatchLosses | None = None

    def gradient(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> tuple[Tensor, Tensor]:
        leaves = self.network.put(at.w, at.stats)
        if objective is None:
            value = weighted_mean(self.loss(self.network(batch.x), batch.y), batch.weight)
        else:
            value = objective(self.network)
        parts = torch.autograd.grad(
            value, leaves, torch.ones_like(value), allow_unused=True, materialize_grads=True
        )
        sites = at.w.shape[:-1]  # () for one model
        g = torch.cat([part.reshape((*sites, -1)) for part in parts], -1)
        if near is not None:
            g = g + slope(near, at.w)
        if self.batch_losses is not None:
            rows = (batch.weight > 0).sum(-1)  # padding has weight 0
            self.batch_losses.append((value.detach(), rows))
        return g, self.network.stats()

    def apply(self, at: TrainState, gradient: Tensor, lr: float | Tensor) -> TrainState:
        return step(self.optimizer, at, gradient.clone(), lr, self.moves)

    def descend(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> TrainState:
        g, stats = self.gradient(at, batch, near, objective)
        return step(self.optimizer, at, g, batch.lr, self.moves)._replace(stats=stats)

    def predict(self, at: TrainState, x: Tensor) -> Tensor:
        return self.network.predict(at.w, at.stats, x)


def slope(near: Near, w: Tensor) -> Tensor:
    """Return the gradient of a penalty at ``w``: (..., d) -> (..., d)."""
    if isinstance(near, Proximal):
        return near.gradient(w)
    at = w.detach().requires_grad_()
    (g,) = torch.autograd.grad(near(at).sum(), at)
    return g


def movable(model: nn.Module, layout: Layout, part: str) -> Tensor | None:
    """Return the (d,) mask of the trainable parameters of a part; None for all parameters.

    Parameters with ``requires_grad=False`` are excluded.
    """
    mask = layout.part(part)
    device = next(model.parameters()).device
    if mask is not None:
        mask = mask.to(device)
    free = [parameter.requires_grad for parameter in model.parameters()]
    if all(free):
        return mask
    thawed = torch.tensor(free).repeat_interleave(torch.tensor(layout.param_sizes))
    thawed = thawed.to(device)
    if mask is None:
        return thawed
    return mask & thawed


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of each example.  outputs: (..., b, c), y: (..., b) class
    ids -> (..., b)."""
    flat = nn.functional.cross_entropy(
        outputs.flatten(0, -2), y.flatten(), reduction="none"
    )
    return flat.view(y.shape)


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of each example.  outputs: (..., b, 1), y: (..., b) -> (...,
    b)."""
    error = outputs.squeeze(-1) - y
    return error * error


def answer_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of each example over its known labels.

    outputs: (..., b, L), y: (..., b) numbers of `fallow.core.multilabel` -> (..., b); 0 if none is
    known.
    """
    digits = read_digits(y, outputs.shape[-1])
    is_known = digits != UNKNOWN
    answers = digits.masked_fill(~is_known, 0).to(outputs.dtype)
    losses = nn.functional.binary_cross_entropy_with_logits(
        outputs, answers, reduction="none"
    )
    return (losses * is_known).sum(-1) / is_known.sum(-1).clamp_min(1)


def row_loss(task: str) -> RowLoss:
    """Return the loss of a task: cross-entropy for ``"classification"``, its mean over labels for
    ``"multilabel"``, else the squared error.
    """
    if task == "classification":
        return cross_entropy
    if task == "multilabel":
        return answer_loss
    return squared_error
