"""Ditto (Li et al., 2021), Algorithm 1: a personalized model with a proximal term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.limits import NonNegativeFloat
from fallow.core.local import Batch, Learner, Proximal, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import average, contribution, uploads
from fallow.training.personal.base import model


@explain_constructor
@final
@dataclass(frozen=True)
class Ditto(StepTraining):
    """Train a personalized model that is regularized towards the global model.

    The global model w is trained by `FedAvg`.  The personalized model v_k minimizes F_k(v) + λ/2
    ||v - w^t||², where w^t is the received global model.  v_k starts from the initial model, never
    leaves its site and is deployed there.  λ = 0 is local training.  Every batch needs two
    gradients.

    Parameters
    ----------
    lam : float
        Weight of the proximal term (λ).

    Notes
    -----
    Both models are updated on the same batch, in one pass over the data; the published code trains
    them in sequence.  v depends on w^t and not on w, so the order does not matter.  The proximal
    gradient is added before momentum and weight decay.

    References
    ----------
    Li, Hu, Beirami, Smith. Ditto: Fair and Robust Federated Learning Through Personalization. 2021.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.Ditto(lam=1.0), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    # λ: 0.75 in DPFL's comparison; Ditto's scripts have 1, tuned in {0.1, 1, 2}
    lam: NonNegativeFloat = 0.75

    contract: ClassVar[Contract] = Contract(
        title="Ditto",
        paper="Ditto: Fair and Robust Federated Learning Through Personalization",
        year=2021,
        authors="Li, Tian and Hu, Shengyuan and Beirami, Ahmad and Smith, Virginia",
        gradients_per_batch=2,
        fit=FitDeclaration(kept=("v",)),
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model(memory.get("own/v", state))

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w, "v": own.get("v", w)}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {
            "w": learn.descend(s["w"], b),
            "v": learn.descend(s["v"], b, Proximal(self.lam, w_t.w)),
        }

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {"v": s["v"]}
