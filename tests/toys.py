"""One toy of each kind of component, defined outside the package as ``tests.toys:Name``.

`tests/test_places.py` runs them without changes to the package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Generator, Tensor, nn

from fallow.configs.papers import Paper
from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, LocalTraining, RowLoss, TrainState
from fallow.core.model_vectors import Layout
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import LabelCount
from fallow.core.view import SelectedExamples, View
from fallow.engine import Fitted, Job, Loop
from fallow.report.blocks import Blocks, Paragraph
from fallow.report.section import Section, SectionPosition, Sections
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.variants import ParsedStrategy
from fallow.strategies.base import Budget, Memo, label_counts
from fallow.study.known import Labels
from fallow.study.records import StudyRecords
from fallow.training.base import average, contribution, uploads


@final
@dataclass(frozen=True)
class First:
    """A query: the first rows of every pool."""

    contract: ClassVar[Contract] = Contract(
        title="First rows",
        paper="-",
        year=0,
        aliases=("front",),
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @client.keep("number of selected examples", takes={"n": LabelCount()})
    def select(self, view: View, n: int) -> SelectedExamples:
        return SelectedExamples(torch.arange(n))


@final
@dataclass(frozen=True)
class Halved:
    """A training method: FedAvg whose steps go half as far."""

    training_config: TrainingConfig = TrainingConfig()

    contract: ClassVar[Contract] = Contract(
        title="Half steps",
        paper="-",
        year=0,
        short="Half",
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return state

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


@final
class Sigmoid(nn.Module):
    """A model: one hidden layer of sigmoids."""

    def __init__(self, shape: Sequence[int], outputs: int, width: int = 4) -> None:
        super().__init__()
        self.body = nn.Linear(math.prod(shape), width)
        self.head = nn.Linear(width, outputs)

    def embed(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.body(x.flatten(1))
        return hidden.sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits

    def reset(self, generator: Generator) -> None:
        for weights in self.parameters():
            nn.init.normal_(weights, std=0.1, generator=generator)


@final
@dataclass(frozen=True)
class Stripes:
    """A partition: rows are dealt in turn."""

    def split(
        self,
        y: np.ndarray,
        sites: int,
        rng: np.random.Generator,
        natural: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        return [np.arange(site, len(y), sites) for site in range(sites)]


@final
@dataclass(frozen=True)
class Backwards:
    """An executor: one site after another, the last one first."""

    loop: Loop

    models: ClassVar[str] = "every model"

    @classmethod
    def build(
        cls, model: nn.Module, layout: Layout, loss: RowLoss, *, channels_last: bool = False
    ) -> Backwards:
        return Backwards(Loop(model, layout, loss, channels_last))

    @staticmethod
    def can_train(model: nn.Module) -> bool:
        return True

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted]:
        return self.loop.fit(method, training_config, round_, jobs[::-1])[::-1]


def count_runs(study: StudyRecords, key: str) -> Blocks:
    """A report section: how many runs there are."""
    return [Paragraph(f"{len(study.cells)} runs of the toy.")]


RUNS = Section("Runs", SectionPosition.FINDINGS, count_runs)


def call(strategy: ParsedStrategy, training: str, *, brief: bool) -> str | None:
    """Return the name that readers see for the query of the toy."""
    return "The first" if strategy.key == "tests.toys:first" else None


EXPERIMENT = ExperimentConfig(
    name="toys/digits",
    data="digits",
    rows=120,
    test_rows=30,
    partition=Spec("tests.toys:Stripes"),
    sites=3,
    model=Spec("tests.toys:Sigmoid", {"width": 3}),
    training=Spec("tests.toys:Halved"),
    training_config=TrainingConfig(batch_size=8),
    rounds=1,
    initial=8,
    budget=4,
    cycles=1,
    score_rounds=1,
    executor="tests.toys:Backwards",
    strategies=("random", "tests.toys:First"),
    reference="random",
    seeds=1,
    bounds=(),
)

PAPER = Paper(
    title="A paper about toys",
    authors="-",
    year=2026,
    configs=(EXPERIMENT,),
    labels=Labels(strategy=call),
    sections=lambda: Sections(of_one=(RUNS,)),
)
