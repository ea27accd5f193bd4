"""Measure AHFAL's Equations 5 to 9 on MNIST: studies/ahfal.md.

    python scripts/measure_mixture.py DATA     # the folder of fallow datasets mnist --fetch

The entropy of an example is estimated by the local and by the global model of its site.  The truth
is the entropy of the mean prediction of five networks, which are trained on 20,000 other examples.
A cell has the examples of one local prediction at one site, 20 or more.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

import fallow as fl
from fallow.core.ask import Ask
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import Budget, Memo, label_counts, selects
from fallow_papers.ahfal.mixture import (
    EstimateErrors,
    best_weight,
    is_hybrid_better,
    measure_errors,
    squared_error,
)

ALPHAS = (0.1, 1.0)
SEEDS = range(4)
ROWS = 8000
OTHERS = 20000
COMMITTEE = 5
SITES = 10
FEWEST = 20  # examples of a cell
TAU = 0.12  # threshold on the spread of label shares, as AHFAL's
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
TRAINING: dict[str, Any] = {
    "model": "lenet",
    "training": "fedavg",
    "training_config": fl.TrainingConfig(
        (fl.TrainingStage(2),), 16, fl.Optimizer(lr=0.02, momentum=0.9)
    ),
    "standardize": "none",
    "progress": False,
}


class Pool(NamedTuple):
    """Counts of labels by class at a site in a query, and the errors of each predicted class."""

    counts: Tensor  # (classes,)
    errors: dict[int, EstimateErrors]


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropies in nats, (n,)."""
    entropies: Tensor = torch.special.entr(probabilities.double()).sum(1)
    return entropies


@dataclass(frozen=True)
class Recorder:
    """Select at random, and record the errors of both entropies."""

    contract: ClassVar[fl.Contract] = fl.Contract(
        title="Recorder", needs=("local", "global")
    )
    committee: ClassVar[list[fl.Run]] = []
    pools: ClassVar[list[Pool]] = []

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        x = view.rows()
        outputs = [torch.as_tensor(run.predict_proba(x)) for run in self.committee]
        truth = entropy(torch.stack(outputs).mean(0))
        local, common = (view.logits(model).softmax(1) for model in ("local", "global"))
        predicted = local.argmax(1)
        errors = {}
        for label in range(view.classes):
            cell = predicted == label
            if int(cell.sum()) >= FEWEST:
                errors[label] = measure_errors(
                    entropy(local[cell]), entropy(common[cell]), truth[cell]
                )
        self.pools.append(Pool(view.counts.clone(), errors))
        order = torch.randperm(len(x), generator=view.stream("order"))
        return SelectedExamples(order[:n])


def split_examples(folder: str) -> tuple[fl.Dataset, fl.Dataset]:
    """Return the examples of the study and others, which the committee is trained on."""
    mnist = fl.load("mnist", folder)
    order = torch.randperm(len(mnist.x), generator=torch.Generator().manual_seed(0))
    parts = []
    for rows in (order[:ROWS], order[ROWS : ROWS + OTHERS]):
        parts.append(
            fl.from_arrays(
                mnist.x[rows], mnist.y[rows], x_test=mnist.x_test, y_test=mnist.y_test
            )
        )
    return parts[0], parts[1]


def measure(study: fl.Dataset, alpha: float) -> dict[str, list[EstimateErrors]]:
    """Return the errors in classes with a spread of label shares below tau, and in the others."""
    cells: dict[str, list[EstimateErrors]] = defaultdict(list)
    for seed in SEEDS:
        Recorder.pools.clear()
        federation = fl.Federation(study, fl.ExactDirichlet(alpha=alpha), sites=SITES)
        settings: dict[str, Any] = {
            "initial": 0.1,
            "budget": 0.05,
            "cycles": 3,
            "rounds": 15,
        }
        fl.run(federation, Recorder(), seed=seed, **settings, **TRAINING)
        for start in range(0, len(Recorder.pools), SITES):  # a query
            pools = Recorder.pools[start : start + SITES]
            counts = torch.stack([pool.counts for pool in pools])
            spread = (counts / counts.sum(1, keepdim=True)).std(0, correction=0)
            for pool in pools:
                for label, errors in pool.errors.items():
                    cells["below" if spread[label] < TAU else "above"].append(errors)
    return cells


def main() -> None:
    study, others = split_examples(sys.argv[1])
    for seed in range(COMMITTEE):
        settings: dict[str, Any] = {"initial": 1.0, "cycles": 0, "rounds": 5, "sites": 1}
        run = fl.run(others, seed=seed, partition="iid", **settings, **TRAINING)
        print(run, flush=True)
        Recorder.committee.append(run)
    print(
        "alpha spread cells V_L V_G bias_L bias_G covariance best_weight hybrid_better error"
    )
    for alpha in ALPHAS:
        for spread, cells in measure(study, alpha).items():
            numbers = [
                fmean(errors.local_variance for errors in cells),
                fmean(errors.global_variance for errors in cells),
                fmean(errors.local_bias for errors in cells),
                fmean(errors.global_bias for errors in cells),
                fmean(errors.covariance for errors in cells),
                fmean(best_weight(errors) for errors in cells),
                fmean(is_hybrid_better(errors) for errors in cells),
                *[fmean(squared_error(errors, w) for errors in cells) for w in WEIGHTS],
            ]
            shown = " ".join(f"{number:.3f}" for number in numbers)
            print(f"{alpha:g} {spread} {len(cells)} {shown}", flush=True)


if __name__ == "__main__":
    main()
