"""Measure the seconds of an example in training and in prediction, on one core.

    OMP_NUM_THREADS=1 python scripts/measure_paces.py        measure what paces.csv lacks
    OMP_NUM_THREADS=1 python scripts/measure_paces.py --all  measure everything again

The models and shapes are those of the tables and figures of papers (``fallow papers``).  Examples
are random.  Seconds are those of the process, so that other processes do not change them.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from fallow.catalog import find_entry
from fallow.configs.item_costs import PACES, CorePace, list_pace_keys, read_paces
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


def measure(config: ExperimentConfig) -> CorePace:
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

    return CorePace(time_calls(step, n), time_calls(look, n))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure seconds of an example")
    parser.add_argument("--all", action="store_true")
    again = parser.parse_args().all
    torch.set_num_threads(1)
    keys = list_pace_keys(list_items(load_papers()))
    known = {} if again else read_paces()
    rows = [("model", "shape", "train_s", "look_s")]
    for key in sorted(keys):
        if key in known:
            pace = known[key]
        else:
            pace = measure(keys[key])
        rows.append((*key, f"{pace.train:.2e}", f"{pace.look:.2e}"))
        print(*rows[-1], flush=True)
    with PACES.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
