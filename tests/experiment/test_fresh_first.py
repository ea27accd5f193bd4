"""New labels are used for validation before training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.training import FedAvg
from fallow.training.base import uploads
from tests.sites.test_agree import TINY

FRESH = replace(TINY, validation=0.5, rounds=3, cycles=2, fresh_first=True)


@dataclass(frozen=True)
class LabelCounter:
    """FedAvg that notes how many labels train and validate at the first site in each round."""

    training_config: TrainingConfig
    seen: list[tuple[int, int]] = field(default_factory=list)
    contract: ClassVar[Contract] = replace(FedAvg.contract)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return state

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return FedAvg().start(w, own)

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return FedAvg().step(s, w_t, b, learn)

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return FedAvg().finish(s)

    @uploads
    def upload(self, view: View) -> Values:
        return FedAvg().upload(view)

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        counts = ask.each(self.count)
        first = counts[ask.cohort[0]]
        train = torch.as_tensor(first["train"])
        labeled = torch.as_tensor(first["held"])
        self.seen.append((int(train), int(labeled)))
        return state

    @client.each("-")
    def count(self, view: View) -> Values:
        return {"train": len(view.labels), "held": len(view.validation_labels)}


def count_labels(config: ExperimentConfig) -> list[tuple[int, int]]:
    event_log = EventLog()
    simulation = build_environment(config, 0, event_log)
    method = LabelCounter(config.training_config)
    for site in simulation.members.values():
        site.parts = replace(site.parts, methods={**simulation.methods, "training": method})
    simulation = replace(simulation, methods={**simulation.methods, "training": method})
    ExperimentRun(simulation, event_log).go()
    return method.seen


@pytest.mark.long
def test_a_querys_labels_validate_in_the_first_round_and_train_from_the_second_on() -> None:
    # 8 initial labels, half for validation; then 4 per cycle, half for validation
    later = [(4, 4)] * 3
    assert count_labels(replace(FRESH, fresh_first=False)) == [
        *later,
        *[(6, 6)] * 3,
        *[(8, 8)] * 3,
    ]
    assert count_labels(FRESH) == [
        *later,
        (4, 8),
        (6, 6),
        (6, 6),
        (6, 10),
        (8, 8),
        (8, 8),
    ]


def test_a_recipe_without_a_second_round_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="rounds is 1: labels of the cycle are used from the second round on",
    ):
        replace(FRESH, rounds=1)


@pytest.mark.long
@pytest.mark.parametrize("restart", ["fresh", "continue"])
def test_dpfl_searches_with_fresh_labels_and_no_label_is_lost(restart: Any) -> None:
    training = Spec("dpfl", {"budget": 2})
    config = replace(
        FRESH, training=training, restart=restart, initial=16, cycles=1, rounds=4
    )
    record = ExperimentRun(build_environment(config, 0, EventLog()), EventLog()).go()
    assert record[-1]["labeled"] == 3 * 20 and record[-1]["labels_validation"] == 3 * 10
