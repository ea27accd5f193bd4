"""Independent runs of a study: two processes of one thread each against one.

Both are timed by wall-clock time, including the start of the processes, so the machine
needs two idle cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
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
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.study.study import list_runs, run_study
from fallow.study.study_run import Setup

STRATEGIES = ("random", "entropy", "ahfal")
EXPERIMENT = ExperimentConfig(
    name="two-processes",
    model=Spec("mlp"),
    training_config=TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.05, momentum=0.9)
    ),
    initial=0.05,
    budget=0.05,
    rounds=100,
    cycles=2,
    bounds=(),
)
TINY = replace(
    EXPERIMENT, rows=200, test_rows=50, sites=3, rounds=1, cycles=1, initial=8, budget=2
)


@dataclass
class Studies:
    """The same study in one process and in two, always in an empty folder."""

    config: ExperimentConfig
    seeds: Sequence[int]
    outputs: dict[int, list[Output]] = field(default_factory=dict)

    def run(self, jobs: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            setup = Setup(self.config, Path(folder))
            cells = list_runs(self.config, STRATEGIES, self.seeds)
            failures = run_study(setup, cells, jobs)
            if failures:
                raise RuntimeError(f"{failures[0].cell} failed: {failures[0].reason}")
            self.outputs[jobs] = [read_output(cell.folder(setup.out)) for cell in cells]

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


def read_output(folder: Path) -> Output:
    lines = (folder / "records.jsonl").read_text().splitlines()
    records = [{**json.loads(line), "seconds": None} for line in lines]
    return Output(records, load((folder / "model.safetensors").read_bytes()))


def race_study(is_quick: bool) -> Race:
    studies = Studies(EXPERIMENT, range(2))
    if is_quick:
        studies = Studies(TINY, (0, 1))
    return Race(partial(studies.run, 1), partial(studies.run, 2), studies.are_equal, runs=1)


TINY_RUNS = {
    "rows": "200",
    "sites": "3",
    "rounds": "1",
    "cycles": "1",
    "bounds": "false",
}


def compare(models: dict[int, list[str]], jobs: int) -> None:
    """Run two strategies and eight seeds by `fallow compare`, and keep the models."""
    settings = []
    for name, value in TINY_RUNS.items():
        settings += ["--set", f"{name}={value}"]
    command = [sys.executable, "-m", "fallow", "compare", "demo", "-q", "random,entropy"]
    command += ["--seeds", "8", *settings]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--jobs", str(jobs), "--out", f"{folder}/s"]
        subprocess.run(command, check=True, capture_output=True)
        files = sorted(Path(folder).rglob("model.safetensors"))
        models[jobs] = [path.read_bytes().hex() for path in files]


def race_starts(is_quick: bool) -> Race:
    models: dict[int, list[str]] = {}

    def are_equal() -> bool:
        return models[1] == models[2] and len(models[1]) == 16

    return Race(partial(compare, models, 1), partial(compare, models, 2), are_equal, runs=2)


ENTRIES = (
    Entry(
        "start-of-runs",
        "one process; sixteen runs of 200 digits, the command's own start included",
        bar=1.0,
        compared="the models that were timed, byte for byte",
        prepare=race_starts,
        clock=WALL,
    ),
    Entry(
        "study-two-processes",
        "one process; three strategies and two seeds on digits, ten sites",
        bar=1.8,
        compared="records but their seconds, and models, bit for bit",
        prepare=race_study,
        clock=WALL,
    ),
)
