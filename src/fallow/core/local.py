"""One local step: the words in which a training method says what differs from plain SGD."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fallow.core.plan import Optimiser
from fallow.core.types import State

Near = Callable[[Tensor], Tensor]
"""A differentiable penalty of the parameters: (..., d) -> (...)."""

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each row: outputs (..., b, c), targets (..., b) -> (..., b)."""


class Slot(NamedTuple):
    """A model being trained.  Every tensor may have a leading dimension of sites.

    w: (..., d) parameters; stats: (..., s) batch-norm statistics; m1, m2: (..., d) moments of the
    optimiser ((..., 0) where it has none); t: (..., 1) steps taken, or (..., d) where the parts of
    a model train in turn under Adam.
    """

    w: Tensor
    stats: Tensor
    m1: Tensor
    m2: Tensor
    t: Tensor

    @property
    def state(self) -> State:
        return {"w": self.w, "stats": self.stats}

    def with_moments(self, other: Slot) -> Slot:
        return self._replace(m1=other.m1, m2=other.m2, t=other.t)


def slot(state: State, optimiser: Optimiser) -> Slot:
    """A slot at ``state`` with zero moments."""
    w = state["w"]
    none = w.new_zeros((*w.shape[:-1], 0))
    needs_m1 = optimiser.name == "adam" or optimiser.momentum != 0
    m1 = torch.zeros_like(w) if needs_m1 else none
    m2 = torch.zeros_like(w) if optimiser.name == "adam" else none
    return Slot(w, state["stats"], m1, m2, w.new_zeros((*w.shape[:-1], 1)))


class Batch(NamedTuple):
    """One mini-batch, drawn on the CPU from named streams.

    x: (..., b, *shape); y: (..., b); weight: (..., b), 0 for padding; lr: a number or (..., 1).
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    lr: float | Tensor


class Learner(Protocol):
    """What the engine does for a method: forward passes, gradients and optimiser steps."""

    def descend(self, at: Slot, batch: Batch, near: Near | None = None) -> Slot:
        """One optimiser step on the mean weighted loss of the batch plus ``near``."""
        ...

    def gradient(self, at: Slot, batch: Batch, near: Near | None = None) -> tuple[Tensor, Tensor]:
        """The gradient (..., d) there, and the batch-norm statistics (..., s) after the pass."""
        ...

    def apply(self, at: Slot, gradient: Tensor, lr: float | Tensor) -> Slot:
        """One optimiser step along a given gradient."""
        ...


class Local(Protocol):
    """The site half of a training method: pure functions that also run stacked over sites."""

    def start(self, w: Slot, own: dict[str, Slot]) -> dict[str, Slot]: ...
    def step(self, s: dict[str, Slot], w_t: Slot, b: Batch, learn: Learner) -> dict[str, Slot]: ...
    def finish(self, s: dict[str, Slot]) -> tuple[Slot, dict[str, Slot]]: ...
