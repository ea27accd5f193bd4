"""The published scores of the benchmark, and the tables of studies/benchmark.md from them.

    python scripts/benchmark_page.py join OUT.csv RUNS...   # adds what runs have
    python scripts/benchmark_page.py show [SECTION...]          # prints tables
    python scripts/benchmark_page.py write                      # puts all of them into the page

RUNS are folders of ``fallow benchmark``, also of one that was stopped: of a task, what is there of the
same strategy, seed and settings already stays as it is.  Tasks whose names end with ``-fedavg`` are
those that were trained by FedAvg.

A table stands in the page between the lines ``<!-- begin SECTION -->`` and ``<!-- end SECTION -->``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd
from measure_advice import regret_lines
from scipy.stats import kendalltau
from sections import replace_section

from fallow.configs.few_labels import (
    A_CLASS,
    FEDAVG,
    OURS,
    SOLVED,
    TRAINED,
    TUNED,
    classes_of,
)
from fallow.report.benchmark import to_markdown
from fallow.report.final_table import p_text
from fallow.settings.config import ExperimentConfig
from fallow.study.benchmark import (
    Areas,
    BenchmarkResult,
    Verdict,
    areas,
    judge,
    not_worse,
    read_score_file,
    read_scores,
    task_lines,
    write_score_file,
)
from fallow.study.statistics import (
    LEVEL,
    Comparison,
    compare_pairs,
    differences,
    holm,
    wilcoxon_exact,
)

PAGE = Path("studies/benchmark.md")
PUBLISHED = Path("studies/benchmark.csv")
REFERENCE = "random"
JUDGED = "typical_unsure"
"""The strategy that is compared task by task, over tasks and in every cell."""
SHORT_LIST = ("random", "margin", "typicality", "typical")
"""Strategies of the comparison where a test covers only these."""
SEEN = 5
SEEN_OF_TASK = {"benchmark/heart": 15}
"""Seeds of a task, from 0 on, that had been looked at before `JUDGED` was thought of."""
ENOUGH = 8
"""Seeds that a rival has at least, to be the best one of a cell."""
UNTIL = 100
"""Labels a class up to which cells count."""
OUTCOMES = ("better", "not worse", "open", "worse")
WORDS = "---"
"""How a column of words is set in a table."""
KEY = ["task", "digest", "strategy", "seed", "cycle"]
Cells = Mapping[str, Mapping[int, Mapping[int, float]]]
"""Strategy -> cycle -> seed -> accuracy."""


def join(out: Path, folders: Sequence[Path]) -> None:
    """Add the scores of runs to a file."""
    known = (*SOLVED, *TRAINED)
    tasks = {task.name.rpartition("/")[2]: task for task in known}
    studies = []
    for folder in folders:
        for file in sorted(folder.glob("*/study.json")):
            studies.append((tasks[file.parent.name], file.parent))
    parts = [read_scores(studies)]
    if out.exists():
        parts.insert(0, read_score_file(out))
    scores = pd.concat(parts, ignore_index=True).drop_duplicates(KEY)
    order = {task.name: at for at, task in enumerate(known)}
    scores = scores.sort_values(
        ["task", "strategy", "seed", "cycle"],
        key=lambda column: column.map(order) if column.name == "task" else column,
    )
    out.write_bytes(write_score_file(scores))
    print(f"{len(scores)} scores, {out.stat().st_size / 1000:.0f} kB")


# -- what is read ---------------------------------------------------------------------------


def rows_by_task(
    scores: pd.DataFrame, tasks: Sequence[ExperimentConfig]
) -> dict[str, pd.DataFrame]:
    """The scores of each of the tasks that has some, but for those on which constants were found."""
    by_task = {}
    for task in tasks:
        rows = scores[scores["task"] == task.name]
        if not rows.empty and task.name.removesuffix(FEDAVG) not in TUNED:
            by_task[task.name] = rows
    return by_task


def areas_by_task(by_task: Mapping[str, pd.DataFrame]) -> dict[str, Areas]:
    """Areas under the curves of each task."""
    return {task: areas(rows) for task, rows in by_task.items()}


def shorten(task: str) -> str:
    """A task as the command line calls it.

    >>> shorten("benchmark/heart-fedavg")
    'heart'
    """
    return task.rpartition("/")[2].removesuffix(FEDAVG)


# -- tables -------------------------------------------------------------------------------------


def write_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], side: str = "---:"
) -> str:
    """A table in Markdown.  side: how all columns but the first are set, on the right by default."""
    lines = [f"| {' | '.join(heads)} |", f"|---|{f'{side}|' * (len(heads) - 1)}"]
    for cells in rows:
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def describe(verdict: Verdict | None) -> str:
    """A strategy against the best rival of a task, as a cell."""
    if verdict is None:
        return "–"
    low = f"{100 * verdict.interval.low:+.2f}"
    high = f"{100 * verdict.interval.high:+.2f}"
    text = f"{100 * verdict.difference:+.2f} [{low}, {high}] against {verdict.rival}"
    p = f"Holm p {p_text(verdict.holm)}, not worse p {p_text(verdict.not_worse)}"
    return f"{text}: **{verdict.outcome}** (n {verdict.seeds}, {p})"


def describe_pair(of_task: Areas, comparison: Comparison | None) -> str:
    """Return the difference of two strategies on a task as a table cell."""
    if comparison is None:
        return "–"
    low = f"{100 * comparison.interval.low:+.2f}"
    high = f"{100 * comparison.interval.high:+.2f}"
    p = not_worse(differences(of_task[comparison.strategy], of_task[comparison.reference]))
    return (
        f"{100 * comparison.difference:+.2f} [{low}, {high}] (n {comparison.pairs}, Holm p "
        f"{p_text(comparison.holm)}, not worse p {p_text(p)})"
    )


def count_seeds(scores: pd.DataFrame) -> str:
    """With how many seeds each strategy was run on each task, by the closed form and by FedAvg."""
    solved = rows_by_task(scores, SOLVED)
    trained = rows_by_task(scores, TRAINED)
    seeds: dict[str, dict[str, int]] = {}
    for task, rows in {**solved, **trained}.items():
        for strategy, n in rows.groupby("strategy")["seed"].nunique().items():
            seeds.setdefault(str(strategy), {})[task] = int(n)
    lines = []
    for strategy in sorted(seeds, key=lambda strategy: -sum(seeds[strategy].values())):
        cells = [strategy]
        for task in solved:
            counts = [str(seeds[strategy].get(task, "–"))]
            if f"{task}{FEDAVG}" in seeds[strategy]:
                counts.append(str(seeds[strategy][f"{task}{FEDAVG}"]))
            cells.append(" / ".join(counts))
        lines.append(cells)
    return write_table(["strategy", *map(shorten, solved)], lines)


def list_strategies(scores: pd.DataFrame, tasks: Sequence[ExperimentConfig]) -> str:
    """All strategies of each task, best first."""
    tables = {}
    named = {task.name: task for task in tasks}
    for name, rows in rows_by_task(scores, tasks).items():
        task = named[name]
        title = task.title.removeprefix("Benchmark: ")
        title = title[0].upper() + title[1:]
        if name.endswith(FEDAVG):
            title = f"{title}, by FedAvg"
        tables[title] = task_lines(rows, REFERENCE, classes_of(task))
    written = to_markdown(BenchmarkResult(tables, []), REFERENCE)
    sections = written.partition("\n\n## ")[2]
    level = "###" if tasks is TRAINED else "##"
    return f"{level} {sections}".replace("\n## ", f"\n{level} ").strip()


def compare_with_best(scores: pd.DataFrame, tasks: Sequence[ExperimentConfig]) -> str:
    """Each of Fallow's own strategies against the best rival of each task."""
    rows = []
    for task, values in areas_by_task(rows_by_task(scores, tasks)).items():
        rivals = [strategy for strategy in values if strategy not in OURS]
        cells = [describe(judge(task, values, strategy, rivals)) for strategy in OURS]
        rows.append([shorten(task), *cells])
    return write_table(["task", *OURS], rows, WORDS)


def compare_by_task(
    areas: Mapping[str, Areas], strategy: str, rivals: Sequence[str]
) -> str:
    """A strategy against some others on each task, by its seeds, with Holm's correction over these; n
    is how many seeds both have."""
    rows = []
    for task, of_task in areas.items():
        pairs = []
        for rival in rivals:
            if len(set(of_task.get(strategy, ())) & set(of_task.get(rival, ()))) > 1:
                pairs.append((strategy, rival))
        compared = {}
        if pairs:
            compared = {
                comparison.reference: comparison
                for comparison in compare_pairs(of_task, pairs)
            }
        cells = [shorten(task)]
        for rival in rivals:
            cells.append(describe_pair(of_task, compared.get(rival)))
        rows.append(cells)
    return write_table(["task", *rivals], rows, WORDS)


def compare_over_tasks(
    areas: Mapping[str, Areas], strategy: str, rivals: Sequence[str]
) -> list[Comparison]:
    """A strategy against each rival by the exact signed-rank test over tasks, with Holm's correction
    over rivals.

    A task counts as one pair: the mean areas of both over the seeds that both have there.
    """
    means: dict[str, dict[int, float]] = {}
    pairs = []
    for rival in rivals:
        mine: dict[int, float] = {}
        theirs: dict[int, float] = {}
        for at, areas_there in enumerate(areas.values()):
            one = areas_there.get(strategy, {})
            other = areas_there.get(rival, {})
            seeds = sorted(set(one) & set(other))
            if seeds:
                mine[at] = fmean(one[seed] for seed in seeds)
                theirs[at] = fmean(other[seed] for seed in seeds)
        if len(mine) > 1:
            name = f"{strategy} beside {rival}"
            means[name] = mine
            means[rival] = theirs
            pairs.append((name, rival))
    if not pairs:
        return []
    return compare_pairs(means, pairs)


def write_over_tasks(areas: Mapping[str, Areas], strategy: str) -> str:
    """A strategy against all others over tasks."""
    names = dict.fromkeys(name for areas_there in areas.values() for name in areas_there)
    rivals = [name for name in names if name != strategy]
    compared = compare_over_tasks(areas, strategy, rivals)
    rows = []
    for comparison in sorted(compared, key=lambda comparison: -comparison.difference):
        rows.append(
            [
                comparison.reference,
                str(comparison.pairs),
                str(comparison.wins),
                f"{100 * comparison.difference:+.2f}",
                p_text(comparison.wilcoxon),
                p_text(comparison.holm),
            ]
        )
    heads = ["against", "tasks", "ahead on", "mean difference, points", "p", "Holm p"]
    return write_table(heads, rows)


def only_unseen(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores of the short list by the seeds that had not been looked at."""
    first = scores["task"].map(SEEN_OF_TASK).fillna(SEEN)
    is_listed = scores["strategy"].isin((JUDGED, *SHORT_LIST))
    return scores[is_listed & (scores["seed"] >= first)]


# -- each budget of each task -------------------------------------------------------------------


def cells_of(rows: pd.DataFrame) -> Cells:
    """The accuracies of a task, by strategy, cycle and seed."""
    cells: dict[str, dict[int, dict[int, float]]] = {}
    for row in rows.itertuples(index=False):
        of_strategy = cells.setdefault(str(row.strategy), {})
        of_strategy.setdefault(int(row.cycle), {})[int(row.seed)] = float(row.accuracy)
    return cells


def judge_cells(rows: pd.DataFrame) -> dict[str, int]:
    """How often `JUDGED` is better than the best published rival of a budget, not worse, or worse, on
    one task.

    The best rival is found after the fact, among those with `ENOUGH` seeds, by means over the seeds
    that both have.  Holm's correction is over all rivals and budgets of the task.
    """
    cells = cells_of(rows)
    cycles = [cycle for cycle in cells[JUDGED] if A_CLASS[cycle - 1] <= UNTIL]
    pairs: dict[tuple[int, str], list[float]] = {}
    for cycle in cycles:
        mine = cells[JUDGED][cycle]
        for strategy, of_cycle in cells.items():
            theirs = of_cycle.get(cycle, {})
            if strategy not in OURS and len(set(mine) & set(theirs)) >= ENOUGH:
                pairs[cycle, strategy] = differences(mine, theirs)
    tested = holm([wilcoxon_exact(d) for d in pairs.values()])
    p = dict(zip(pairs, tested, strict=True))
    outcomes = dict.fromkeys(OUTCOMES, 0)
    for cycle in cycles:
        rivals = [strategy for at, strategy in pairs if at == cycle]
        if not rivals:
            continue
        best = min(rivals, key=lambda strategy: fmean(pairs[cycle, strategy]))
        d = pairs[cycle, best]
        is_clear = p[cycle, best] <= LEVEL
        if is_clear and fmean(d) > 0:
            outcome = "better"
        elif is_clear and fmean(d) < 0:
            outcome = "worse"
        elif not_worse(d) <= LEVEL:
            outcome = "not worse"
        else:
            outcome = "open"
        outcomes[outcome] += 1
    return outcomes


def count_cells(scores: pd.DataFrame) -> str:
    """The outcomes of all budgets of all tasks, of each trainer."""
    rows = []
    for trainer, tasks in (("closed form", SOLVED), ("FedAvg", TRAINED)):
        total = dict.fromkeys(OUTCOMES, 0)
        for task, of_task in rows_by_task(scores, tasks).items():
            outcomes = judge_cells(of_task)
            counts = [str(outcomes[outcome]) for outcome in OUTCOMES]
            rows.append([trainer, shorten(task), str(sum(outcomes.values())), *counts])
            for item in OUTCOMES:
                total[item] += outcomes[item]
        n = sum(total.values())
        if n:
            shares = [
                f"{total[outcome]} ({100 * total[outcome] / n:.0f} %)"
                for outcome in OUTCOMES
            ]
            rows.append([trainer, "all", str(n), *shares])
    return write_table(["trainer", "task", "cells", *OUTCOMES], rows)


# -- one trainer beside the other ------------------------------------------------------------


def gain_of(of_task: Areas, strategy: str) -> str:
    """Points of area over random rows, as a cell; with a star where the exact test over seeds, with
    Holm's correction over the short list, tells them from nothing."""
    listed = [name for name in (*SHORT_LIST[1:], JUDGED) if name in of_task]
    compared = compare_pairs(of_task, [(name, REFERENCE) for name in listed])
    for item in compared:
        if item.strategy == strategy:
            star = "\\*" if item.is_distinct else ""
            return f"{100 * item.difference:+.1f}{star}"
    return "–"


def compare_trainers(scores: pd.DataFrame) -> str:
    """Gains over random rows by the closed form and by FedAvg, and how alike the two orders are."""
    solved = areas_by_task(rows_by_task(scores, SOLVED))
    rows = []
    for task, trained in areas_by_task(rows_by_task(scores, TRAINED)).items():
        beside = solved[task.removesuffix(FEDAVG)]
        cells = [shorten(task)]
        for strategy in (*SHORT_LIST[1:], JUDGED):
            cells.append(f"{gain_of(beside, strategy)} / {gain_of(trained, strategy)}")
        names = (*SHORT_LIST, JUDGED)
        one = [fmean(beside[name].values()) for name in names]
        other = [fmean(trained[name].values()) for name in names]
        cells.append(f"{kendalltau(one, other).statistic:+.1f}")
        seeds = (len(beside[JUDGED]), len(trained[JUDGED]))
        cells.append(f"{seeds[0]} / {seeds[1]}")
        rows.append(cells)
    heads = ["task", *SHORT_LIST[1:], JUDGED, "order", "seeds"]
    return write_table(heads, rows)


def compare_levels(scores: pd.DataFrame) -> str:
    """The mean accuracy of `JUDGED` at each budget by the closed form and by FedAvg."""
    solved = rows_by_task(scores, SOLVED)
    rows = []
    for task, trained in rows_by_task(scores, TRAINED).items():
        of_both = (solved[task.removesuffix(FEDAVG)], trained)
        means = []
        for of_task in of_both:
            mine = of_task[of_task["strategy"] == JUDGED]
            means.append(mine.groupby("cycle")["accuracy"].mean())
        cells = [shorten(task)]
        for cycle in range(1, len(A_CLASS) + 1):
            if cycle in means[0].index and cycle in means[1].index:
                cells.append(f"{100 * means[0][cycle]:.0f} / {100 * means[1][cycle]:.0f}")
            else:
                cells.append("–")
        rows.append(cells)
    return write_table(["task", *(f"{labels} a class" for labels in A_CLASS)], rows)


# -- the page -----------------------------------------------------------------------------------


def build_sections() -> dict[str, Callable[[], str]]:
    """Return the functions that write the sections of the page, in order."""
    scores = read_score_file(PUBLISHED)
    solved = areas_by_task(rows_by_task(scores, SOLVED))
    trained = areas_by_task(rows_by_task(scores, TRAINED))
    unseen = areas_by_task(rows_by_task(only_unseen(scores), SOLVED))
    return {
        "seeds": lambda: count_seeds(scores),
        "trainers": lambda: compare_trainers(scores),
        "levels": lambda: compare_levels(scores),
        "cells": lambda: count_cells(scores),
        "strategies": lambda: list_strategies(scores, SOLVED),
        "best": lambda: compare_with_best(scores, SOLVED),
        "by-task": lambda: compare_by_task(solved, JUDGED, SHORT_LIST),
        "over-tasks": lambda: write_over_tasks(solved, JUDGED),
        "unseen": lambda: compare_by_task(unseen, JUDGED, SHORT_LIST),
        "unseen-over-tasks": lambda: write_over_tasks(unseen, JUDGED),
        "fedavg": lambda: list_strategies(scores, TRAINED),
        "fedavg-by-task": lambda: compare_by_task(trained, JUDGED, SHORT_LIST),
        "fedavg-over-tasks": lambda: write_over_tasks(trained, JUDGED),
        "regret": lambda: "\n".join(regret_lines()),
    }


def write_page() -> None:
    """Put all tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    sections = build_sections()
    strange = set(re.findall(r"<!-- begin (\S+) -->", page)) - set(sections)
    if strange:
        raise ValueError(f"{PAGE} has sections that nothing writes: {sorted(strange)}")
    for name, build_section in sections.items():
        page = replace_section(page, name, build_section())
    PAGE.write_text(page, encoding="utf-8")


def show(names: Sequence[str]) -> None:
    """Print tables."""
    sections = build_sections()
    for name in names or list(sections):
        print(f"{name}:\n\n{sections[name]()}\n")


def main() -> None:
    """Join scores, print tables, or write them into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("join", "show", "write"))
    parser.add_argument("names", nargs="*", help="the file and the folders, or sections")
    args = parser.parse_args()
    if args.what == "join":
        out, *folders = map(Path, args.names)
        join(out, folders)
    elif args.what == "show":
        show(args.names)
    else:
        write_page()


if __name__ == "__main__":
    main()
