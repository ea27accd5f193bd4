"""Labels to a target accuracy with few labels: the tables of studies/few-labels.md.

    python scripts/few_labels.py join NAME FOLDER [NAME FOLDER ...]   # scores of studies, by trainer
    python scripts/few_labels.py write                                # puts the tables into the page

NAME is the trainer, such as "closed form".  FOLDER is that of one study of a task of the benchmark.
Scores of other tasks and trainers stay in the file.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

import pandas as pd
from sections import replace_section

from fallow.report.final_table import p_text
from fallow.study.benchmark import areas
from fallow.study.reading import read_study
from fallow.study.statistics import compare_pairs, holm, wilcoxon_exact

SCORES = Path("studies/few-labels.parquet")
OURS = "typical_unsure"
CLOSED = "closed form"
TARGETS = (0.8, 0.9, 0.95)
HEADLINE = 0.95
PAGE = Path("studies/few-labels.md")
Curve = Sequence[tuple[int, float]]


def labels_to(curve: Curve, target: float) -> float:
    """Return the labels at which a curve reaches a score, log-linear between budgets.

    Infinite if it never does; the first budget if it starts there.

    >>> round(labels_to([(10, 0.5), (100, 0.7), (1000, 0.9)], 0.6))
    32
    """
    before: tuple[int, float] | None = None
    for labels, score in curve:
        if score >= target:
            if before is None:
                return float(labels)
            part = (target - before[1]) / (score - before[1])
            return math.exp(
                math.log(before[0]) + part * (math.log(labels) - math.log(before[0]))
            )
        before = (labels, score)
    return math.inf


def read_folder(trainer: str, folder: Path) -> list[dict[str, object]]:
    """Return one row for each strategy, seed and budget of a study."""
    study = read_study(folder)
    settings = json.loads((folder / "study.json").read_text(encoding="utf-8"))["config"]
    task = str(settings["name"]).removeprefix("benchmark/").removesuffix("-fedavg")
    rows: list[dict[str, object]] = []
    for cell in study.cells:
        scores = study.curve(cell.strategy)
        for cycle in cell.cycles:
            last = cell.last_of(cycle)
            score = scores.get(cycle, {}).get(cell.seed)
            if last is None or score is None or not last.get("labeled"):
                continue
            rows.append(
                {
                    "task": task,
                    "trainer": trainer,
                    "strategy": cell.strategy,
                    "seed": cell.seed,
                    "cycle": cycle,
                    "labels": int(last["labeled"]),
                    "accuracy": score,
                }
            )
    return rows


def replace_scores(scores: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Return both tables, without earlier scores of the tasks and trainers of ``new``."""
    keys = ["task", "trainer"]
    is_old = pd.MultiIndex.from_frame(scores[keys]).isin(
        pd.MultiIndex.from_frame(new[keys])
    )
    return pd.concat([scores[~is_old], new], ignore_index=True)


def needed(rows: pd.DataFrame, target: float) -> dict[int, float]:
    """Return the labels that each seed needs."""
    outcome = {}
    for seed, of_seed in rows.groupby("seed"):
        ordered = of_seed.sort_values("cycle")
        curve = list(zip(ordered["labels"], ordered["accuracy"], strict=True))
        outcome[int(seed)] = labels_to(curve, target)
    return outcome


def show_number(value: float, last: int) -> str:
    """Return a number of labels; ``last`` is that of the last budget."""
    return f"> {last}" if math.isinf(value) else f"{value:.0f}"


def show_needed(values: Sequence[float], last: int) -> str:
    """Return the median and the range over seeds."""
    low = show_number(min(values), last)
    high = show_number(max(values), last)
    return f"{show_number(median(values), last)} ({low} to {high})"


def compare_needed(rows: pd.DataFrame) -> str:
    """Return the table of a task: labels to each target (median and range), area and seeds."""
    lines = []
    for (trainer, strategy), own in rows.groupby(["trainer", "strategy"], sort=False):
        by_target = {target: needed(own, target) for target in TARGETS}
        last = int(own["labels"].max())
        cells = [show_needed(list(values.values()), last) for values in by_target.values()]
        area = fmean(areas(own)[str(strategy)].values())
        seeds = own["seed"].nunique()
        cells += [f"{100 * area:.1f}", str(seeds)]
        line = f"| {trainer} | {strategy} | {' | '.join(cells)} |"
        lines.append((median(by_target[HEADLINE].values()), -area, line))
    heads = " | ".join(f"to {100 * target:.0f} %" for target in TARGETS)
    head = f"| training | strategy | {heads} | area | seeds |\n|---|---|---:|---:|---:|---:|---:|"
    return "\n".join([head, *(line for *_, line in sorted(lines))])


def find_headline(ours: pd.DataFrame) -> float:
    """Return the highest target that a strategy reaches with every seed."""
    reached = [
        target
        for target in TARGETS
        if not any(math.isinf(labels) for labels in needed(ours, target).values())
    ]
    return max(reached, default=TARGETS[0])


def compare_with_fedavg(rows: pd.DataFrame) -> str:
    """Return `OURS` in closed form against each published strategy by FedAvg, as ratios of labels.

    A seed that never reaches the target counts with its last budget.
    """
    is_ours = (rows["trainer"] == CLOSED) & (rows["strategy"] == OURS)
    target = find_headline(rows[is_ours])
    ours = needed(rows[is_ours], target)
    names = []
    logs = []
    for (trainer, strategy), own in rows[rows["trainer"] != CLOSED].groupby(
        ["trainer", "strategy"], sort=False
    ):
        theirs = needed(own, target)
        last = int(own["labels"].max())
        seeds = sorted(set(ours) & set(theirs))
        names.append(f"{strategy}, {trainer}")
        logs.append([math.log(min(theirs[seed], last) / ours[seed]) for seed in seeds])
    p = holm([wilcoxon_exact(ratios) for ratios in logs])
    lines = [f"| against | labels to {100 * target:.0f} %, theirs / ours | Holm p |"]
    lines.append("|---|---:|---:|")
    for at in sorted(range(len(names)), key=lambda at: fmean(logs[at])):
        ratio = math.exp(fmean(logs[at]))
        lines.append(f"| {names[at]} | {ratio:.2f} | {p_text(p[at])} |")
    return "\n".join(lines)


def compare_areas(rows: pd.DataFrame) -> str:
    """Return `OURS` against each other strategy in closed form, by areas."""
    own = rows[rows["trainer"] == CLOSED]
    values: Mapping[str, Mapping[int, float]] = areas(own)
    pairs = [(OURS, name) for name in values if name != OURS]
    lines = ["| against | difference of areas, points | Holm p |", "|---|---:|---:|"]
    compared = sorted(compare_pairs(values, pairs), key=lambda item: item.difference)
    for item in compared:
        low, high = 100 * item.interval.low, 100 * item.interval.high
        lines.append(
            f"| {item.reference} | {100 * item.difference:+.2f} [{low:+.2f}, {high:+.2f}] "
            f"| {p_text(item.holm)} |"
        )
    return "\n".join(lines)


def write_tables(scores: pd.DataFrame) -> str:
    """Return the tables of all tasks."""
    parts = []
    for task, rows in scores.groupby("task", sort=False):
        parts += [f"### {task}", compare_needed(rows), compare_areas(rows)]
        if set(rows["trainer"]) != {CLOSED}:
            parts.append(compare_with_fedavg(rows))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("join", "write"))
    parser.add_argument("studies", nargs="*", help="NAME FOLDER, for join")
    args = parser.parse_args()
    if args.what == "join":
        rows: list[dict[str, object]] = []
        for trainer, folder in zip(args.studies[::2], args.studies[1::2], strict=True):
            rows += read_folder(trainer, Path(folder))
        frame = pd.DataFrame(rows).astype({"accuracy": "float32"})
        if SCORES.exists():
            frame = replace_scores(pd.read_parquet(SCORES, engine="pyarrow"), frame)
        frame.to_parquet(SCORES, engine="pyarrow", index=False)
        return
    page = PAGE.read_text(encoding="utf-8")
    tables = write_tables(pd.read_parquet(SCORES, engine="pyarrow"))
    PAGE.write_text(replace_section(page, "tables", tables), encoding="utf-8")


if __name__ == "__main__":
    main()
