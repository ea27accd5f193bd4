"""Measure how well `Run.find_label_issues` finds wrong labels, and what their correction is worth.

    python scripts/measure_label_issues.py --data-dir DATA

Digits, and 6,000 training and 2,000 test examples of Fashion-MNIST, at ten sites, Dirichlet 0.1, with
a closed-form classifier on about 600 labels of random examples.  A share of these labels is replaced by
another class, drawn uniformly; test examples have the right labels.  The k first labels of the ranking
are then corrected, k being the number of wrong ones, and the classifier is trained again on the same
examples.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import average_precision_score

import fallow as fl

DATASETS = ("digits", "fashion_mnist")
TRAINING = 6000
"""Largest number of training examples."""
TEST = 2000
"""Largest number of test examples."""
SHARES = (0.05, 0.1, 0.2)
"""Shares of wrong labels."""
LABELS = 600
HEADER = (
    "data",
    "wrong",
    "precision at k",
    "average precision",
    "accuracy",
    "after correction",
    "all right",
)


def train(data: fl.Dataset, y: torch.Tensor, seed: int) -> fl.Run:
    """Train on random examples with the labels ``y`` at the sites of the data."""
    federation = fl.Federation(replace(data, y=y), fl.Natural())
    share = LABELS / len(data.x)
    training = fl.ClosedForm(unlabeled="off")  # as in the published measurement
    return fl.run(
        federation, training=training, initial=share, cycles=0, seed=seed, progress=False
    )


def find_positions(rows: Mapping[str, np.ndarray], labels: pd.DataFrame) -> np.ndarray:
    """Return the index in the dataset of each label; ``rows`` are those of each site."""
    pairs = zip(labels["site"], labels["row"], strict=True)
    return np.array([rows[site][row] for site, row in pairs])


def measure(data: fl.Dataset, seed: int) -> list[list[float]]:
    """Return the values of a row of the table for each share and one seed, in percent."""
    partition = fl.Federation(data, fl.Dirichlet(alpha=0.1), sites=10).rows(seed)
    sites = torch.zeros(len(data.x), dtype=torch.long)
    for site, part in enumerate(partition.values()):
        sites[part] = site
    data = replace(data, sites=sites, site_names=tuple(partition))
    rows = fl.Federation(data, fl.Natural()).rows(seed)
    right = train(data, data.y, seed)
    labeled = find_positions(rows, right.labels)
    accuracy = right.records["accuracy"].iloc[-1]
    return [
        [*measure_share(data, rows, labeled, share, seed), 100 * accuracy]
        for share in SHARES
    ]


def measure_share(
    data: fl.Dataset,
    rows: Mapping[str, np.ndarray],
    labeled: np.ndarray,
    share: float,
    seed: int,
) -> list[float]:
    """Return precision at k, average precision, and accuracy before and after correction."""
    draw = np.random.default_rng(seed)
    k = round(share * len(labeled))
    wrong = draw.choice(labeled, k, replace=False)
    y = data.y.clone()
    away = torch.from_numpy(draw.integers(1, data.n_classes, k)).to(y.dtype)
    y[wrong] = (y[wrong] + away) % data.n_classes
    run = train(data, y, seed)
    issues = run.find_label_issues()
    ranked = find_positions(rows, issues)
    is_wrong = np.isin(ranked, wrong)
    y[ranked[:k]] = data.y[ranked[:k]]
    accuracies = [done.records["accuracy"].iloc[-1] for done in (run, train(data, y, seed))]
    average = average_precision_score(is_wrong, -issues["score"])
    return [100 * x for x in (is_wrong[:k].mean(), average, *accuracies)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    chosen = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n|---|{'---:|' * (len(HEADER) - 1)}")
    for name in DATASETS:
        whole = fl.load(name, data_dir=chosen.data_dir)
        data = replace(
            whole,
            x=whole.x[:TRAINING],
            y=whole.y[:TRAINING],
            x_test=whole.x_test[:TEST],
            y_test=whole.y_test[:TEST],
        )
        values = np.array([measure(data, seed) for seed in range(chosen.seeds)])
        means = values.mean(0)
        deviations = values.std(0, ddof=1)
        for share, mean, deviation in zip(SHARES, means, deviations, strict=True):
            cells = [f"{m:.1f} ± {d:.1f}" for m, d in zip(mean, deviation, strict=True)]
            print(f"| {name} | {100 * share:g} % | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
