"""FedProx (Li et al., 2020), Algorithm 2: local training with a proximal term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.limits import NonNegativeFloat
from fallow.core.local import Batch, Learner, Proximal, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import (
    average,
    contribution,
    model_at_site,
    own_statistics,
    uploads,
    with_own_statistics,
)


@explain_constructor
@final
@dataclass(frozen=True)
class FedProx(StepTraining):
    """Train with a proximal term that keeps local models close to the global model.

    The local objective is F_i(w) + μ/2 ||w - w^t||², and models are averaged as in `FedAvg`.

    Parameters
    ----------
    mu : float
        Weight of the proximal term (μ).
    bn : {"average", "local"}
        Average batch-norm statistics, or keep them at the sites (FedBN).

    Notes
    -----
    The proximal gradient is added before momentum and weight decay.  It applies to parameters, not
    to batch-norm statistics.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated Optimization in Heterogeneous Networks.
    2020.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.FedProx(mu=0.1), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    mu: NonNegativeFloat = 0.01  # µ, eq. (2); tuned in {0.001, 0.01, 0.1, 1}
    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="FedProx",
        paper="Federated Optimization in Heterogeneous Networks",
        year=2020,
        authors="Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and "
        "Sanjabi, Maziar and Talwalkar, Ameet and Smith, Virginia",
        fit=FitDeclaration(kept=("bn",)),
        multilabel=True,
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view, self.bn)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model_at_site(state, memory)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": with_own_statistics(w, own)}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b, Proximal(self.mu, w_t.w))}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], own_statistics(s["w"], self.bn)
