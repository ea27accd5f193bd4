"""Measure self-training of the closed-form classifier, ``unlabeled=auto``, against ``off``.

    nice -n 19 python scripts/measure_self_training.py run studies/self-training.csv --seeds 10
    python scripts/measure_self_training.py table studies/self-training.csv

``run`` trains on the tasks of the benchmark with few labels, with examples selected at random, so
that both have the same labels.  It appends a line per number of labels and continues where it
stopped.  ``table`` prints the differences by task and number of labels per class.  A difference
passes the test if the lower end of its 90 % Student interval is above -0.5 points: one of the two
one-sided tests (TOST) of equivalence with this margin, at 5 %.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

import fallow as fl
from fallow.configs.few_labels import SOLVED, classes_of
from fallow.study.statistics import t_interval
from fallow.training.parts.self_training import FORMS

CYCLES = 4  # up to 20 labels per class
MARGIN = 0.5  # points
Choice = Literal["off", "auto"]
CHOICES: tuple[Choice, ...] = ("off", "auto")
COLUMNS = (
    "task",
    "seed",
    "unlabeled",
    "labels",
    "per_class",
    "accuracy",
    "form",
    "seconds",
)


def run_tasks(file: Path, seeds: range, tasks: list[str]) -> None:
    """Run what the file does not have yet, seed by seed."""
    done = set()
    if file.exists():
        for line in pd.read_csv(file).itertuples():
            done.add((line.task, line.seed, line.unlabeled))
    for seed in seeds:
        for config in SOLVED:
            name = config.name.removeprefix("benchmark/")
            if tasks and name not in tasks:
                continue
            for unlabeled in CHOICES:
                if (name, seed, unlabeled) not in done:
                    write_lines(file, run_one(config.name, name, seed, unlabeled))


def run_one(
    config: str, name: str, seed: int, unlabeled: Choice
) -> list[dict[str, object]]:
    """Return a line for each number of labels."""
    task = next(entry for entry in SOLVED if entry.name == config)
    cycles = min(CYCLES, task.cycles)
    budgets = tuple(task.budget_of(cycle) for cycle in range(cycles))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = fl.run(
            config=config,
            strategy="random",
            training=fl.ClosedForm(unlabeled=unlabeled),
            cycles=cycles,
            budget=budgets,
            seed=seed,
            progress=False,
        ).records
    lines: list[dict[str, object]] = []
    for record in records.to_dict("records"):
        if not record["labeled"]:
            continue
        lines.append(
            {
                "task": name,
                "seed": seed,
                "unlabeled": unlabeled,
                "labels": record["labeled"],
                "per_class": round(record["labeled"] / classes_of(task), 2),
                "accuracy": round(100 * record["accuracy"], 4),
                "form": FORMS[int(record.get("unlabeled", 0))],
                "seconds": round(record["seconds"], 2),
            }
        )
    return lines


def write_lines(file: Path, lines: list[dict[str, object]]) -> None:
    """Append lines to the file, with a header to a new one."""
    is_new = not file.exists()
    with file.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerows(lines)


def print_table(file: Path) -> None:
    """Print the differences, auto minus off, in points."""
    table = pd.read_csv(file)
    keys = ["task", "labels", "per_class", "seed"]
    off = table[table["unlabeled"] == "off"].set_index(keys)
    auto = table[table["unlabeled"] == "auto"].set_index(keys)
    both = off.merge(auto, on=keys, suffixes=("", "_auto")).reset_index()
    both["difference"] = both["accuracy_auto"] - both["accuracy"]
    print(
        "| task | labels per class | off | auto | difference [90 %] | worst | passes | forms |"
    )
    print("|---|---:|---:|---:|---:|---:|---|---|")
    for (task, _), part in both.groupby(["task", "labels"]):
        differences = part["difference"].to_numpy()
        interval = t_interval(differences.tolist(), level=0.9)
        forms = part["form_auto"].value_counts()
        cells = (
            task,
            f"{part['per_class'].iloc[0]:g}",
            spread(part["accuracy"].to_numpy()),
            spread(part["accuracy_auto"].to_numpy()),
            f"{differences.mean():+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]",
            f"{differences.min():+.2f}",
            "yes" if interval.low > -MARGIN else "no",
            ", ".join(f"{form} {count}" for form, count in forms.items()),
        )
        print(f"| {' | '.join(cells)} |")
    print(f"\n{both['seed'].nunique()} seeds; ± is the standard deviation over them.")


def spread(scores: np.ndarray) -> str:
    """Return mean ± standard deviation."""
    deviation = scores.std(ddof=1) if len(scores) > 1 else 0.0
    return f"{scores.mean():.2f} ± {deviation:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--tasks", default="", help="names, separated by commas (default: all)"
    )
    args = parser.parse_args()
    if args.what == "table":
        print_table(args.file)
        return
    run_tasks(
        args.file, range(args.seeds), [name for name in args.tasks.split(",") if name]
    )


if __name__ == "__main__":
    main()
