"""The published scores of the benchmark, and the tables of docs/results/benchmark.md from them.

    python scripts/benchmark_page.py join OUT.parquet RUNS...   # adds what runs have
    python scripts/benchmark_page.py tables                     # prints the page's tables

RUNS are folders of ``fallow benchmark``, also of one that was stopped: of a task, what is there of the
same strategy, seed and settings already stays as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fallow.papers.own.few_labels import OURS, SOLVED, TUNED, classes_of
from fallow.report.benchmark import to_markdown
from fallow.report.columns import p_text
from fallow.study.benchmark import (
    COLUMNS,
    Verdict,
    areas,
    judge,
    read_scores,
    task_lines,
)

PUBLISHED = Path("docs/results/benchmark.parquet")
REFERENCE = "random"
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


def print_tables() -> None:
    """Every task, then ours against the best rival of each task."""
    scores = pd.read_parquet(PUBLISHED, engine="pyarrow")
    tables = []
    rows = []
    for task in SOLVED:
        of_task = scores[scores["task"] == task.name]
        if of_task.empty or task.name in TUNED:
            continue
        tables.append((task.title, task_lines(of_task, REFERENCE, classes_of(task))))
        found = areas(of_task)
        rivals = [query for query in found if query not in OURS]
        cells = [describe(judge(task.name, found, query, rivals)) for query in OURS]
        rows.append(f"| {task.name.rpartition('/')[2]} | {' | '.join(cells)} |")
    print(to_markdown(tables, [], REFERENCE).partition("\n\n## ")[2].join(["## ", ""]))
    print("## Against the best rival\n")
    print(f"| task | {' | '.join(OURS)} |\n|---|{'---|' * len(OURS)}")
    print("\n".join(rows))


def main() -> None:
    """Join scores, or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("join", "tables"))
    parser.add_argument("paths", nargs="*", type=Path)
    given = parser.parse_args()
    if given.what == "join":
        out, *folders = given.paths
        join(out, folders)
    else:
        print_tables()


if __name__ == "__main__":
    main()
