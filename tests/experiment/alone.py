"""Training algorithms for tests, with one model per site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State
from fallow.core.view import View


class Plain:
    """The step that the methods here share: plain descent."""

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


@final
@dataclass(frozen=True)
class Alone(Plain):
    """Every site trains its own model, from where it stands, and nothing is sent."""

    training_config: TrainingConfig = TrainingConfig()

    contract: ClassVar[Contract] = Contract("alone", "a test", 2024)

    def round(self, state: State, ask: Ask) -> State:
        if ask.round == 0:
            ask.fit(self.training_config, "local", None, w=state["w"], stats=state["stats"])
        else:
            ask.fit(replace(self.training_config, start="local"), "local")
        return state

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("local", state)


@final
@dataclass(frozen=True)
class Tuned(Plain):
    """One site's average that is tuned at each site after the last round."""

    training_config: TrainingConfig = TrainingConfig()

    contract: ClassVar[Contract] = Contract("tuned", "a test", 2024)

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        total = ask.sum(self.upload)
        return {**state, "w": (total["w"] / total["sites"]).to(state["w"].dtype)}

    @client.sum("models")
    def upload(self, view: View) -> Any:
        return {"w": view.memory["local"]["w"].double()}

    def last(self, state: State, ask: Ask) -> None:
        ask.fit(replace(self.training_config, start="best"), "tuned")

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("tuned", state)


@final
@dataclass(frozen=True)
class Stubborn(Plain):
    """A method whose sites predict the class that their labels hold most of, whatever the model."""

    training_config: TrainingConfig = TrainingConfig()

    contract: ClassVar[Contract] = Contract("stubborn", "a test", 2024)

    def round(self, state: State, ask: Ask) -> State:
        return state

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return state

    def predict(self, view: View, state: State, rows: Tensor) -> Tensor:
        majority = int(view.counts.argmax())
        return torch.eye(view.classes)[majority].expand(len(rows), -1)
