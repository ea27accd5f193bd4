"""FedAvg (McMahan et al., 2017), Algorithm 1: average of the sites' models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.local import Batch, Learner, TrainState
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
class FedAvg(StepTraining):
    """Average the models of the sites after local epochs, weighted by labels.

    The global model is w <- sum_i (n_i / n) w_i.

    Parameters
    ----------
    bn : {"average", "local"}
        Average batch-norm statistics with the weights, as the published codes do, or keep them at
        the sites (FedBN; Li et al., 2021).

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas. Communication-Efficient Learning of Deep
    Networks from Decentralized Data. 2017.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.FedAvg(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="FedAvg",
        paper="Communication-Efficient Learning of Deep Networks from Decentralized Data",
        year=2017,
        authors="McMahan, H. Brendan and Moore, Eider and "
        "Ramage, Daniel and Hampson, Seth and Agüera y Arcas, Blaise",
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
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], own_statistics(s["w"], self.bn)
