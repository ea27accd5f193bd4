"""Write studies/coverage.md: the items of papers, where each is implemented and how it is checked.

    python scripts/paper_items.py             write the page
    python scripts/paper_items.py --check     fail if the page is out of date, costs included

The items are declared in ``published/items.toml`` of each paper.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

from fallow.cli.papers import describe_item
from fallow.configs.items import RUNNABLE, PaperItem, list_items, read_items
from fallow.configs.papers import Paper, load_papers
from fallow.core.wording import rough_duration

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "studies" / "coverage.md"
VERDICTS = {
    "faithful": "The code does what the paper states, or the configuration has its settings",
    "departure": "The code differs; the docstring of the algorithm states how and why",
    "missing": "Not implemented",
    "drawing": "The figure has no measured values",
}
START = """# Coverage of the papers

Tables, figures, equations and algorithms of the four papers, where each is implemented and how it
is checked. The page is written by `python scripts/paper_items.py` from the declarations in
`studies/fallow-papers/src/fallow_papers/*/published/items.toml`; `fallow papers` lists and runs
the tables and figures. Hours are estimates from the settings: the number of training steps times
the seconds of a step on one core (`python scripts/measure_paces.py`). Those of one GPU
assume 4 ms per step and were not measured. *Measured* is the scale of recorded results.
"""


Costs = Mapping[tuple[str, str], str]
"""Cells with the estimated hours, by paper and item."""


def estimate_costs() -> Costs:
    """Estimate the hours of all tables and figures; this takes some seconds."""
    costs = {}
    for item in list_items(load_papers()):
        if item.kind in RUNNABLE:
            row = describe_item(item, is_reduced=False)
            known = [cost for cost in (row.two_cores, row.one_gpu) if cost is not None]
            costs[item.paper, item.name] = ", ".join(map(rough_duration, known))
    return costs


def read_costs(page: str) -> Costs:
    """Return the hours on a page."""
    costs: dict[tuple[str, str], str] = {}
    paper = ""
    for line in page.splitlines():
        if line.startswith("`fallow papers "):
            paper = line.split("`")[1].split()[-1]
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 7 and (paper, cells[1]) not in costs:
            costs[paper, cells[1]] = cells[4]
    return costs


def write_page(costs: Costs) -> str:
    """Return the text of the page."""
    papers = [(paper, list(read_items(paper).values())) for paper in load_papers()]
    declared = [(paper, items) for paper, items in papers if items]
    counts = Counter(str(item.verdict) for _, items in declared for item in items)
    lines = [START, "| verdict | items | meaning |", "|---|---:|---|"]
    lines += [f"| {name} | {counts[name]} | {VERDICTS[name]} |" for name in VERDICTS]
    for paper, items in declared:
        lines += ["", *_describe_paper(paper, items, costs)]
    return "\n".join(lines) + "\n"


def _describe_paper(
    paper: Paper, items: Sequence[PaperItem], costs: Costs
) -> Iterator[str]:
    assert paper.folder is not None  # noqa: S101 - it has items
    yield f"## {paper.title}"
    yield ""
    yield f"`fallow papers {paper.folder.name}`; {paper.authors}, {paper.year}."
    yield ""
    yield "| item | content | configurations | 2 cores, 1 GPU | measured |"
    yield "|---|---|---|---:|---|"
    for item in items:
        if item.kind in RUNNABLE:
            yield _describe_run(item, costs[item.paper, item.name])
    yield ""
    yield "| item | content | verdict | where | checks |"
    yield "|---|---|---|---|---|"
    for item in items:
        if item.where or item.checks or item.verdict != "drawing":
            yield _describe_check(item)


def _describe_run(item: PaperItem, cost: str) -> str:
    configurations = ", ".join(f"`{name}`" for name in item.studies)
    values = prod(len(values) for values in item.sweep.values())
    if values > 1:
        configurations += f" ({values * len(item.studies)} studies)"
    measured: str = item.scale or "no"
    if item.record:
        measured = f"[{measured}]({_link(item.record)})"
    cells = [item.name, item.title, configurations or item.missing, cost]
    return "| " + " | ".join([*cells, measured]) + " |"


def _describe_check(item: PaperItem) -> str:
    verdict: str = item.verdict
    if item.note:
        verdict += f": {item.note}"
    where = ", ".join(_name_link(text, ":") for text in item.where)
    checks = ", ".join(_name_link(text, "::") for text in item.checks)
    return f"| {item.name} | {item.title} | {verdict} | {where} | {checks} |"


def _name_link(text: str, separator: str) -> str:
    file, _, name = text.partition(separator)
    return f"[{name or Path(file).name}]({_link(file)})"


def _link(path: str) -> str:
    """Return a path of the repository, relative to the page."""
    return path.removeprefix("studies/") if path.startswith("studies/") else f"../{path}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write studies/coverage.md")
    parser.add_argument("--check", action="store_true")
    text = write_page(estimate_costs())
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is out of date; run python scripts/paper_items.py")


if __name__ == "__main__":
    main()
