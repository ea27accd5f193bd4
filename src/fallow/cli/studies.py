"""``fallow demo``, ``run`` and ``compare``: studies from the command line."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fallow.cli import options as opt
from fallow.cli.progress import Watch
from fallow.lab.cell import Cell, Setup
from fallow.lab.errors import Failed
from fallow.lab.estimate import estimate
from fallow.lab.reading import read_study
from fallow.lab.recipe import Recipe, with_settings
from fallow.lab.report import write_report
from fallow.lab.study import open_study, run_study, study_cells
from fallow.lab.tables import to_rich
from fallow.lab.tables_final import final_table
from fallow.recipes import RECIPES, find_recipe


def demo(
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds.")] = None,
    out: opt.Out = None,
    jobs: opt.Jobs = None,
) -> None:
    """Ten sites choose which digits to have labelled: a table and a page in about a minute."""
    recipe = RECIPES["demo"]
    Console().print(
        f"{recipe.sites} sites hold the handwritten digits of scikit-learn, each mostly a few classes. "
        f"In {recipe.cycles} cycles they choose which rows to have labelled; one model is trained and "
        f"no row leaves its site. Compared: {', '.join(recipe.queries)}.", highlight=False
    )  # fmt: skip
    _study(recipe, recipe.queries, range(seeds or recipe.seeds), out, jobs)


def run(
    recipe: opt.RecipeName,
    query: Annotated[str | None, typer.Option(help="The strategy, e.g. ahfal:tau=15.")] = None,
    seed: Annotated[int, typer.Option(help="The seed.")] = 0,
    set_: opt.Settings = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    dry_run: opt.DryRun = False,
    data_dir: opt.DataDir = None,
    threads: opt.Threads = 1,
) -> None:
    """Run one strategy of a recipe under one seed."""
    chosen = with_settings(find_recipe(recipe), {"bounds": "false", **opt.settings(set_)})
    queries = [query or (str(chosen.query) if "query" in opt.settings(set_) else "ahfal")]
    _study(chosen, queries, [seed], out, 1, resume, dry_run, data_dir, threads)


def compare(
    recipe: opt.RecipeName,
    query: Annotated[
        str | None,
        typer.Option("--query", "-q", help="Strategies, e.g. random,entropy,ahfal:toggle=never."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many paired seeds.")] = None,
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    jobs: opt.Jobs = None,
    set_: opt.Settings = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    dry_run: opt.DryRun = False,
    data_dir: opt.DataDir = None,
    threads: opt.Threads = 1,
) -> None:
    """Run several strategies under the same seeds, with paired tests and a report page."""
    chosen = with_settings(find_recipe(recipe), opt.settings(set_))
    queries = [q.strip() for q in query.split(",")] if query else list(chosen.queries)
    wanted = range(first_seed, first_seed + (seeds or chosen.seeds))
    _study(chosen, queries, wanted, out, jobs, resume, dry_run, data_dir, threads)


def _study(
    recipe: Recipe,
    queries: list[str] | tuple[str, ...],
    seeds: range | list[int],
    out: Path | None,
    jobs: int | None,
    resume: bool = False,
    dry_run: bool = False,
    data_dir: Path | None = None,
    threads: int = 1,
) -> None:
    console, cores = Console(), os.cpu_count() or 1
    setup = Setup(recipe, _folder(recipe, out, resume), data_dir, threads)
    jobs = jobs or max(1, cores // threads)
    cells = study_cells(recipe, queries, seeds)
    if dry_run:
        console.print(estimate(setup, cells, jobs).sentence(), highlight=False, soft_wrap=True)
        return
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    open_study(setup, queries, list(seeds), command, resume)
    with Watch(recipe, cells, console) as watch:
        failures = run_study(setup, cells, jobs, watch)
    _show(console, setup.out, cells)
    if failures:
        first = failures[0]
        raise Failed(
            f"{len(failures)} of {len(cells)} runs failed; the first was {first.cell.query} with "
            f"seed {first.cell.seed}: {first.why}"
        )


def _folder(recipe: Recipe, out: Path | None, resume: bool) -> Path:
    if out is not None:
        return out
    if resume:
        raise ValueError("--resume needs the folder of the study: add --out FOLDER")
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{recipe.name.replace('/', '-')}-{stamp}"


def _show(console: Console, out: Path, cells: list[Cell]) -> None:
    """The final table and where the page is."""
    study = read_study(out)
    if any(cell.records for cell in study.cells):
        console.print(to_rich(final_table(study)))
        page = write_report([out])
        console.print(f"Report page: {page}", highlight=False, soft_wrap=True)
