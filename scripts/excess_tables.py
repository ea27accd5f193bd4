"""The tables of studies/pivotal.md, from the records of its studies.

    python scripts/excess_tables.py runs --seeds 12          # FALE beside them, four budgets
    python scripts/excess_tables.py runs --seeds 30 --ten    # the bar: ten budgets

RUNS is the folder in which the page's commands leave ``few-TABLE``, one selection of 300 labels,
``many-TABLE``, of 1,000, 2,000 and 3,000, and ``ten-TABLE``, of 300, 600, ..., 3,000.  Excess is the
error above that of the fit with all labels of the same seed, in percent of it.  A table of which a
run is missing is left out, and named.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
SHOWN = {"random": "random", "fale": "FALE", "pivotal": "pivotal"}
BYTES_AT = 1000
BAR = 0.4
"""The share of cells to be won."""
Cells = dict[tuple[str, int, str], dict[int, float]]
"""Table, budget, strategy -> seed -> excess."""


@dataclass(frozen=True)
class Part:
    """Studies of one kind: how their folders begin, and the budgets of their cycles."""

    kind: str
    budgets: tuple[int, ...]


@dataclass(frozen=True)
class Page:
    """Studies, strategies and pairs that are compared."""

    parts: tuple[Part, ...]
    strategies: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budgets of all parts."""
        return tuple(budget for part in self.parts for budget in part.budgets)


FOUR = Page(
    parts=(Part("few", (300,)), Part("many", (1000, 2000, 3000))),
    strategies=("random", "fale", "pivotal"),
    pairs=(("pivotal", "random"), ("fale", "random"), ("pivotal", "fale")),
)
TEN = Page(
    parts=(Part("ten", tuple(range(300, 3001, 300))),),
    strategies=("random", "pivotal"),
    pairs=(("pivotal", "random"),),
)


def read_table(page: Page, runs: Path, table: str, seeds: int) -> Cells | None:
    """The excesses of a table; None unless every run of these seeds is there."""
    cells: Cells = {}
    wanted = set(range(seeds))
    for part in page.parts:
        folder = runs / f"{part.kind}-{table}"
        if not (folder / "study.json").exists():
            return None
        study = read_study(folder)
        for strategy in page.strategies:
            by_cycle = study.excess(strategy)
            for cycle, budget in enumerate(part.budgets, 1):
                result = by_cycle.get(cycle, {})
                kept = {seed: value for seed, value in result.items() if seed in wanted}
                if set(kept) != wanted:
                    return None
                cells[table, budget, strategy] = kept
    return cells


def read_cells(page: Page, runs: Path, seeds: int) -> Cells:
    """The excesses of all tables whose runs are there; says which are not."""
    cells: Cells = {}
    left_out = []
    for table in TABLES:
        result = read_table(page, runs, table, seeds)
        if result is None:
            left_out.append(table)
        else:
            cells.update(result)
    if left_out:
        print(
            f"Left out, since not all of {seeds} seeds are there: {', '.join(left_out)}\n"
        )
    if not cells:
        raise SystemExit(f"{runs} holds no table with all runs of {seeds} seeds")
    return cells


def tables_of(cells: Cells) -> list[str]:
    """The tables that are there, in their order."""
    there = {table for table, _, _ in cells}
    return [table for table in TABLES if table in there]


def read_sent(
    runs: Path, tables: Sequence[str], strategies: Sequence[str], seeds: int
) -> dict[tuple[str, str], float]:
    """Return the data that all sites send for one selection of `BYTES_AT` examples, in kB."""
    sent: dict[tuple[str, str], float] = {}
    for table in tables:
        study = read_study(runs / f"many-{table}")
        for strategy in strategies:
            ends = []
            for cell in study.of(strategy):
                if cell.seed >= seeds:
                    continue
                of_first = [record for record in cell.records if record["cycle"] == 1]
                if of_first:
                    ends.append(of_first[-1]["bytes_up"])
            sent[table, strategy] = fmean(ends) / 1e3
    return sent


def print_medians(page: Page, cells: Cells) -> None:
    heads = [SHOWN[strategy] for strategy in page.strategies]
    print(f"| table | labels | {' | '.join(heads)} |\n|---|---:|{'---:|' * len(heads)}")
    for table in tables_of(cells):
        for budget in page.budgets:
            shown = []
            for strategy in page.strategies:
                shown.append(f"{100 * median(cells[table, budget, strategy].values()):.2f}")
            print(f"| {table} | {budget:,} | {' | '.join(shown)} |")


def print_wide_medians(page: Page, cells: Cells) -> None:
    """The medians with a column for each budget."""
    print(f"| table | {' | '.join(f'{budget:,}' for budget in page.budgets)} |")
    print(f"|---|{'---:|' * len(page.budgets)}")
    for table in tables_of(cells):
        shown = []
        for budget in page.budgets:
            of_both = []
            for strategy in page.strategies:
                of_both.append(
                    f"{100 * median(cells[table, budget, strategy].values()):.2f}"
                )
            shown.append(" / ".join(of_both))
        print(f"| {table} | {' | '.join(shown)} |")


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


def count_row(pairs: Sequence[Sequence[float]]) -> tuple[str, ...]:
    """Outcomes of some cells by each test, not corrected and after Holm over them, and in how many the
    median difference is below 0."""
    medians = [median(pair) for pair in pairs]
    means = [fmean(item) for item in pairs]
    ranks = [wilcoxon_exact(differences) for differences in pairs]
    t = [paired_t(differences) for differences in pairs]
    return (
        count_outcomes(ranks, medians),
        count_outcomes(holm(ranks), medians),
        count_outcomes(t, means),
        count_outcomes(holm(t), means),
        f"{sum(middle < 0 for middle in medians)} of {len(pairs)}",
    )


def print_tests(page: Page, cells: Cells) -> None:
    print("| | labels | signed-rank | signed-rank, Holm | t | t, Holm | smaller |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    rows: dict[str, Sequence[int]] = {}
    for budget in page.budgets:
        rows[f"{budget:,}"] = (budget,)
    rows["all"] = page.budgets
    for ours, theirs in page.pairs:
        title = f"{SHOWN[ours]} against {SHOWN[theirs]}"
        for name, budgets in rows.items():
            pairs = []
            for table in tables_of(cells):
                for budget in budgets:
                    mine = cells[table, budget, ours]
                    pairs.append(differences(mine, cells[table, budget, theirs]))
            print(f"| {title} | {name} | {' | '.join(count_row(pairs))} |")


def print_by_table(page: Page, cells: Cells) -> None:
    """Wins, ties and losses of each table, Holm's correction being over the cells of all tables, and
    for comparison over those of the table alone."""
    pairs: dict[tuple[str, int], list[float]] = {}
    for table in tables_of(cells):
        for budget in page.budgets:
            mine = cells[table, budget, "pivotal"]
            pairs[table, budget] = differences(mine, cells[table, budget, "random"])
    ranks = dict(zip(pairs, holm([wilcoxon_exact(d) for d in pairs.values()]), strict=True))
    t = dict(zip(pairs, holm([paired_t(d) for d in pairs.values()]), strict=True))
    print(
        "| table | signed-rank, Holm | t, Holm | signed-rank, own Holm | smaller | median |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for table in tables_of(cells):
        here = {at: d for at, d in pairs.items() if at[0] == table}
        medians = [median(d) for d in here.values()]
        means = [fmean(d) for d in here.values()]
        by_rank = count_outcomes([ranks[at] for at in here], medians)
        by_t = count_outcomes([t[at] for at in here], means)
        alone = count_outcomes(holm([wilcoxon_exact(d) for d in here.values()]), medians)
        smaller = f"{sum(middle < 0 for middle in medians)} of {len(medians)}"
        middle = f"{100 * median(medians):+.2f}"
        print(f"| {table} | {by_rank} | {by_t} | {alone} | {smaller} | {middle} |")
    of_all = list(pairs.values())
    by_rank = count_outcomes(list(ranks.values()), [median(d) for d in of_all])
    by_t = count_outcomes(list(t.values()), [fmean(d) for d in of_all])
    print(f"\nThe bar: no loss, and {100 * BAR:.0f} % of the cells won, after Holm.")
    print(f"By the signed-rank test {describe_bar(by_rank)}; by t {describe_bar(by_t)}.")


def describe_bar(outcomes: str) -> str:
    """Whether wins, ties and losses reach the bar.

    >>> describe_bar("4/6/0")
    '4 of 10 are won (40 %) and 0 lost: **reached**'
    """
    wins, ties, losses = map(int, outcomes.split("/"))
    n = wins + ties + losses
    output = "missed"
    if losses == 0 and wins >= BAR * n:
        output = "reached"
    return f"{wins} of {n} are won ({100 * wins / n:.0f} %) and {losses} lost: **{output}**"


def print_bytes(
    sent: Mapping[tuple[str, str], float],
    tables: Sequence[str],
    strategies: Sequence[str],
) -> None:
    heads = [SHOWN[strategy] for strategy in strategies]
    print(f"| table | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
    for table in tables:
        shown = [f"{sent[table, strategy]:,.0f}" for strategy in strategies]
        print(f"| {table} | {' | '.join(shown)} |")


def main() -> None:
    """Print the page's tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--ten", action="store_true", help="ten budgets, without FALE")
    args = parser.parse_args()
    page = TEN if args.ten else FOUR
    cells = read_cells(page, args.runs, args.seeds)
    if args.ten:
        print_by_table(page, cells)
        print()
        print_wide_medians(page, cells)
    else:
        print_medians(page, cells)
    print()
    print_tests(page, cells)
    if not args.ten:
        print()
        tables = tables_of(cells)
        sent = read_sent(args.runs, tables, page.strategies, args.seeds)
        print_bytes(sent, tables, page.strategies)


if __name__ == "__main__":
    main()
