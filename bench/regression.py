"""A complete run of a baseline of active regression.

Ten sites hold 36,584 examples of 9 features, as many as the protein table has. Each of 300
queries labels 5 examples per site, 15,000 in all beyond the initial labeled set. After
every thirtieth query, ``fedavg`` trains for one round of 25 epochs (Adam 0.01, batch size
32). `Stacked` is compared with the plain executor, `Loop`.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

EXPERIMENT = ExperimentConfig(
    name="regression-run",
    partition=Spec("target-dirichlet", {"alpha": 5.0}),
    sites=10,
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(25),), 32, Optimizer("adam", 0.01)),
    rounds=1,
    initial=36,
    budget=150,
    queries_per_cycle=30,
    cycles=10,
    score_rounds=1,
    dtype="float64",
    bounds=(),
)
TINY = replace(EXPERIMENT, initial=4, budget=4, queries_per_cycle=2, cycles=1)
ROWS = 36_584  # as many as in the protein table


def write_rows(path: Path, n: int) -> None:
    """Write a .npz table of n training examples and a quarter as many test examples."""
    x = torch.randn(n + n // 4, 9, generator=stream(0, "bench table"))
    noise = torch.randn(len(x), generator=stream(0, "bench noise"))
    y = (x @ torch.linspace(-1, 1, 9) + torch.sin(2 * x[:, 0]) + noise).numpy()
    np.savez(path, x=x[:n].numpy(), y=y[:n], x_test=x[n:].numpy(), y_test=y[n:])


def final_error(
    config: ExperimentConfig, table: Path, executor: Literal["loop", "stacked"]
) -> float:
    """Run a configuration with Core-Set and return its final mean squared error."""
    chosen = replace(config, data=str(table), strategy=Spec("core-set"), executor=executor)
    event_log = EventLog()
    records = ExperimentRun(build_environment(chosen, 0, event_log), event_log).go()
    return float(records[-1]["mse"] or 0.0)


def prepare(is_quick: bool) -> Race:
    config = EXPERIMENT
    rows = ROWS
    if is_quick:
        config = TINY
        rows = 400
    folder = tempfile.TemporaryDirectory()
    write_rows(Path(folder.name) / "table.npz", rows)
    errors: dict[str, float] = {}  # mean squared error at the end

    def theirs() -> None:
        errors["theirs"] = final_error(config, Path(folder.name) / "table.npz", "loop")

    def ours() -> None:
        errors["ours"] = final_error(config, Path(folder.name) / "table.npz", "stacked")

    def are_equal() -> bool:
        return abs(errors["theirs"] - errors["ours"]) <= 1e-8

    return Race(theirs, ours, are_equal, runs=1, close=folder.cleanup)


ENTRIES = (
    Entry(
        "regression-queries",
        "the same queries, and sites that train one after the other, step by step; one run",
        bar=1.0,
        compared="the mean squared error at the end of the run that was timed, in float64: 1e-8",
        prepare=prepare,
        ceiling=23.5,  # half of the duration of an earlier version
    ),
)
