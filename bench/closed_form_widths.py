"""CPU seconds of a closed-form cycle by number of features, against a phase of FedAvg.

The phase is that of ``strategies/mnist``: 10 sites, 8,000 examples, all labeled.

`python -m bench.closed_form_widths [FEATURES ...] [--repeats N]` prints a row for each
number of features: medians of alternating runs in one process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from rich.console import Console

from bench.closed_form import ROUNDS, features, fedavg, phase
from bench.timing import describe_machine
from fallow.training import ClosedForm

WIDTHS = (64, 128, 256, 512, 1024)
ROWS = 8000
PIXELS = 784


def time_once(train: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    began = time.process_time()
    train()
    return time.process_time() - began


def race(widths: Sequence[int], rows: int, rounds: int, repeats: int) -> list[float]:
    """Return the median CPU seconds of FedAvg and of each number of features."""
    phases = [phase(features(rows, PIXELS), "mlp", fedavg(), rounds)]
    for width in widths:
        phases.append(
            phase(features(rows, width), "linear", ClosedForm(unlabeled="off"), 1)
        )
    seconds: list[list[float]] = [[] for _ in phases]
    for _ in range(repeats):
        for of_phase, one in zip(seconds, phases, strict=True):
            of_phase.append(time_once(one.train))
    return [median(of_phase) for of_phase in seconds]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.closed_form_widths", description=__doc__
    )
    parser.add_argument("features", nargs="*", type=int, default=WIDTHS)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(width=120)
    console.print(describe_machine())
    theirs, *ours = race(options.features, ROWS, ROUNDS, options.repeats)
    console.print("| features | closed form, CPU seconds | FedAvg, CPU seconds | ratio |")
    console.print("|---:|---:|---:|---:|")
    for width, seconds in zip(options.features, ours, strict=True):
        console.print(
            f"| {width:,} | {seconds:.3f} | {theirs:.2f} | {theirs / seconds:.1f} |"
        )


if __name__ == "__main__":
    main()
