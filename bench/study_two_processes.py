"""A study of independent runs: two processes of one thread each against one.

Both are timed by wall-clock time, including the start of the processes, so the machine
needs two idle cores. One study takes two minutes, so it is run three times.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load
from torch import Tensor

from bench.timing import WALL, Entry, Race
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec
from fallow.study.study import list_runs, run_study
from fallow.study.study_run import Setup

STRATEGIES = ("random", "entropy", "ahfal")
RECIPE = Recipe(
    name="two-processes",
    model=Spec("mlp"),
    training_config=TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.05, momentum=0.9)
    ),
    initial=0.05,
    budget=0.05,
    rounds=100,
    cycles=4,
    bounds=(),
)
TINY = replace(
    RECIPE, rows=200, test_rows=50, sites=3, rounds=1, cycles=1, initial=8, budget=2
)


@dataclass
class Studies:
    """The same study in one process and in two, always in an empty folder."""

    recipe: Recipe
    seeds: Sequence[int]
    outputs: dict[int, list[Output]] = field(default_factory=dict)

    def run(self, jobs: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            setup = Setup(self.recipe, Path(folder))
            cells = list_runs(self.recipe, STRATEGIES, self.seeds)
            failures = run_study(setup, cells, jobs)
            if failures:
                raise RuntimeError(f"{failures[0].cell} failed: {failures[0].why}")
            self.outputs[jobs] = [_output(cell.folder(setup.out)) for cell in cells]

    def are_equal(self) -> bool:
        pairs = zip(self.outputs[1], self.outputs[2], strict=True)
        return all(
            a.records == b.records
            and a.model.keys() == b.model.keys()
            and all(torch.equal(a.model[name], b.model[name]) for name in a.model)
            for a, b in pairs
        )


class Output(NamedTuple):
    """Output of a run: its records without times, and the last model."""

    records: list[dict[str, Any]]
    model: dict[str, Tensor]


def _output(folder: Path) -> Output:
    lines = (folder / "records.jsonl").read_text().splitlines()
    records = [{**json.loads(line), "seconds": None} for line in lines]
    return Output(records, load((folder / "model.safetensors").read_bytes()))


def _prepare(is_quick: bool) -> Race:
    studies = Studies(RECIPE, range(4))
    if is_quick:
        studies = Studies(TINY, (0, 1))
    return Race(partial(studies.run, 1), partial(studies.run, 2), studies.are_equal, runs=3)


ENTRY = Entry(
    "study-two-processes",
    "one process; three strategies and four seeds on digits, ten sites",
    bar=1.8,
    compared="records but their seconds, and models, bit for bit",
    prepare=_prepare,
    clock=WALL,
)
