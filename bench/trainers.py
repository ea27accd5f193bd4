"""CPU seconds and memory of one training phase by each training algorithm, per 10,000 examples.

Encoding and scoring are included.  Images are those of ``strategies/mnist`` with 10 % of the labels,
and tables are 8,000 examples of ``diamonds`` with as many; both have 2,000 test examples and ten sites.

`FALLOW_DATA=DATA python -m bench.trainers [--repeats N]` prints a row for each training algorithm:
median CPU seconds and peak memory of new processes, both without those of reading the data set,
megabytes uploaded and downloaded, and accuracy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.console import Console

import fallow as fl
from bench.memory import read_memory
from fallow.configs.find import find_config
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.experiment.rows import open_data

EXPERIMENT = "strategies/mnist"
CONVOLUTIONAL = {
    "model": "digitscnn",
    "rounds": 30,
    "training_config": TrainingConfig(
        (TrainingStage(2),), 32, Optimizer(lr=0.02, momentum=0.9)
    ),
}
TABLE = {"data": "diamonds", "partition": "iid"}
TRAINERS: Mapping[str, Mapping[str, Any]] = {
    "closed form, random filters": {"training": "closed-form:unlabeled=off"},
    "closed form, self-training": {"training": "closed-form"},
    "closed form, fourier": {"training": "closed-form:unlabeled=off", "encoder": "fourier"},
    "FedAvg, small network, 15 rounds": {},
    "the same with exact head": {"head": "exact"},
    "FedAvg, convolutional network, 30 rounds": CONVOLUTIONAL,
    "table: closed form, columns": {
        **TABLE,
        "training": "closed-form:unlabeled=off",
        "encoder": "identity",
    },
    "table: closed form, tabular": {
        **TABLE,
        "training": "closed-form:unlabeled=off",
        "encoder": "tabular",
    },
    "table: boosted trees": {**TABLE, "training": "boosted-trees"},
}


class Measured(NamedTuple):
    """CPU seconds and peak memory in MB of a process, megabytes up and down, and the score."""

    seconds: float
    memory: float
    up: float = 0.0
    down: float = 0.0
    score: float = float("nan")


def measure(settings: Mapping[str, Any]) -> Measured:
    """Return the costs of a phase in this process."""
    torch.set_num_threads(1)
    began = time.process_time()
    run = fl.run(config=EXPERIMENT, strategy="random", cycles=0, progress=False, **settings)
    seconds = time.process_time() - began
    last = run.records.iloc[-1]
    score = last["accuracy"]
    if score is None:  # regression
        score = 1 - last["mse"]
    return Measured(
        seconds,
        read_memory("VmHWM"),
        last["bytes_up"] / 1e6,
        last["bytes_down"] / 1e6,
        100 * score,
    )


def read_data(settings: Mapping[str, Any]) -> Measured:
    """Return the costs of reading the data in this process, which are part of every run."""
    config = find_config(EXPERIMENT)
    began = time.process_time()
    dataset = open_data(replace(config, data=settings.get("data", config.data)), 0)
    seconds = time.process_time() - began
    assert len(dataset.x)
    return Measured(seconds, read_memory("VmHWM"))


def measure_new(name: str, is_reading: bool) -> Measured:
    """Return the costs of a training algorithm, or of reading its data, in a new process."""
    side = read_data if is_reading else measure
    with get_context("spawn").Pool(1, initializer=warm_up) as workers:
        return workers.apply(side, (TRAINERS[name],))


def warm_up() -> None:
    """Import the modules of a run."""
    fl.run("digits", "random", rows=200, sites=2, cycles=0, initial=5, progress=False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.trainers", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    console = Console(width=200)
    console.print("| training | CPU seconds | memory, MB | up, MB | down, MB | score |")
    console.print("|---|---:|---:|---:|---:|---:|")
    for name in TRAINERS:
        reading = []
        runs = []
        for _ in range(options.repeats):
            reading.append(measure_new(name, is_reading=True))
            runs.append(measure_new(name, is_reading=False))
        seconds = median(run.seconds for run in runs) - median(
            read.seconds for read in reading
        )
        memory = median(run.memory for run in runs) - median(
            read.memory for read in reading
        )
        last = runs[-1]
        console.print(
            f"| {name} | {seconds:.1f} | {memory:.0f} | {last.up:.1f} | {last.down:.1f} | "
            f"{last.score:.2f} |"
        )


if __name__ == "__main__":
    main()
