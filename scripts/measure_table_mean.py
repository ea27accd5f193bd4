"""Measure means of the predictions of learners for tables, beside each learner alone.

    python scripts/measure_table_mean.py run FILE [--seeds 10] [--tables heart,pol]
    python scripts/measure_table_mean.py table FILE

Each seed draws up to 4,000 examples and as many test examples as remain, 2,000 at most, and labels
random examples at one site, as pooled examples give the same models.  The learners are the closed
form on the columns, on the features of ``encoder=tabular``, and boosted trees.  A mean is that of
class probabilities or of predicted numbers.  ``run`` appends a line per table, seed and number of
labels, and continues where it stopped.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

import fallow as fl

TABLES = ("heart", "breast_cancer", "diamonds", "elevators", "kin40k", "pol", "protein")
LABELS = (20, 50, 100, 200)
ROWS = 4000
TEST = 2000
CLOSED = {"training": "closed-form:unlabeled=off"}
LEARNERS: dict[str, dict[str, Any]] = {
    "columns": CLOSED,
    "tabular": {**CLOSED, "encoder": "tabular"},
    "trees": {"training": "boosted-trees"},
}
MEANS = {
    "columns + tabular": ("columns", "tabular"),
    "tabular + trees": ("tabular", "trees"),
    "all three": tuple(LEARNERS),
}
Floats = npt.NDArray[np.float64]


def draw_table(name: str, seed: int) -> fl.Dataset:
    """Return the examples of a seed, with test examples that are not among them."""
    dataset = fl.load(name)
    x = np.concatenate([dataset.x.numpy(), dataset.x_test.numpy()])
    y = np.concatenate([dataset.y.numpy(), dataset.y_test.numpy()])
    order = np.random.default_rng(seed).permutation(len(y))
    n_test = min(TEST, len(y) // 3)
    test = order[:n_test]
    rows = order[n_test : n_test + ROWS]
    known = {x[row].tobytes() for row in rows}
    test = np.array([row for row in test if x[row].tobytes() not in known])
    task: Literal["classification", "regression"] = "classification"
    if dataset.task == "regression":
        task = "regression"
    return fl.from_arrays(
        x[rows], y[rows], x_test=x[test], y_test=y[test], name=name, task=task
    )


def predict(run: fl.Run, dataset: fl.Dataset) -> Floats:
    """Return class probabilities (n, C) or predicted numbers (n,) of the test examples."""
    x = dataset.x_test.numpy()
    if dataset.task == "regression":
        return np.asarray(run.predict(x), dtype=np.float64)
    return run.predict_proba(x)


def score(outputs: Floats, dataset: fl.Dataset) -> float:
    """Return the accuracy, or the explained variance, of test examples in percent."""
    y = dataset.y_test.numpy()
    if dataset.task == "regression":
        return 100 * float(1 - np.square(outputs - y).mean() / y.var())
    return 100 * float(np.mean(outputs.argmax(1) == y))


def measure(name: str, seed: int) -> list[dict[str, object]]:
    """Return a line for each number of labels."""
    dataset = draw_table(name, seed)
    lines: list[dict[str, object]] = []
    for labels in LABELS:
        outputs: dict[str, Floats] = {}
        for learner, settings in LEARNERS.items():
            run = fl.run(
                fl.Federation(dataset, fl.IID(), sites=1),
                "random",
                initial=labels,
                cycles=0,
                seed=seed,
                progress=False,
                **settings,
            )
            outputs[learner] = predict(run, dataset)
        for mean, learners in MEANS.items():
            outputs[mean] = np.mean([outputs[learner] for learner in learners], axis=0)
        scores = {
            learner: round(score(own, dataset), 3) for learner, own in outputs.items()
        }
        lines.append({"table": name, "seed": seed, "labels": labels, **scores})
    return lines


def print_table(file: Path) -> None:
    """Print the score of ``tabular``, and the gain of each other learner and mean over it."""
    lines = pd.read_csv(file)
    others = [name for name in (*LEARNERS, *MEANS) if name != "tabular"]
    print(f"| table | labels | tabular | {' | '.join(others)} |")
    print(f"|---|---:|---:|{len(others) * '---:|'}")
    for (table, labels), part in lines.groupby(["table", "labels"], sort=False):
        cells = [f"{part['tabular'].mean():.1f} ± {part['tabular'].std():.1f}"]
        for name in others:
            gain = part[name] - part["tabular"]
            cells.append(f"{gain.mean():+.1f} ± {gain.std():.1f}")
        print(f"| {table} | {labels} | {' | '.join(cells)} |")
    cells_of = lines.groupby(["table", "labels"])
    for name in others:
        gain = (lines[name] - lines["tabular"]).groupby([lines["table"], lines["labels"]])
        means = gain.mean()
        print(
            f"{name}: mean {means.mean():+.2f} over {len(cells_of)} cells, worst "
            f"{means.min():+.2f}, {int((means < 0).sum())} below 0"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tables", default=",".join(TABLES))
    args = parser.parse_args()
    if args.what == "table":
        print_table(args.file)
        return
    done: set[tuple[object, ...]] = set()
    if args.file.exists():
        known = pd.read_csv(args.file)
        done = set(zip(known["table"], known["seed"], strict=True))
    warnings.simplefilter("ignore")  # of few labels
    for seed in range(args.seeds):
        for name in args.tables.split(","):
            if (name, seed) not in done:
                lines = pd.DataFrame(measure(name, seed))
                lines.to_csv(
                    args.file, mode="a", header=not args.file.exists(), index=False
                )


if __name__ == "__main__":
    main()
