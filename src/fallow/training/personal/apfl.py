"""APFL (Deng, Kamani, Mahdavi, 2020), Algorithm 1: mixture of a local and a global model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.limits import Fraction, NonNegativeFloat
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import average, contribution, uploads


@explain_constructor
@final
@dataclass(frozen=True)
class APFL(StepTraining):
    """Mix a local and a global model with an adaptive weight at each site.

    Each site has a shared copy w, a private model v and their mixture v̄ = α v + (1 - α) w, which
    it deploys.  For every batch, with g = ∇F(v̄): w <- w - η ∇F(w), v <- v - η α g, α <- α - η_α <v
    - w, g>, clipped to [0, 1].  The server side averages w after every round; v and α stay at the
    site.  Every batch needs two gradients.

    Parameters
    ----------
    alpha : float
        Initial weight of the private model (α).
    adaptive : bool
        Update α during training.
    alpha_lr : float, optional
        Learning rate of α.  None: the learning rate of the batch.

    Notes
    -----
    Parameters are mixed, as in the paper; a public code mixes outputs.  All three updates read v
    and w from before the batch, so one gradient at the mixture is sufficient for v and α.  There is
    one α for all layers.  v and w start from the same model.  Batch-norm statistics of the mixture
    are those of its own forward passes.

    References
    ----------
    Deng, Kamani, Mahdavi. Adaptive Personalized Federated Learning. 2020.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.APFL(alpha=0.25), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    alpha: Fraction = 0.5  # initial α
    adaptive: bool = True  # False: α is constant
    alpha_lr: NonNegativeFloat | None = None  # η_α; None: the learning rate of the batch

    contract: ClassVar[Contract] = Contract(
        title="APFL",
        paper="Adaptive Personalized Federated Learning",
        year=2020,
        authors="Deng, Yuyang and Kamani, Mohammad Mahdi and Mahdavi, Mehrdad",
        gradients_per_batch=2,
        fit=FitDeclaration(kept=("v", "alpha")),
    )

    def check(self) -> None:
        refuse_unused(self, "alpha_lr", switch="adaptive", used_with=(True,))

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        if not {"local", "own/v"} <= memory.keys():
            return state
        v = memory["own/v"]
        w = memory["local"]
        a = memory["own/alpha"]["w"]
        return {"w": a * v["w"] + (1 - a) * w["w"], "stats": v["stats"]}

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w, "v": w, "alpha": number(self.alpha, w), **own}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        w = s["w"]
        v = s["v"]
        alpha = s["alpha"]
        a = alpha.w  # (..., 1)

        mixture = v._replace(w=a * v.w + (1 - a) * w.w)  # v̄
        g, stats = learn.gradient(mixture, b)
        if self.adaptive:
            rate = b.lr
            if self.alpha_lr is not None:
                rate = self.alpha_lr
            slope = ((v.w - w.w) * g).sum(-1, keepdim=True)  # ∂F(v̄)/∂α
            alpha = alpha._replace(w=(a - rate * slope).clamp(0, 1))
        v = learn.apply(v, a * g, b.lr)._replace(stats=stats)
        return {"w": learn.descend(w, b), "v": v, "alpha": alpha}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {"v": s["v"], "alpha": s["alpha"]}


def number(value: float, like: TrainState) -> TrainState:
    """Return a slot with one number per site of ``like``."""
    return TrainState(
        w=torch.full_like(like.w[..., :1], value),
        stats=like.stats[..., :0],
        m1=like.m1[..., :1],
        m2=like.m2[..., :1],
        t=like.t[..., :1],
    )
