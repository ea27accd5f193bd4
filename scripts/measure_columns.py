"""Measure closed-form training on the columns of tables and on Fourier features, by labels.

    python scripts/measure_columns.py --data-dir DATA

Random selection, ten seeds, three sites of digits or four hospitals of the heart table; each cell is
the mean accuracy in percent with the standard error of the mean.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import fallow as fl

LABELS = (20, 40, 80, 120, 200)
SEEDS = range(10)
ENCODERS = {"columns": fl.Identity(), "Fourier features": fl.Fourier()}


def measure(
    federation: fl.Federation, encoder: object, labels: int, sites: int
) -> tuple[float, float]:
    """Return mean and standard error of the accuracy over seeds, in percent."""
    scores = []
    for seed in SEEDS:
        run = fl.run(
            federation,
            fl.Random(),
            training=fl.ClosedForm(unlabeled="off"),
            encoder=encoder,
            initial=labels // sites,
            cycles=0,
            seed=seed,
            progress=False,
        )
        scores.append(100 * float(run.records["accuracy"].iloc[-1]))
    values = torch.tensor(scores, dtype=torch.float64)
    return float(values.mean()), float(values.std()) / len(scores) ** 0.5


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    data_dir = parser.parse_args().data_dir
    torch.set_num_threads(1)
    federations = {
        "heart": (fl.Federation(fl.load("heart", data_dir=data_dir)), 4),
        "digits": (fl.Federation(fl.load("digits"), fl.IID(), sites=3), 3),
    }
    print("| data | features | " + " | ".join(f"{n} labels" for n in LABELS) + " |")
    print("|---|---|" + "---|" * len(LABELS))
    for name, (federation, sites) in federations.items():
        for title, encoder in ENCODERS.items():
            cells = []
            for labels in LABELS:
                mean, error = measure(federation, encoder, labels, sites)
                cells.append(f"{mean:.1f} ± {error:.1f}")
            print(f"| {name} | {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
