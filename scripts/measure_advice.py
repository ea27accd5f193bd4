"""Write the table for `fallow advise`, and measure its regret on left-out tasks.

    python scripts/measure_advice.py tables RUNS...    # the table that is shipped
    python scripts/measure_advice.py regret            # of that table, task by task

The table is that of studies/benchmark.csv, without the tasks that were trained by FedAvg.
RUNS are folders of ``fallow benchmark``: from them comes who held what on each task.

*Regret*: each task is left out in turn, and advice for its data, from 2, 8 and 32 labels a class
on, rests on the others.  Its regret is the mean score of the best strategy there less that of the
advised one, over the labels that the advice is about.  The best is found after the fact, over the
same seeds, so chance adds to the regret.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd

from fallow.configs.few_labels import (
    OURS,
    RIVALS,
    RULES,
    SCORES,
    SIMULATIONS,
    SOLVED,
    TUNED,
    read_table,
)
from fallow.study.advice import (
    AHEAD,
    COLUMNS,
    AdviceTable,
    advise,
    facts_of_counts,
    gains,
)
from fallow.study.benchmark import read_score_file
from fallow.study.reading import read_study

PUBLISHED = Path("studies/benchmark.csv")
ADVISED = {task.name for task in SOLVED} - set(TUNED)
"""Tasks of the table: closed-form classifiers, and no data on which constants were found."""
STARTS = (2.0, 8.0, 32.0)
ENOUGH = 15
"""Seeds of a strategy on a task; with fewer it is not advised."""


def write_tables(folders: Sequence[Path]) -> None:
    """The published scores and the facts of their tasks, as the package ships them.

    Strategies that were removed are not advised.
    """
    scores = read_score_file(PUBLISHED)
    scores = scores[scores["task"].isin(ADVISED)]
    seeds = scores.groupby(["task", "strategy"])["seed"].transform("nunique")
    scores = scores[(seeds >= ENOUGH) & scores["strategy"].isin([*OURS, *RIVALS])]
    simulations = {}
    for folder in folders:
        for file in sorted(folder.glob("*/study.json")):
            study = read_study(file.parent)
            values = next(
                (cell.partition for cell in study.cells if cell.partition is not None), None
            )
            name = str(study.study.config["name"])
            if values is None or name not in set(scores["task"]):
                continue
            facts = facts_of_counts(values.matrix)
            simulations[name] = (facts.classes, facts.sites, facts.apart, facts.uneven)
    missing = sorted(set(scores["task"]) - set(simulations))
    if missing:
        raise SystemExit(f"no runs of {', '.join(missing)} lie in these folders")
    SIMULATIONS.parent.mkdir(exist_ok=True)
    rows = [(task, *simulations[task]) for task in scores["task"].unique()]
    columns = ["task", "classes", "sites", "apart", "uneven"]
    pd.DataFrame(rows, columns=columns).to_csv(SIMULATIONS, index=False)
    scores[list(COLUMNS)].round({"accuracy": 5}).to_csv(SCORES, index=False)


def measure_task(
    table: AdviceTable, task: str, start: float
) -> tuple[str, str, float, float] | None:
    """Return the advice for a task that is left out, the best strategy, and two regrets in points.

    The regrets are those of the advised and of the default strategy. The result is None beyond the
    task's number of labels.
    """
    facts = table.simulations[task]
    rows = table.scores[table.scores["task"] == task]
    if start * facts.classes >= rows["labels"].max():
        return None
    others = table.without(task)
    here = set(rows["strategy"])  # what was not run here can be no advice to judge
    known = others.scores[others.scores["strategy"].isin(here)]
    advice = advise(AdviceTable(known, others.simulations), facts, start, RULES)
    outcome = {RULES.reference: 0.0}
    curves = table.curves[task]
    first = start * facts.classes
    for strategy in curves:
        of_seeds = gains(curves, strategy, RULES.reference, first, AHEAD * first)
        if of_seeds:
            outcome[strategy] = fmean(of_seeds)
    best = max(outcome, key=lambda strategy: outcome[strategy])
    taken = outcome[advice.strategy]
    return (
        advice.strategy,
        best,
        100 * (outcome[best] - taken),
        100 * (outcome[best] - outcome[RULES.usual]),
    )


def regret_lines() -> list[str]:
    """Return a table of the regret of advice on each task that is left out, with means."""
    table = read_table()
    lines = [
        "| task | labels a class | advised | best | regret, points | of the usual one |",
        "|---|---:|---|---|---:|---:|",
    ]
    regrets = []
    usual = []
    for task in table.simulations:
        for start in STARTS:
            outcome = measure_task(table, task, start)
            if outcome is None:
                continue
            strategy, best, regret, of_usual = outcome
            name = task.rpartition("/")[2]
            lines.append(
                f"| {name} | {start:.0f} to {AHEAD * start:.0f} | {strategy} | {best} | {regret:.2f} "
                f"| {of_usual:.2f} |"
            )
            regrets.append(regret)
            usual.append(of_usual)
    lines.append("")
    lines.append(
        f"Mean regret: {fmean(regrets):.2f} points over {len(regrets)} cells; of {RULES.usual} "
        f"everywhere {fmean(usual):.2f}; the largest {max(regrets):.2f}."
    )
    return lines


def main() -> None:
    """Write the table, or print regrets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("tables", "regret"))
    parser.add_argument("runs", nargs="*", type=Path)
    args = parser.parse_args()
    if args.what == "tables":
        write_tables(args.runs)
    else:
        print("\n".join(regret_lines()))


if __name__ == "__main__":
    main()
