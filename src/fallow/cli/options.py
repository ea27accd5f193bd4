"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RecipeName = Annotated[
    str, typer.Argument(help="A recipe's name ('fallow recipes') or a .toml file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE",
                 help="Change a setting, e.g. partition.alpha=1.0; may be given again."),
]  # fmt: skip
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for results.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the study in that folder.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would run (images, time, bytes), and stop.")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", envvar="FALLOW_DATA", help="Folder of data files; or FALLOW_DATA."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Processes; by default one per core.")
]
Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads of each process.")]
Json = Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")]
Studies = Annotated[list[Path], typer.Argument(help="Folders of studies.")]


def settings(pairs: list[str] | None) -> dict[str, str]:
    """``KEY=VALUE`` words as a dictionary; ValueError for a word without ``=``."""
    bad = [pair for pair in pairs or [] if "=" not in pair]
    if bad:
        raise ValueError(f"--set {bad[0]!r} is not of the form key=value")
    return dict(pair.split("=", 1) for pair in pairs or [])
