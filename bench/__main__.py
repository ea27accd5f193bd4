"""`python -m bench [NAME ...]`: run benchmarks and write ``bench/results.json``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from bench.timing import Entry, Result

MODULES = (
    "linear_27",
    "linear_27_numpy",
    "linear_379",
    "linear_379_numpy",
    "lenet",
    "resnet8",
    "k_center",
    "badge",
    "bait",
    "feal",
    "ifal",
    "k_means",
    "coverage",
    "coverage_whole",
    "leverage",
    "ggc",
    "closed_form_totals",
    "closed_form_left_out",
    "closed_form_cycle",
    "study_two_processes",
    "start_of_runs",
    "own_table",
    "pictures",
    "regression_queries",
)
RESULTS = Path(__file__).with_name("results.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all outputs are equal, else 1. Missed speed targets do not count."""
    options = _options(arguments)
    torch.set_num_threads(1)
    results = []
    for name in options.names or [module.replace("_", "-") for module in MODULES]:
        with Console(stderr=True).status(f"racing {name}"):
            results.append(entry(name).run(options.quick))
    Console().print(table(results))
    if not options.quick:
        write(results, RESULTS)
    if not all(result.outputs_equal for result in results):
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    names = [module.replace("_", "-") for module in MODULES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--quick", action="store_true", help="tiny and once: times mean nothing"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"there is no race {unknown[0]!r}; choose from {', '.join(names)}")
    return options


def entry(name: str) -> Entry:
    """Return the benchmark called ``name``, e.g. ``"linear-27"``."""
    values: Entry = import_module(f"bench.{name.replace('-', '_')}").ENTRY
    return values


def table(results: Sequence[Result]) -> Table:
    """Format the speed ratios and their targets."""
    shown = Table("race", "reference (s)", "ours (s)", "ratio", "bar", "outputs")
    for result in results:
        ratio = f"[red]{result.ratio:.2f}[/]"
        if result.is_met:
            ratio = f"[green]{result.ratio:.2f}[/]"
        outputs = "[red]differ[/]"
        if result.outputs_equal:
            outputs = "equal"
        shown.add_row(
            result.name,
            f"{result.reference_seconds.median:.3f}",
            f"{result.seconds.median:.3f}",
            ratio,
            f"{result.bar:g}",
            outputs,
        )
    return shown


def write(results: Sequence[Result], path: Path) -> None:
    """Write results to the file and keep those of other benchmarks."""
    known = {}
    if path.exists():
        for row in json.loads(path.read_text()):
            known[row["name"]] = row
    for result in results:
        known[result.name] = result.to_dict()
    order = [module.replace("_", "-") for module in MODULES]
    rows = sorted(known.values(), key=lambda row: order.index(row["name"]))
    path.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
