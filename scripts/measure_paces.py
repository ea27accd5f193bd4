"""Measure the seconds of an example in training and in prediction, on one core.

    OMP_NUM_THREADS=1 python scripts/measure_paces.py       write src/fallow/configs/paces.csv

The models and shapes are those of the tables and figures of papers (``fallow papers``).  Examples
are random.  Seconds are those of the process, so that other processes do not change them.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from fallow.catalog import find_entry
from fallow.configs.item_costs import PACES, list_pace_keys
from fallow.configs.items import list_items
from fallow.configs.papers import load_papers
from fallow.core.streams import stream
from fallow.models.build import build_model
from fallow.settings.config import ExperimentConfig

SPENT = 1.0  # s of a measurement
WARM = 2  # repetitions that are not counted


def time_calls(call: Callable[[], object], examples: int) -> float:
    """Return the seconds of one example."""
    for _ in range(WARM):
        call()
    repetitions = 0
    started = time.process_time()
    spent = 0.0
    while spent < SPENT:
        call()
        repetitions += 1
        spent = time.process_time() - started
    return spent / repetitions / examples


def measure(config: ExperimentConfig) -> tuple[float, float]:
    """Return the seconds of an example in a training step and in prediction."""
    entry = find_entry(config.data)
    generator = stream(0, "pace")
    outputs = entry.classes or 1
    model = build_model(
        config.model.name, entry.shape, outputs, generator, **config.model.fields
    )
    n = config.completed_training.examples_per_step
    x = torch.rand((n, *entry.shape), generator=generator)
    y = torch.randint(0, outputs, (n,), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def loss() -> Tensor:
        if entry.classes:
            return cross_entropy(model(x), y)
        return mse_loss(model(x).flatten(), y.float())

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def look() -> None:
        with torch.no_grad():
            model(x)

    return time_calls(step, n), time_calls(look, n)


def main() -> None:
    torch.set_num_threads(1)
    keys = list_pace_keys(list_items(load_papers()))
    with PACES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "shape", "train_s", "look_s"))
        for key in sorted(keys):
            train, look = measure(keys[key])
            writer.writerow((*key, f"{train:.2e}", f"{look:.2e}"))
            print(*key, f"{train:.2e} {look:.2e}", flush=True)


if __name__ == "__main__":
    main()
