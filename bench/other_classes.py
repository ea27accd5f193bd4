"""Transfer of features between classes.

FedAvg trains a body on the first half of the classes. It encodes examples of the other
half, for which a closed-form classifier is fitted.

`FALLOW_DATA=DATA python -m bench.other_classes DATA_SET ... [--seeds N]` prints a table for
each data set with the test accuracy on the other half of the classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

import fallow as fl
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data.dataset import Dataset
from fallow.models import build_model

ROWS = 2000  # of each half, and as many test examples
FIRST = 0.05
MORE = 0.05
NETWORK = "digitscnn"
CONFIG = TrainingConfig((TrainingStage(2),), 32, Optimizer(lr=0.05, momentum=0.9))
ROUNDS = 15


def half_of(dataset: Dataset, classes: range, seed: int) -> Dataset:
    """Return examples of these classes, relabeled from 0 and drawn by the seed."""

    def draw(y: Tensor, purpose: str) -> Tensor:
        inside = ((y >= classes.start) & (y < classes.stop)).nonzero().squeeze(1)
        generator = stream(seed, purpose, dataset.name, classes.start)
        return inside[torch.randperm(len(inside), generator=generator)[:ROWS]]

    train = draw(dataset.y, "rows")
    test = draw(dataset.y_test, "test rows")
    return Dataset(
        name=f"{dataset.name}, classes {classes.start} to {classes.stop - 1}",
        x=dataset.x[train],
        y=dataset.y[train] - classes.start,
        x_test=dataset.x_test[test],
        y_test=dataset.y_test[test] - classes.start,
        classes=tuple(dataset.classes[item] for item in classes),
    )


def deal(rows: Dataset) -> fl.Federation:
    """Split the examples over ten sites with different class distributions."""
    return fl.Federation(rows, fl.ExactDirichlet(alpha=0.1), sites=10)


def train_body(rows: Dataset, seed: int) -> nn.Module:
    """Return a network trained by FedAvg on all examples of ten sites."""
    run = fl.run(
        deal(rows),
        training="fedavg",
        model=NETWORK,
        initial=1.0,
        cycles=0,
        rounds=ROUNDS,
        training_config=CONFIG,
        seed=seed,
        progress=False,
    )
    if not isinstance(run.model, nn.Module):
        raise TypeError("each site has a model of its own, and one body was asked for")
    return run.model


def score(rows: Dataset, seed: int, **settings: Any) -> list[float]:
    """Return the accuracies in percent before and after a margin query."""
    run = fl.run(
        deal(rows),
        strategy="margin",
        initial=FIRST,
        budget=MORE,
        cycles=1,
        seed=seed,
        progress=False,
        **settings,
    )
    last = run.records[run.records["final"]]
    return [100 * item for item in last["accuracy"]]


def compare(dataset: Dataset, seed: int) -> dict[str, list[float]]:
    """Return the scores on the second half of the classes for each kind of features."""
    middle = len(dataset.classes) // 2
    known = half_of(dataset, range(middle), seed)
    new = half_of(dataset, range(middle, len(dataset.classes)), seed)
    body = train_body(known, seed)
    shape = tuple(known.x.shape[1:])
    untrained = build_model(NETWORK, shape, middle, stream(seed, "untrained"))
    solved = {"training": "closed-form:unlabeled=off"}
    return {
        "closed form, body trained on the other classes": score(
            new, seed, encoder=body, **solved
        ),
        "closed form, the same body untrained": score(
            new, seed, encoder=untrained, **solved
        ),
        "closed form, random filters": score(new, seed, **solved),
        "FedAvg, the same network from scratch": score(
            new,
            seed,
            training="fedavg",
            model=NETWORK,
            rounds=ROUNDS,
            training_config=CONFIG,
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.other_classes", description=__doc__)
    parser.add_argument("sets", nargs="+", metavar="DATA_SET")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console(width=200)
    for name in options.sets:
        result = fl.load(name)
        scores = [compare(result, seed) for seed in range(options.seeds)]
        console.print(f"| {name} | 5 % of labels | 10 % |")
        console.print("|---|---:|---:|")
        for way in scores[0]:
            cells = []
            for phase in range(2):
                of_phase = [of_seed[way][phase] for of_seed in scores]
                cells.append(f"{fmean(of_phase):.2f} ± {stdev(of_phase):.2f}")
            console.print(f"| {way} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
