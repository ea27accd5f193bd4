"""Write the tables of docs/what-leaves.md from the declarations of client functions.

    python scripts/what_leaves.py

The first table lists what every study sends: the client functions of the protocol and of its own
steps. The second one counts the fields that algorithms declare, by group.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sections import replace_section

from fallow import encoders, strategies, training
from fallow.core.build import names
from fallow.core.client import GROUPS, Declaration, declared
from fallow.core.missing import Missing
from fallow.deployment.annotators import Annotators
from fallow.encoders.encoding import Imputation
from fallow.measurements.description import Describe
from fallow.measurements.evaluation_set import EvaluationSet
from fallow.training import FedAvg, personal
from fallow.training.retention import Retention
from fallow.training.scaling import Scaling

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "what-leaves.md"
STEPS = (
    Describe(),
    *(
        Annotators(),
        Scaling(True, True),
        Imputation(Missing()),
        Retention(FedAvg()),
        EvaluationSet(),
    ),
)
"""Steps of a study that are no query strategy, training algorithm or encoder."""
SEEN_BY = {
    "sum": "coordinator: the aggregate, or each contribution",
    "each": "coordinator: each reply",
    "keep": "coordinator: a count",
    "relay": "other sites, sealed",
}
NOTHING = "nothing"
HIDDEN_BY = {"sum": "`privacy.secure_sum`"}
OF_RELEASE = "`privacy.epsilon`: noise"


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"Wrote {PAGE.relative_to(ROOT)}\n")


def fill(page: str) -> str:
    """Return the page with current tables in its section."""
    return replace_section(page, "tables", f"{draw_steps()}\n{draw_groups()}")


def draw_steps() -> str:
    """Return the table of the steps of every study."""
    rows: list[tuple[str, ...]] = []
    for step in STEPS:
        summed = list_summed(step)
        for name, item in declared(step).items():
            if item.discloses == NOTHING:
                continue
            protections = list(list_protections(item))
            if item.operation == "each" and name in summed:
                protections.append(HIDDEN_BY["sum"])
            hidden = ", ".join(protections)
            rows.append((item.group, item.discloses, SEEN_BY[item.operation], hidden))
    order: Sequence[str] = GROUPS
    rows.sort(key=lambda row: order.index(row[0]))
    header = (
        "group",
        "every study sends, as its settings require",
        "visible to",
        "hidden by",
    )
    return draw(header, dict.fromkeys(rows))


def list_summed(step: Any) -> set[str]:
    """Return the client functions whose replies are only summed under secure aggregation."""
    if not hasattr(step, "secure_sum"):
        return set()
    functions = declared(replace(step, secure_sum=True))
    return {name for name, item in functions.items() if item.operation == "sum"}


def draw_groups() -> str:
    """Return the table of what algorithms add, by group and operation."""
    rows: list[tuple[str, ...]] = []
    functions = list(list_functions())
    for group in GROUPS:
        for operation, seen_by in SEEN_BY.items():
            of_both = [
                (name, item)
                for name, item in functions
                if (item.group, item.operation) == (group, operation)
            ]
            if not of_both:
                continue
            values = dict.fromkeys(value for _, item in of_both for value in describe(item))
            protections = [part for _, item in of_both for part in list_protections(item)]
            n_algorithms = len({name for name, _ in of_both})
            shown = ", ".join(sorted(values)) or "a number"
            hidden = ", ".join(dict.fromkeys(protections))
            rows.append((group, shown, str(n_algorithms), seen_by, hidden))
    header = (
        "group",
        "values that algorithms add",
        "algorithms",
        "visible to",
        "hidden by",
    )
    return draw(header, rows)


def list_functions() -> Iterator[tuple[str, Declaration]]:
    """Yield the client functions of the algorithms, with the names of their classes."""
    for package in (strategies, training, personal, encoders):
        for _, cls in sorted(names(package).items()):
            try:
                algorithm = cls()
            except (TypeError, ValueError):  # needs the name of a network
                continue
            for item in declared(algorithm).values():
                if not algorithm.contract.simulator_only and item.discloses != NOTHING:
                    yield cls.__name__, item


def describe(item: Declaration) -> list[str]:
    """Return the values in a reply, without their dimensions."""
    if item.operation == "keep" or item.returns is None:
        return []
    kinds = item.returns.fields({}).values()
    return [kind.describe().split(" (")[0] for kind in kinds]


def list_protections(item: Declaration) -> Iterable[str]:
    """Return the settings that hide a reply or make it less exact."""
    if item.operation == "keep":
        return
    if item.operation in HIDDEN_BY:
        yield HIDDEN_BY[item.operation]
    if item.release:
        yield OF_RELEASE


def draw(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
