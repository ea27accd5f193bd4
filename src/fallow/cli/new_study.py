"""``fallow init``: a commented file for a study of one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options as opt
from fallow.cli.waiting import Waiting

File = Annotated[
    Path, typer.Argument(metavar="STUDY.toml", help="The file to write; it must not exist.")
]


def init(
    file: File,
    data: opt.Data = None,
    label: opt.Label = None,
    site: opt.SiteColumn = None,
    data_dir: opt.DataDir = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Write a commented file for a study of your own data; 'fallow compare STUDY.toml' runs it.

    For example:

    fallow init heart.toml --data heart.csv --label disease --site hospital
    """
    from fallow.experiment.rows import open_data
    from fallow.settings.recipe import Recipe
    from fallow.settings.starter import Found, starter_text
    from fallow.storage.files import write_whole

    if file.suffix != ".toml":
        raise ValueError(f"{file} does not end in .toml, as the file of a study does")
    if file.exists():
        raise ValueError(f"{file} is there already; give another name, or delete it first")
    source = data or "digits"
    console = opt.console(quiet=quiet or as_json)
    recipe = Recipe("", data=source, label=label, site=site)
    with Waiting(console, f"reading {source}") as waiting:
        dataset = open_data(recipe, 0, data_dir, outline=1, say=waiting.tell_bytes)
    sites: tuple[str, ...] = ()
    if site:
        sites = dataset.group_names
    found = Found(
        data=source,
        label=label,
        site=site,
        rows=len(dataset.x),
        test_rows=len(dataset.x_test),
        classes=dataset.classes,
        sites=sites,
        queries=_strategies(dataset.task),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, starter_text(found, file).encode())
    if as_json:
        opt.print_json({"file": str(file), "rows": found.rows, "classes": found.classes})
        return
    for note in dataset.notes:
        console.print(f"{source}: {note}", markup=False, soft_wrap=True)
    console.print(f"Wrote {file}: read it, then run", markup=False, soft_wrap=True)
    console.print(f"  fallow compare {file} --dry-run", markup=False, soft_wrap=True)
    console.print(f"  fallow compare {file}", markup=False, soft_wrap=True)


def _strategies(task: str) -> tuple[str, ...]:
    """What a first study compares: the strategies of a recipe that names none, or, for numbers to
    predict, random picks and the strategy that chooses best by them."""
    from fallow.papers.own.suited import NUMBERS
    from fallow.settings.recipe import Recipe

    if task == "regression":
        return NUMBERS[:2]
    return Recipe("").queries
