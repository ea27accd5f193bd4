"""``fallow papers``: tables and figures of papers, listed and run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fallow.cli import options as opt

if TYPE_CHECKING:
    from fallow.cli.objects import PaperRow
    from fallow.configs.items import PaperItem

COLUMNS = ("paper", "item", "content", "configuration", "data", "2 cores", "1 GPU", "done")
BASIS = (
    "2 cores: training steps of the settings x seconds of a step measured on one core, or "
    "measured hours. 1 GPU: assumes 4 ms per step; not measured. Queries and validation "
    "of many models are counted as predictions. --reduced runs a version for two cores."
)

PaperName = Annotated[str | None, typer.Argument(help="Paper, as 'fallow papers' lists it")]
ItemName = Annotated[str | None, typer.Argument(help="Table or figure, e.g. figure-2")]
Reduced = Annotated[
    bool, typer.Option("--reduced", help="Use the reduced configurations, for two cores")
]


@opt.shows("fallow.cli.objects:PaperRow", is_list=True)
def papers(
    paper: PaperName = None,
    item: ItemName = None,
    reduced: Reduced = False,
    seeds: opt.Seeds = None,
    jobs: opt.Jobs = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    dry_run: opt.DryRun = False,
    data_dir: opt.DataDir = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """List the tables and figures of papers, and run one of them.

    The list states the configurations, the data and the cost of each item, and whether results are
    recorded. With a table or figure, run its studies and write one report of them, or state what is
    missing. The papers are those of installed distributions, such as fallow-papers.
    """
    from fallow.configs.items import RUNNABLE, find_item, list_items
    from fallow.configs.papers import load_papers
    from fallow.core.suggestions import require_known

    items = list_items(load_papers())
    if not items:
        raise ValueError(
            "no installed distribution declares tables of papers; install fallow-papers"
        )
    if paper is not None:
        names = list(dict.fromkeys(item.paper for item in items))
        require_known(paper, names, f"{paper!r} is not one of the papers")
        items = [item for item in items if item.paper == paper]
    if item is None or paper is None:
        rows = [describe_item(row, reduced) for row in items if row.kind in RUNNABLE]
        _print_rows(rows, as_json)
        return
    chosen = find_item(items, paper, item)
    if as_json:
        opt.print_json([describe_item(chosen, reduced)])
        return
    run_item(
        chosen,
        is_reduced=reduced,
        seeds=seeds,
        jobs=jobs,
        out=out or Path("runs") / f"{paper}-{item}",
        resume=resume,
        dry_run=dry_run,
        data_dir=data_dir,
        quiet=quiet,
    )


def describe_item(item: PaperItem, is_reduced: bool) -> PaperRow:
    """Describe a table or figure."""
    from fallow.cli.objects import PaperRow
    from fallow.configs.item_costs import Cost, estimate_cost

    configs = list(item.configs(is_reduced=is_reduced))
    cost = estimate_cost(configs)
    if item.hours is not None and not is_reduced:  # measured
        cost = Cost(3600 * item.hours, None)
    names = item.reduced if is_reduced else item.studies
    return PaperRow(
        paper=item.paper,
        item=item.name,
        title=item.title,
        configuration=tuple(names),
        data=tuple(dict.fromkeys(config.data for config in configs)),
        studies=len(configs),
        two_cores=None if cost is None else cost.two_cores,
        one_gpu=None if cost is None else cost.gpu,
        done=item.scale or "no",
        record=item.record,
        missing=item.missing,
    )


def _print_rows(rows: Sequence[PaperRow], as_json: bool) -> None:
    from fallow.core.wording import rough_duration

    if as_json:
        opt.print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, no_wrap=column in ("paper", "item"), overflow="fold")
    for row in rows:
        costs = []
        for seconds in (row.two_cores, row.one_gpu):
            shown = "" if seconds is None else rough_duration(seconds)
            costs.append(shown)
        configuration = ", ".join(row.configuration)
        if row.studies > len(row.configuration):
            configuration += f" ({row.studies} studies)"
        cells = [row.paper, row.item, row.title, configuration, ", ".join(row.data)]
        table.add_row(*(escape(cell or "-") for cell in [*cells, *costs, row.done]))
    opt.console().print(table)
    opt.console().print(f"\n{BASIS}", markup=False, soft_wrap=True)


def run_item(
    item: PaperItem,
    *,
    out: Path,
    is_reduced: bool = False,
    seeds: int | None = None,
    jobs: int | None = None,
    resume: bool = False,
    dry_run: bool = False,
    data_dir: Path | None = None,
    quiet: bool = False,
) -> None:
    """Run the studies of an item, one folder each, and write one report of all."""
    from fallow.cli.studies import StudyOptions, run_configuration
    from fallow.configs.papers import load_papers
    from fallow.core.wording import join_words, rough_duration
    from fallow.report.page import write_report

    configs = list(item.configs(is_reduced=is_reduced))
    if item.missing:
        raise ValueError(item.missing)
    if not configs:
        raise ValueError(
            f"{item.name} of {item.paper} has no reduced version; omit --reduced"
        )
    row = describe_item(item, is_reduced)
    console = opt.console(quiet=quiet)
    console.print(
        f"{item.paper} {item.name}: {item.title}. Configurations: "
        f"{join_words(list(row.configuration))}; number of studies: {row.studies}. Estimated: "
        f"{rough_duration(row.two_cores or 0)} on two cores.",
        markup=False,
        soft_wrap=True,
    )
    folders = []
    for config in configs:
        folder = out / config.name.replace("/", "-")
        folders.append(folder)
        options = StudyOptions(
            jobs=jobs,
            resume=resume and folder.exists(),
            dry_run=dry_run,
            quiet=quiet,
        )
        run_configuration(config, folder, data_dir, range(seeds or config.seeds), options)
    if dry_run:
        return
    page = write_report(folders, out / "report.html", papers=load_papers())
    console.print(f"Report of all studies: {page}", markup=False, soft_wrap=True)
