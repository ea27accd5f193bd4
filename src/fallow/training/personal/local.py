"""Local training at each site, without aggregation: the first baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State
from fallow.training.personal.base import decode_sites, encode_sites, model


@explain_constructor
@final
@dataclass(frozen=True)
class Local(StepTraining):
    """Train a model at each site alone, without aggregation.

    w_k is trained for local epochs, round after round.  A site receives the common initial model
    once and sends nothing.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.Local(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    contract: ClassVar[Contract] = Contract(
        title="Local training",
        short="Local",
        tags=("alone",),
        paper="",
        year=0,
        missing="continues: no site needs another one",
        fit=FitDeclaration(
            {"local": Fit(by=lambda training, _: training.configs)},
            kept=("w",),
            server=("begun",),
        ),
    )

    @property
    def configs(self) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the training configurations of a round: from the first, or the last model."""
        return self.training_config, replace(self.training_config, start="own/w")

    def round(self, state: State, ask: Ask) -> State:
        old_sites = decode_sites(state.get("begun"))
        new = []
        old = []
        for site in ask.cohort:
            if site in old_sites:
                old.append(site)
            else:
                new.append(site)

        first, goes_on = self.configs
        ask.fit(first, "local", {site: {**model(state)} for site in new})
        ask.fit(goes_on, "local", {site: {} for site in old})
        return {**state, "begun": encode_sites(old_sites | set(ask.cohort))}

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model(memory.get("own/w", state))

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {"w": s["w"]}
