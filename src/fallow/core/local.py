"""One local step: the words in which a training method says what differs from plain SGD."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fallow.core.training_config import Optimizer
from fallow.core.types import State

Near = Callable[[Tensor], Tensor]
"""A differentiable penalty of the parameters: (..., d) -> (...)."""

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each row: outputs (..., b, c), targets (..., b) -> (..., b)."""

Objective = Callable[[Callable[[Tensor], Tensor]], Tensor]
"""The loss of a step, (...), from the model in training: a function of rows (..., b, *shape) whose
outputs (..., b, c) stand in the graph.  It may be called more than once."""

NONE = torch.zeros(0)
"""What a batch carries in place of what nobody asked for."""


class TrainState(NamedTuple):
    """A model being trained.  Every tensor may have a leading dimension of sites.

    w: (..., d) parameters; stats: (..., s) batch-norm statistics; m1, m2: (..., d) moments of the
    optimizer ((..., 0) where it has none); t: (..., 1) steps taken, or (..., d) where the parts of
    a model train in turn under Adam.
    """

    w: Tensor
    stats: Tensor
    m1: Tensor
    m2: Tensor
    t: Tensor

    @property
    def state(self) -> State:
        """The model alone, without its optimizer."""
        return {"w": self.w, "stats": self.stats}

    def with_moments(self, other: TrainState) -> TrainState:
        """The same model with the moments of another one, and as many steps taken."""
        return self._replace(m1=other.m1, m2=other.m2, t=other.t)


def slot(state: State, optimizer: Optimizer) -> TrainState:
    """A slot at ``state`` with zero moments."""
    w = state["w"]
    sites = w.shape[:-1]  # () for one model
    m1 = w.new_zeros((*sites, 0))
    m2 = w.new_zeros((*sites, 0))
    if optimizer.name == "adam":
        m1 = torch.zeros_like(w)
        m2 = torch.zeros_like(w)
    elif optimizer.momentum != 0:
        m1 = torch.zeros_like(w)
    return TrainState(w, state["stats"], m1, m2, t=w.new_zeros((*sites, 1)))


class Batch(NamedTuple):
    """One mini-batch, drawn on the CPU from named streams.

    x: (..., b, *shape); y: (..., b); weight: (..., b), 0 for padding; lr: a number or (..., 1);
    counts: (..., C) labeled rows of each class at the site, (..., 0) without classes; round: that
    of the cycle, from 0.

    With ``training_config.mix`` as many rows of the pool come along, u: (..., b, *shape), to be
    mixed with one
    another: mate: (..., b) int64, a permutation of the batch; beta: (..., b) in (0, 1); pool:
    (..., b), 1 for a row of the pool, 0 for padding.  Where no site has a pool all four are empty.
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
    """The mean over the batch of losses times weights.  (..., b), (..., b) -> (...); padding weighs
    0 and is not counted.

    Not over the sum of the weights: those of a site have mean 1, and a batch whose rows weigh more
    pulls more, so that the steps of an epoch add up to the weighted loss.  A batch in which every
    row weighs 0 has loss 0: it asks for no step.

    >>> import torch
    >>> weighted_mean(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(2.)
    """
    return (losses * shares(weight)).sum(-1)


def shares(weight: Tensor) -> Tensor:
    """By what `weighted_mean` multiplies the losses.  (..., b) -> (..., b)

    >>> import torch
    >>> shares(torch.tensor([1.0, 1.0, 0.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return weight / (weight > 0).sum(-1, keepdim=True).clamp_min(1)  # no weight is negative


class Learner(Protocol):
    """What the engine does for a method: forward passes, gradients and optimizer steps.

    The loss is the task's, as a weighted mean over the batch, unless an ``objective`` says
    otherwise; ``near`` is added to it.
    """

    def descend(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> TrainState:
        """One optimizer step on the loss."""
        ...

    def gradient(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The gradient (..., d) there, and the batch-norm statistics (..., s) after the pass."""
        ...

    def apply(self, at: TrainState, gradient: Tensor, lr: float | Tensor) -> TrainState:
        """One optimizer step along a given gradient."""
        ...

    def predict(self, at: TrainState, x: Tensor) -> Tensor:
        """Outputs in evaluation mode, without a gradient: a teacher.  (..., b, *shape) ->
        (..., b, c).  An objective may ask for them between its passes."""
        ...


@runtime_checkable
class LocalTraining(Protocol):
    """The site half of a training method: pure functions that also run stacked over sites.

    A query may be one too: it then trains the models that it orders, but for the one called
    ``local``, with its own step.
    """

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]: ...
    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]: ...
    def finish(
        self, s: dict[str, TrainState]
    ) -> tuple[TrainState, dict[str, TrainState]]: ...
