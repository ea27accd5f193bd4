"""The tables of docs/results/pivotal.md, from the records of its studies.

    python scripts/excess_tables.py runs --seeds 12

RUNS is the folder in which the page's commands leave ``few-TABLE``, one selection of 300 labels, and
``many-TABLE``, of 1,000, 2,000 and 3,000.  Excess is the error above that of the fit with all labels
of the same seed, in per cent of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from fallow.study.reading import read_study
from fallow.study.statistics import LEVEL, differences, holm, paired_t, wilcoxon_exact

TABLES = (
    "protein",
    "kegg",
    "diamonds",
    "kin40k",
    "california",
    "bike",
    "elevators",
    "pol",
    "sarcos",
)
BUDGETS = (300, 1000, 2000, 3000)
SHOWN = {"random": "random", "fale": "FALE", "pivotal": "pivotal"}
PAIRS = (("pivotal", "random"), ("fale", "random"), ("pivotal", "fale"))
BYTES_AT = 1000
Cells = dict[tuple[str, int, str], dict[int, float]]
"""Table, budget, strategy -> seed -> excess."""


def read_cells(runs: Path, seeds: int) -> tuple[Cells, dict[tuple[str, str], float]]:
    """Excesses, and what all sites send for one selection of `BYTES_AT` rows, in kB."""
    cells: Cells = {}
    sent: dict[tuple[str, str], float] = {}
    for table in TABLES:
        for kind, budgets in (("few", BUDGETS[:1]), ("many", BUDGETS[1:])):
            study = read_study(runs / f"{kind}-{table}")
            for query in study.strategies:
                for cycle, found in study.excess(query).items():
                    kept = {seed: value for seed, value in found.items() if seed < seeds}
                    cells[table, budgets[cycle - 1], query] = kept
                if kind == "few":
                    continue
                ends = []
                for cell in study.of(query):
                    of_first = [each for each in cell.records if each["cycle"] == 1]
                    if of_first:
                        ends.append(of_first[-1]["bytes_up"])
                sent[table, query] = fmean(ends) / 1e3
    return cells, sent


def print_medians(cells: Cells) -> None:
    print(f"| table | labels | {' | '.join(SHOWN.values())} |\n|---|---:|---:|---:|---:|")
    for table in TABLES:
        for budget in BUDGETS:
            shown = [f"{100 * median(cells[table, budget, q].values()):.2f}" for q in SHOWN]
            print(f"| {table} | {budget:,} | {' | '.join(shown)} |")


def count_outcomes(p: Sequence[float], middles: Sequence[float]) -> str:
    """Wins, ties and losses: how many differences are below 0, not told from it, and above."""
    wins = 0
    losses = 0
    for value, middle in zip(p, middles, strict=True):
        if value <= LEVEL and middle < 0:
            wins += 1
        elif value <= LEVEL:
            losses += 1
    return f"{wins}/{len(p) - wins - losses}/{losses}"


def print_tests(cells: Cells) -> None:
    print("| | labels | signed-rank | signed-rank, Holm | t | t, Holm | smaller |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    rows: Mapping[str, Sequence[int]] = {
        **{f"{budget:,}": (budget,) for budget in BUDGETS},
        "all": BUDGETS,
    }
    for ours, theirs in PAIRS:
        for name, budgets in rows.items():
            pairs = []
            for table in TABLES:
                for budget in budgets:
                    mine = cells[table, budget, ours]
                    pairs.append(differences(mine, cells[table, budget, theirs]))
            medians = [median(each) for each in pairs]
            means = [fmean(each) for each in pairs]
            ranks = [wilcoxon_exact(each) for each in pairs]
            t = [paired_t(each) for each in pairs]
            counts = (
                count_outcomes(ranks, medians),
                count_outcomes(holm(ranks), medians),
                count_outcomes(t, means),
                count_outcomes(holm(t), means),
                f"{sum(middle < 0 for middle in medians)} of {len(pairs)}",
            )
            who = f"{SHOWN[ours]} against {SHOWN[theirs]}"
            print(f"| {who} | {name} | {' | '.join(counts)} |")


def print_bytes(sent: Mapping[tuple[str, str], float]) -> None:
    print(f"| table | {' | '.join(SHOWN.values())} |\n|---|---:|---:|---:|")
    for table in TABLES:
        shown = [f"{sent[table, query]:,.0f}" for query in SHOWN]
        print(f"| {table} | {' | '.join(shown)} |")


def main() -> None:
    """Print the page's three tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    given = parser.parse_args()
    cells, sent = read_cells(given.runs, given.seeds)
    print_medians(cells)
    print()
    print_tests(cells)
    print()
    print_bytes(sent)


if __name__ == "__main__":
    main()
