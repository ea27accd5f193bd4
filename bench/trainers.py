"""CPU seconds of one training phase by each training algorithm.

Encoding and scoring are included, and all run in one process. The data are those of
``strategies/mnist`` with 10 % of the labels.

`FALLOW_DATA=DATA python -m bench.trainers [--repeats N]` prints a row for each training
algorithm: median CPU seconds without reading the data set, megabytes uploaded and
downloaded, and accuracy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.console import Console

import fallow as fl
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
TRAINERS: Mapping[str, Mapping[str, Any]] = {
    "closed form, random filters": {"training": "closed-form:unlabeled=off"},
    "closed form, self-training": {"training": "closed-form"},
    "closed form, fourier": {"training": "closed-form:unlabeled=off", "encoder": "fourier"},
    "FedAvg, small network, 15 rounds": {},
    "the same with exact head": {"head": "exact"},
    "FedAvg, convolutional network, 30 rounds": CONVOLUTIONAL,
}


class Measured(NamedTuple):
    """CPU seconds of a phase, megabytes up and down, and accuracy in percent."""

    seconds: float
    up: float
    down: float
    accuracy: float


def measure(settings: Mapping[str, Any]) -> Measured:
    began = time.process_time()
    run = fl.run(config=EXPERIMENT, strategy="random", cycles=0, progress=False, **settings)
    seconds = time.process_time() - began
    last = run.records.iloc[-1]
    return Measured(
        seconds, last["bytes_up"] / 1e6, last["bytes_down"] / 1e6, 100 * last["accuracy"]
    )


def time_reading() -> float:
    """Return the CPU seconds of reading the data set, which are part of every run."""
    began = time.process_time()
    open_data(find_config(EXPERIMENT), 0)
    return time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.trainers", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    measure(TRAINERS["closed form, random filters"])  # import modules before timing
    reading = []
    results: dict[str, list[Measured]] = {name: [] for name in TRAINERS}
    for _ in range(options.repeats):
        reading.append(time_reading())
        for name, settings in TRAINERS.items():
            results[name].append(measure(settings))
    console = Console(width=200)
    console.print("| training | CPU seconds | up, MB | down, MB | accuracy |")
    console.print("|---|---:|---:|---:|---:|")
    for name, runs in results.items():
        seconds = median(run.seconds for run in runs) - median(reading)
        last = runs[-1]
        console.print(
            f"| {name} | {seconds:.1f} | {last.up:.1f} | {last.down:.1f} | {last.accuracy:.2f} |"
        )


if __name__ == "__main__":
    main()
