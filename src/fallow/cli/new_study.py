"""``fallow init``: configuration file for your own data; ``fallow new``: folder with an example."""

from __future__ import annotations

import csv
import io
import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.cli import options as opt
from fallow.cli.terminal import Spinner

if TYPE_CHECKING:
    from rich.console import Console

    from fallow.cli.objects import WrittenStudy

ROWS = 360
SITES = ("east", "north", "south")
COLUMNS = ("person", "site", "age", "pressure", "smoker", "outcome")

README = """\
# A first study

`rows.csv` has {rows} synthetic patients at three sites; `study.toml` has the settings of
the comparison.

    fallow compare study.toml --dry-run    # check the data, estimate time and traffic
    fallow compare study.toml              # takes less than a minute and writes a report

## Your own data

1. Replace `rows.csv` with your table (CSV, Excel or Parquet), with one header line and one
  example per row.  One column has the labels (here `outcome`).  Another one may have the
  site (here `site`).  Leave missing cells empty.
2. Set the names of these columns in `study.toml` (`label`, `site`, `id`, `drop`), or create
  a new file: `fallow init mine.toml --data mine.csv --label COLUMN --site COLUMN`.
3. `fallow describe mine.csv --label COLUMN --site COLUMN` writes a page that shows how each
  column was read, and which rows and columns were left out. `study-data.html` is that page
  for `rows.csv`.
4. `fallow settings` lists every setting, `fallow algorithms` every strategy.

Simulations know every label, so they can measure how many labels each strategy needs.  If
examples must not leave their sites and are not labeled yet, set up a federation: see
`fallow coordinate init --help`.
"""


def build_table() -> bytes:
    """Return `ROWS` synthetic patients as CSV, the same each time.

    Older smokers with high blood pressure are ill more often, and all sites differ.
    """
    import numpy as np

    draw = np.random.default_rng(7)
    text = io.StringIO()
    lines = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    lines.writeheader()
    for number in range(ROWS):
        site = SITES[number % len(SITES)]
        age = round(draw.normal(48 + 6 * SITES.index(site), 12))
        pressure = round(draw.normal(112 + 0.4 * age, 14))
        smoker = draw.random() < 0.3
        risk = 0.09 * (age - 54) + 0.06 * (pressure - 134) + 1.5 * smoker
        ill = draw.random() < 1 / (1 + math.exp(-1.5 * risk))
        known = draw.random() > 0.05  # missing measurements
        cells: dict[str, object] = {
            "person": f"p{number + 1:03}",
            "site": site,
            "age": age,
            "pressure": "",
            "smoker": "no",
            "outcome": "well",
        }
        if known:
            cells["pressure"] = pressure
        if smoker:
            cells["smoker"] = "yes"
        if ill:
            cells["outcome"] = "ill"
        lines.writerow(cells)
    return text.getvalue().encode()


def build_readme() -> bytes:
    """Return the README of the folder."""
    return README.format(rows=ROWS).encode()


File = Annotated[
    Path, typer.Argument(metavar="STUDY.toml", help="Output file; must not exist")
]
FolderToCreate = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Folder to create; may exist if empty"),
]


@opt.shows("fallow.cli.objects:WrittenStudy")
@opt.reads_data()
def init(
    file: File,
    data: opt.Data = None,
    *,
    loading: opt.Loading,
    data_dir: opt.DataDir = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Write a commented study file for your data, to run with 'fallow compare'.

    For example:

    fallow init heart.toml --data heart.csv --label disease --site hospital
    """
    if file.suffix != ".toml":
        raise ValueError(
            f"{file} does not end in .toml; give the study file to write, and your data "
            "with --data"
        )
    if file.exists():
        raise ValueError(f"{file} already exists; choose another name, or delete it first")
    source = data or "digits"
    console = opt.console(quiet=quiet or as_json)
    result, notes = _write_study(console, file, source, loading, data_dir)
    sheet = []
    if result.sheet is not None:
        sheet.append(f"Wrote {result.sheet}: open it to check how your data were read")
    lines = [
        *(f"{source}: {note}" for note in notes),
        *sheet,
        f"Wrote {result.file}: read it, then run",
        f"  fallow compare {result.file} --dry-run",
        f"  fallow compare {result.file}",
    ]
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


@opt.shows("fallow.cli.objects:NewFolder")
def new(
    folder: FolderToCreate, quiet: opt.Quiet = False, as_json: opt.AsObject = False
) -> None:
    """Create a starter folder with example data, a study file and a README.

    For example:

    fallow new my-study
    """
    from fallow.cli.objects import NewFolder
    from fallow.storage.files import write_whole

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give the name of a folder to create")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; give another name, or empty it first")
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "rows.csv"
    study = folder / "study.toml"
    write_whole(table, build_table())
    console = opt.console(quiet=quiet or as_json)
    columns = {"label": "outcome", "site": "site"}
    _write_study(console, study, str(table), columns, None)
    write_whole(folder / "README.md", build_readme())
    result = NewFolder(str(folder), tuple(sorted(os.listdir(folder))))
    lines = [
        f"Created {result.folder} with example data (rows.csv), settings (study.toml) and a "
        "README.md. Next:",
        f"  cd {shlex.quote(result.folder)}",
        "  fallow compare study.toml",
    ]
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


def _write_study(
    console: Console,
    file: Path,
    source: str,
    loading: opt.Loading,
    data_dir: Path | None,
) -> tuple[WrittenStudy, tuple[str, ...]]:
    """Read the data and write the configuration file; return the result and notes on the data."""
    from fallow.cli.objects import WrittenStudy
    from fallow.configs.defaults import default_training
    from fallow.data.sheet import build_sheet
    from fallow.experiment.rows import open_data
    from fallow.report.sheet import write_sheet
    from fallow.settings.config import ExperimentConfig, with_settings
    from fallow.settings.configuration_file import DataSummary, configuration_text
    from fallow.storage.files import write_whole
    from fallow.study.statistics import seeds_needed

    config = with_settings(ExperimentConfig("", data=source), opt.as_settings(loading))
    with Spinner(console, f"reading {source}") as waiting:
        dataset = open_data(config, 0, data_dir, outline=1, notify=waiting.tell_bytes)
    strategies = _strategies(dataset.task)
    sites: tuple[str, ...] = ()
    if config.site:
        sites = dataset.site_names
    facts = DataSummary(
        data=source,
        options=config,
        rows=len(dataset.x),
        test_rows=len(dataset.x_test),
        classes=dataset.classes,
        sites=sites,
        training=default_training({}, strategies),
        strategies=strategies,
        seeds=seeds_needed(len(strategies) - 1),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, configuration_text(facts, file).encode())
    page = None
    if dataset.reading is not None:  # of the user, and read completely
        page = find_free_name(file.with_name(f"{file.stem}-data.html"))
        write_sheet(build_sheet(dataset), page)
    result = WrittenStudy(str(file), opt.as_text(page), facts.rows, tuple(facts.classes))
    return result, tuple(dataset.notes)


def find_free_name(file: Path) -> Path:
    """Return a file that does not exist: the given one, or one with a number in its name."""
    free = file
    number = 2
    while free.exists():
        free = file.with_name(f"{file.stem}-{number}{file.suffix}")
        number += 1
    return free


def _strategies(task: str) -> tuple[str, ...]:
    """Return the strategies of a first study.

    These are the strategies of the demo, or random sampling and the best strategy for regression.
    """
    from fallow.configs import defaults, demo

    if task == "regression":
        return defaults.SOLVED
    return demo.SOLVED
