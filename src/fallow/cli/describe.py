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
def describe(
    data: DataToDescribe,
    label: opt.Label = None,
    site: opt.SiteColumn = None,
    group: opt.GroupColumn = None,
    id: opt.IdColumn = None,
    drop: opt.Drop = None,
    columns: opt.Columns = None,
    merge: opt.Merge = False,
    sheet: opt.Sheet = None,
    header_row: opt.HeaderRow = None,
    physical_range: opt.PhysicalRange = None,
    data_dir: opt.DataDir = None,
    out: SheetFile = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Write a page that shows how your data were read, and what to check.

    The page contains cells and pictures of your data.  For example:

    fallow describe heart.csv --label disease --site hospital
    """
    from fallow.data import open_dataset
    from fallow.data.sheet import build_sheet, format_sheet
    from fallow.report.sheet import write_sheet

    target = out or name_sheet(Path(data))
    if target.suffix != ".html":
        raise ValueError(
            f"{target} does not end in .html; give the page to write with --out"
        )
    console = opt.console(quiet=quiet or as_json)
    with Spinner(console, f"reading {data}") as waiting:
        dataset = open_dataset(
            data,
            data_dir=data_dir,
            label=label,
            site=site,
            group=group,
            id=id,
            drop=opt.split_names(drop or ""),
            columns=opt.split_names(columns or ""),
            merge=merge,
            sheet=sheet,
            header_row=header_row,
            physical_range=opt.split_numbers(physical_range or ""),
            notify=waiting.tell_bytes,
        )
    folder = Path(data)
    record = build_sheet(dataset, folder=folder if folder.is_dir() else None)
    write_sheet(record, target)
    lines = [*format_sheet(record), f"Wrote {target}"]
    opt.tell(lines, replace(record, pictures=()), quiet=quiet, as_json=as_json)


def name_sheet(data: Path) -> Path:
    """Return the page of a data sheet in the current folder.

    >>> name_sheet(Path("data/heart.csv")).as_posix()
    'heart-data.html'
    """
    return Path(f"{data.stem or data.resolve().name}-data.html")
