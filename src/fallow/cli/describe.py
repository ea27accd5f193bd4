"""``fallow describe``: data sheet of your data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options as opt
from fallow.cli.terminal import Spinner

DataToDescribe = Annotated[
    str,
    typer.Argument(metavar="DATA", help="Table, folder of images, .npz file or dataset"),
]
SheetFile = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Output file (default: the name of the data)"),
]


@opt.shows("fallow.data.sheet:SheetRecord")
@opt.reads_data()
def describe(
    data: DataToDescribe,
    *,
    loading: opt.Loading,
    data_dir: opt.DataDir = None,
    out: SheetFile = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Write a page that shows how your data were read, and what to check.

    The page contains cells and pictures of your data.  For example:

    fallow describe heart.csv --label disease --site hospital
    """
    from fallow.core.load_options import as_flags
    from fallow.data import open_dataset
    from fallow.data.sheet import build_sheet, format_sheet
    from fallow.report.sheet import write_sheet
    from fallow.settings.config import ExperimentConfig, with_settings

    target = out or name_sheet(Path(data))
    if target.suffix != ".html":
        raise ValueError(
            f"{target} does not end in .html; give the page to write with --out"
        )
    console = opt.console(quiet=quiet or as_json)
    with Spinner(console, f"reading {data}") as waiting:
        dataset = open_dataset(
            data,
            with_settings(ExperimentConfig(""), opt.as_settings(loading)),
            data_dir=data_dir,
            notify=waiting.tell_bytes,
        )
    record = build_sheet(dataset, folder=Path(data))
    write_sheet(record, target)
    lines = [*format_sheet(record, as_flags), f"Wrote {target}"]
    opt.tell(lines, replace(record, pictures=()), quiet=quiet, as_json=as_json)


def name_sheet(data: Path) -> Path:
    """Return the page of a data sheet in the current folder.

    >>> name_sheet(Path("data/heart.csv")).as_posix()
    'heart-data.html'
    """
    return Path(f"{data.stem or data.resolve().name}-data.html")
