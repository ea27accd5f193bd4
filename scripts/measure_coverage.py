"""Measure the coverage of prediction sets on new examples, over all sites and at each site.

    python scripts/measure_coverage.py --data-dir DATA

Fashion-MNIST, ten sites, a closed-form classifier on 600 labels, coverage 0.9.  The quantile comes
from 1,000 test examples, and coverage is measured on 9,000 others.  The sites differ in the shares of
their classes only (label shift), so that the coverage at a site is the mean of the coverages of the
classes, weighted by the shares of its training examples.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import torch

import fallow as fl

COVERAGE = 0.9
KNOWN = 1000
"""Test examples from which the quantile is computed."""
TRAINING = 6000
"""Training examples."""
PARTITIONS = (100.0, 1.0, 0.1)
"""Concentrations of the Dirichlet distribution."""
HEADER = ("partition", "all sites", "lowest site", "sites below 85 %", "cannot tell")


def measure(data: fl.Dataset, alpha: float, seed: int) -> list[float]:
    """Return the values of a row of the table for one seed, in percent."""
    order = torch.randperm(len(data.x_test), generator=torch.Generator().manual_seed(seed))
    known, new = order[:KNOWN], order[KNOWN:]
    federation = fl.Federation(
        replace(data, x_test=data.x_test[known], y_test=data.y_test[known]),
        fl.Dirichlet(alpha=alpha),
        sites=10,
    )
    run = fl.run(
        federation,
        training=fl.ClosedForm(unlabeled="off"),  # as in the published measurement
        initial=0.1,
        cycles=0,
        coverage=COVERAGE,
        seed=seed,
        progress=False,
    )
    sets = torch.from_numpy(run.predict_set(data.x_test[new]))
    true = data.y_test[new].long()
    is_covered = sets[torch.arange(len(new)), true].double()
    of_classes = torch.stack([is_covered[true == c].mean() for c in range(data.n_classes)])
    at_sites = []
    for rows in federation.rows(seed).values():
        labels = torch.bincount(data.y[rows].long(), minlength=data.n_classes).double()
        at_sites.append(float(labels @ of_classes / labels.sum()))
    below = fmean(coverage < 0.85 for coverage in at_sites)
    unclear = float((sets.sum(1) != 1).double().mean())
    return [100 * x for x in (float(is_covered.mean()), min(at_sites), below, unclear)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    chosen = parser.parse_args()
    whole = fl.load("fashion_mnist", data_dir=chosen.data_dir)
    data = replace(whole, x=whole.x[:TRAINING], y=whole.y[:TRAINING])
    print(f"| {' | '.join(HEADER)} |\n|---|{'---:|' * 4}")
    for alpha in PARTITIONS:
        values = [measure(data, alpha, seed) for seed in range(chosen.seeds)]
        columns = list(zip(*values, strict=True))
        cells = [f"{fmean(column):.1f} ± {stdev(column):.1f}" for column in columns]
        print(f"| Dirichlet {alpha:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
