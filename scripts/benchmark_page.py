"""The published scores of the benchmark, and the tables of docs/results/benchmark.md from them.

    python scripts/benchmark_page.py join OUT.parquet RUNS...   # adds what runs have
    python scripts/benchmark_page.py tables                     # prints the page's tables
    python scripts/benchmark_page.py unseen                     # the strategy by seeds nobody had seen

RUNS are folders of ``fallow benchmark``, also of one that was stopped: of a task, what is there of the
same strategy, seed and settings already stays as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd

from fallow.papers.own.few_labels import OURS, SOLVED, TUNED, classes_of
from fallow.report.benchmark import to_markdown
from fallow.report.columns import p_text
from fallow.study.benchmark import (
    COLUMNS,
    Areas,
    Verdict,
    areas,
    judge,
    not_worse,
    read_scores,
    task_lines,
)
from fallow.study.statistics import Comparison, compare_pairs, differences

PUBLISHED = Path("docs/results/benchmark.parquet")
REFERENCE = "random"
OVER_TASKS = "typical_unsure"
"""The strategy that is compared over tasks."""
RIVALS_BY_TASK = ("random", "margin", "typicality", "typical")
SEEN = 5
SEEN_OF_TASK = {"benchmark/heart": 15}
"""Seeds of a task, from 0 on, that had been looked at before `OVER_TASKS` was thought of."""
KEY = ["task", "digest", "query", "seed", "cycle"]


def join(out: Path, folders: Sequence[Path]) -> None:
    """Add the scores of runs to a file."""
    tasks = {task.name.rpartition("/")[2]: task for task in SOLVED}
    studies = []
    for folder in folders:
        for file in sorted(folder.glob("*/study.json")):
            studies.append((tasks[file.parent.name], file.parent))
    found = [read_scores(studies)]
    if out.exists():
        found.insert(0, pd.read_parquet(out, engine="pyarrow")[list(COLUMNS)])
    scores = pd.concat(found, ignore_index=True).drop_duplicates(KEY)
    order = {task.name: at for at, task in enumerate(SOLVED)}
    scores = scores.sort_values(
        ["task", "query", "seed", "cycle"],
        key=lambda column: column.map(order) if column.name == "task" else column,
    )
    scores.reset_index(drop=True).to_parquet(out, engine="pyarrow", index=False)
    print(f"{len(scores)} scores, {out.stat().st_size / 1000:.0f} kB")


def describe(verdict: Verdict | None) -> str:
    """A strategy against the best rival of a task, as a cell."""
    if verdict is None:
        return "–"
    low = f"{100 * verdict.interval.low:+.2f}"
    high = f"{100 * verdict.interval.high:+.2f}"
    said = f"{100 * verdict.difference:+.2f} [{low}, {high}] against {verdict.rival}"
    p = f"Holm p {p_text(verdict.holm)}, not worse p {p_text(verdict.not_worse)}"
    return f"{said}: **{verdict.outcome}** ({p})"


def compare_over_tasks(
    found: Mapping[str, Areas], query: str, rivals: Sequence[str]
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
        for at, areas_there in enumerate(found.values()):
            one = areas_there.get(query, {})
            other = areas_there.get(rival, {})
            seeds = sorted(set(one) & set(other))
            if seeds:
                mine[at] = fmean(one[seed] for seed in seeds)
                theirs[at] = fmean(other[seed] for seed in seeds)
        if len(mine) > 1:
            name = f"{query} beside {rival}"
            means[name] = mine
            means[rival] = theirs
            pairs.append((name, rival))
    if not pairs:
        return []
    return compare_pairs(means, pairs)


def print_by_task(found: Mapping[str, Areas], query: str, rivals: Sequence[str]) -> None:
    """A strategy against some others on each task, by its seeds, with Holm's correction over
    these; n is how many seeds both have."""
    print(f"## `{query}` task by task\n")
    print(f"| task | {' | '.join(rivals)} |\n|---|{'---|' * len(rivals)}")
    for task, of_task in found.items():
        pairs = []
        for rival in rivals:
            if len(set(of_task.get(query, ())) & set(of_task.get(rival, ()))) > 1:
                pairs.append((query, rival))
        compared = {}
        if pairs:
            compared = {each.reference: each for each in compare_pairs(of_task, pairs)}
        cells = []
        for rival in rivals:
            cells.append(describe_pair(of_task, compared.get(rival)))
        print(f"| {task.rpartition('/')[2]} | {' | '.join(cells)} |")
    print()


def describe_pair(of_task: Areas, found: Comparison | None) -> str:
    """What two strategies differ by on a task, as a cell."""
    if found is None:
        return "–"
    low = f"{100 * found.interval.low:+.2f}"
    high = f"{100 * found.interval.high:+.2f}"
    p = not_worse(differences(of_task[found.query], of_task[found.reference]))
    return (
        f"{100 * found.difference:+.2f} [{low}, {high}] (n {found.pairs}, Holm p "
        f"{p_text(found.holm)}, not worse p {p_text(p)})"
    )


def print_over_tasks(found: Mapping[str, Areas], query: str) -> None:
    """A strategy against all others over tasks, as a table."""
    names = dict.fromkeys(name for areas_there in found.values() for name in areas_there)
    rivals = [name for name in names if name != query]
    print(f"## `{query}` over tasks\n")
    print("| against | tasks | ahead on | mean difference, points | p | Holm p |")
    print("|---|---:|---:|---:|---:|---:|")
    compared = compare_over_tasks(found, query, rivals)
    for each in sorted(compared, key=lambda each: -each.difference):
        cells = [
            each.reference,
            str(each.pairs),
            str(each.wins),
            f"{100 * each.difference:+.2f}",
            p_text(each.wilcoxon),
            p_text(each.holm),
        ]
        print(f"| {' | '.join(cells)} |")


def print_tables() -> None:
    """Every task, then ours against the best rival of each task, then over tasks."""
    scores = pd.read_parquet(PUBLISHED, engine="pyarrow")
    tables = []
    rows = []
    of_tasks: dict[str, Areas] = {}
    for task in SOLVED:
        of_task = scores[scores["task"] == task.name]
        if of_task.empty or task.name in TUNED:
            continue
        tables.append((task.title, task_lines(of_task, REFERENCE, classes_of(task))))
        found = areas(of_task)
        of_tasks[task.name] = found
        rivals = [query for query in found if query not in OURS]
        cells = [describe(judge(task.name, found, query, rivals)) for query in OURS]
        rows.append(f"| {task.name.rpartition('/')[2]} | {' | '.join(cells)} |")
    print(to_markdown(tables, [], REFERENCE).partition("\n\n## ")[2].join(["## ", ""]))
    print("## Against the best rival\n")
    print(f"| task | {' | '.join(OURS)} |\n|---|{'---|' * len(OURS)}")
    print("\n".join(rows))
    print()
    print_by_task(of_tasks, OVER_TASKS, RIVALS_BY_TASK)
    print_over_tasks(of_tasks, OVER_TASKS)


def print_unseen() -> None:
    """The strategy against some others on each task and over tasks, by the seeds that had not been
    looked at."""
    scores = pd.read_parquet(PUBLISHED, engine="pyarrow")
    of_tasks: dict[str, Areas] = {}
    for task in SOLVED:
        of_task = scores[scores["task"] == task.name]
        unseen = of_task[of_task["seed"] >= SEEN_OF_TASK.get(task.name, SEEN)]
        if task.name not in TUNED and not unseen.empty:
            of_tasks[task.name] = areas(
                unseen[unseen["query"].isin((OVER_TASKS, *RIVALS_BY_TASK))]
            )
    print_by_task(of_tasks, OVER_TASKS, RIVALS_BY_TASK)
    print_over_tasks(of_tasks, OVER_TASKS)


def main() -> None:
    """Join scores, or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("join", "tables", "unseen"))
    parser.add_argument("paths", nargs="*", type=Path)
    given = parser.parse_args()
    if given.what == "join":
        out, *folders = given.paths
        join(out, folders)
    elif given.what == "unseen":
        print_unseen()
    else:
        print_tables()


if __name__ == "__main__":
    main()
