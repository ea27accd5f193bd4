"""Local training steps: how a training algorithm differs from plain SGD."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final, runtime_checkable

import torch
from torch import Tensor

from fallow.core.training_config import Optimizer
from fallow.core.types import State

Near = Callable[[Tensor], Tensor]
"""A differentiable penalty of the parameters: (..., d) -> (...)."""


@final
@dataclass(frozen=True)
class Proximal:
    """Proximal term ``scale / 2 * ||w - center||^2``, a penalty with a known gradient.

    The engine computes a step with it without autograd.

    >>> near = Proximal(2.0, torch.zeros(2))
    >>> near(torch.tensor([1.0, 2.0])), near.gradient(torch.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """

    scale: float
    center: Tensor

    def __call__(self, w: Tensor) -> Tensor:
        """Return the penalty. (..., d) -> (...)"""
        return self.scale / 2 * (w - self.center).square().sum(-1)

    def gradient(self, w: Tensor) -> Tensor:
        """Return the gradient at ``w``. (..., d) -> (..., d)"""
        return self.scale * (w - self.center)


RowLoss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each example: outputs (..., b, c), targets (..., b) -> (..., b)."""

Objective = Callable[[Callable[[Tensor], Tensor]], Tensor]
"""Loss of a step, (...), from the model: a function of examples (..., b, *shape) with differentiable
outputs (..., b, c), which may be called more than once."""

NONE = torch.zeros(0)
"""Placeholder for fields of a batch that are not needed."""


class TrainState(NamedTuple):
    """A model in training.  Every tensor may have a leading dimension of sites.

    w: (..., d) parameters; stats: (..., s) batch-norm statistics; m1, m2: (..., d) moments of the
    optimizer ((..., 0) if it has none); t: (..., 1) number of steps, or (..., d) if parts of a
    model are trained in turn with Adam.
    """

    w: Tensor
    stats: Tensor
    m1: Tensor
    m2: Tensor
    t: Tensor

    @property
    def state(self) -> State:
        """Return the model without its optimizer."""
        return {"w": self.w, "stats": self.stats}

    def with_moments(self, other: TrainState) -> TrainState:
        """Return the model with the moments and the number of steps of another one."""
        return self._replace(m1=other.m1, m2=other.m2, t=other.t)


def slot(state: State, optimizer: Optimizer) -> TrainState:
    """Return a training state at ``state`` with zero moments, which all sites share."""
    w = state["w"]
    zeros = w.new_zeros(w.shape[-1]).expand_as(w)
    sites = w.shape[:-1]  # () for one model
    m1 = w.new_zeros((*sites, 0))
    m2 = w.new_zeros((*sites, 0))
    if optimizer.is_adaptive:
        m1 = zeros
        m2 = zeros
    elif optimizer.momentum != 0:
        m1 = zeros
    return TrainState(w, state["stats"], m1, m2, t=w.new_zeros((*sites, 1)))


class Batch(NamedTuple):
    """One mini-batch, drawn on the CPU from named random streams.

    x: (..., b, *shape); y: (..., b); weight: (..., b), 0 for padding; lr: a number or (..., 1);
    counts: (..., C) labels of each class at the site, (..., 0) for regression; round: number in the
    cycle, from 0.

    With ``training_config.mix``, the batch contains as many examples of the pool, u: (..., b,
    *shape), to be mixed with each other.  mate: (..., b) int64, a permutation of the batch; beta:
    (..., b) in (0, 1); pool: (..., b), 1 for an example of the pool, 0 for padding.  If no site has
    a pool, all four are empty.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    lr: float | Tensor
    counts: Tensor = NONE
    round: int = 0
    u: Tensor = NONE
    mate: Tensor = NONE
    beta: Tensor = NONE
    pool: Tensor = NONE


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """Return the mean of losses times weights over the batch, without padding (weight 0).

    (..., b), (..., b) -> (...).  The sum is not divided by the sum of weights. Weights of a
    site have mean 1, so a batch with larger weights has a larger gradient, and the steps of an
    epoch add
    up to the weighted loss.  A batch with all weights 0 has loss 0.

    >>> import torch
    >>> weighted_mean(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(2.)
    """
    return (losses * shares(weight)).sum(-1)


def shares(weight: Tensor) -> Tensor:
    """Return the factors of the losses in `weighted_mean`.  (..., b) -> (..., b)

    >>> import torch
    >>> shares(torch.tensor([1.0, 1.0, 0.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return weight / (weight > 0).sum(-1, keepdim=True).clamp_min(1)  # no weight is negative


class Learner(Protocol):
    """Operations of the engine for an algorithm: forward passes, gradients and optimizer steps.

    The loss is that of the task, as a weighted mean over the batch, unless there is an
    ``objective``; ``near`` is added to it.
    """

    def descend(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> TrainState:
        """Take one optimizer step on the loss."""
        ...

    def gradient(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient (..., d), and the batch-norm statistics (..., s) after the pass."""
        ...

    def apply(self, at: TrainState, gradient: Tensor, lr: float | Tensor) -> TrainState:
        """Take one optimizer step along a given gradient."""
        ...

    def predict(self, at: TrainState, x: Tensor) -> Tensor:
        """Return outputs in evaluation mode without gradients, as of a teacher.

        (..., b, *shape) -> (..., b, c).  An objective may call it between its forward passes.
        """
        ...


@runtime_checkable
class LocalTraining(Protocol):
    """Client side of a training algorithm: pure functions that also run stacked over sites.

    A query strategy may implement it too.  It then trains its additional models, except ``local``,
    with its own step.
    """

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]: ...
    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]: ...
    def finish(
        self, s: dict[str, TrainState]
    ) -> tuple[TrainState, dict[str, TrainState]]: ...
