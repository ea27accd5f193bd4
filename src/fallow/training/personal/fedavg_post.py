"""FedAvg with locally trained models deployed: a baseline for personalized algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import average, contribution, uploads


@explain_constructor
@final
@dataclass(frozen=True)
class FedAvgPost(StepTraining):
    """Run FedAvg, and deploy the locally trained model of each site.

    A site deploys w_k after its local epochs, before averaging.  This is a baseline without
    additional cost for every personalized algorithm.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas. Communication-Efficient Learning of Deep
    Networks from Decentralized Data. 2017.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.FedAvgPost(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    contract: ClassVar[Contract] = Contract(
        title="FedAvg, after local training",
        paper="Communication-Efficient Learning of Deep Networks from Decentralized Data",
        year=2017,
        authors="McMahan, H. Brendan and Moore, Eider and "
        "Ramage, Daniel and Hampson, Seth and Agüera y Arcas, Blaise",
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("local", state)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}
