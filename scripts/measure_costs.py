"""Measure the cost of one selection of each strategy: exchanges and bytes per site.

    python scripts/measure_costs.py            write studies/costs.csv
    python scripts/measure_costs.py --check margin
                                               fail if a strategy costs something else than it says

A run of two cycles and the same run of one: the difference is one selection.  Ten sites, queries
of 5 % of the rows; counts and bytes are those of the protocol and depend on no clock.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fallow as fl
from fallow.core.methods import Query
from fallow.core.names import spell_class
from fallow.core.suggestions import require_known
from fallow.settings.classes import classes_of

TABLE = Path(__file__).resolve().parents[1] / "studies" / "costs.csv"
COLUMNS = ("strategy", "exchanges", "up", "down", "simulation")
SITES = 10
TRAININGS = {
    "fale": "server-solve",
    "feal": "evidential",
    "pivotal": "server-solve",
}
"""Strategies that come with a training algorithm of their own; the others: FedAvg."""


@dataclass(frozen=True)
class Cost:
    """Cost of the selections of a run: exchanges, and bytes of one site."""

    exchanges: int
    up: float
    down: float

    def minus(self, other: Cost) -> Cost:
        return Cost(
            self.exchanges - other.exchanges, self.up - other.up, self.down - other.down
        )


def measure(name: str, cls: type[Query]) -> dict[str, str]:
    """One line of the table."""
    training = TRAININGS.get(name, "fedavg")
    data = "digits"
    model = "mlp"
    strategy = cls()
    if not strategy.contract.classes or training == "server-solve":
        data = "diabetes"  # numbers to predict
        model = "linear"
    simulation = fl.Federation(fl.load(data), fl.IID(), sites=SITES)
    if strategy.contract.one_pass:  # every budget is a selection from nothing
        lengths = [1]
    else:
        lengths = [2, 1]
    costs = []
    for cycles in lengths:
        run = fl.run(
            simulation,
            strategy=strategy,
            training=training,
            model=model,
            initial=0.05,
            budget=0.05,
            cycles=cycles,
            rounds=1,
            progress=False,
        )
        costs.append(
            of_selection(run.revealed.to_dict("records"), strategy.contract.disclosures)
        )
    cost = costs[0]
    for shorter in costs[1:]:
        cost = cost.minus(shorter)
    return {
        "strategy": name,
        "exchanges": str(cost.exchanges),
        "up": f"{cost.up:.0f}",
        "down": f"{cost.down:.0f}",
        "simulation": f"{data} ({model}; {training})",
    }


def of_selection(
    lines: Sequence[Mapping[str, object]], disclosures: Mapping[str, str]
) -> Cost:
    """Return the lines of "What left each site" that belong to the strategy."""
    own = [line for line in lines if line["function"] in disclosures]
    return Cost(
        sum(int(str(line["exchanges"])) for line in own),
        sum(float(str(line["bytes"])) for line in own) / SITES,
        sum(float(str(line["bytes_down"])) for line in own) / SITES,
    )


def find_strategies() -> dict[str, type]:
    """Every strategy by its name, in alphabetical order."""
    return dict(sorted((spell_class(cls), cls) for cls in classes_of("strategy").values()))


def read_table() -> dict[str, dict[str, str]]:
    """Read the earlier measurements."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {row["strategy"]: row for row in csv.DictReader(file)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", nargs="*", help="strategies to measure and compare")
    parser.add_argument("--only", nargs="*", help="strategies to measure; the others stay")
    asked = parser.parse_args()
    strategies = find_strategies()
    if asked.check is not None:
        written = read_table()
        for name in asked.check:
            require_known(name, written, f"{TABLE} has no row {name!r}")
        other = [
            name for name in asked.check if measure(name, strategies[name]) != written[name]
        ]
        for name in other:
            print(
                f"{name}: the cost differs from {TABLE}; run python scripts/measure_costs.py"
            )
        return len(other)
    kept: dict[str, dict[str, str]] = {}
    if asked.only is not None:
        kept = {name: row for name, row in read_table().items() if name not in asked.only}
    rows = [kept.get(name) or measure(name, cls) for name, cls in strategies.items()]
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
