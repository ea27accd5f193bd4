"""``fallow`` without a command: next steps in the current folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from fallow.storage.table_suffixes import TABLES

FEW = 3
"""Maximum number of suggestions of a kind."""

LOOKED_AT = 1000
"""Maximum number of file names to read, since a folder may have millions of images."""

NOT_STUDIES = {"pyproject.toml", "Cargo.toml"}


@dataclass(frozen=True)
class Suggestion:
    """Suggested command, with a description."""

    command: str
    does: str


BEGINNINGS = (
    Suggestion(
        "fallow demo", "compare strategies at ten sites and write a report, in 45 seconds"
    ),
    Suggestion(
        "fallow new my-study", "create a starter folder: example data, settings, README"
    ),
    Suggestion(
        "fallow compare rows.csv --label COLUMN --site COLUMN",
        "compare strategies on your own table",
    ),
    Suggestion(
        "fallow coordinate init --help",
        "set up a federation with real sites and annotators",
    ),
)


def suggest_steps(folder: Path) -> list[Suggestion]:
    """List the studies and sites found in a folder, by file name only.

    >>> suggest_steps(Path("no/such/folder"))
    []
    """
    names = _list_names(folder)
    steps = [
        *_steps_of_a_study(names),
        *_steps_of_folders(folder, names),
    ]
    tables = [name for name in names if Path(name).suffix.lower() in (*TABLES, ".npz")]
    if not steps:
        for name in tables[:FEW]:
            file = shlex.quote(name)
            steps.append(
                Suggestion(
                    f"fallow init study.toml --data {file} --label COLUMN",
                    "write commented settings for this table",
                )
            )
    return steps


def print_first_steps(folder: Path) -> None:
    """Print the next steps in a folder."""
    typer.echo("Fallow selects which examples each site labels, then trains a global or a")
    typer.echo("personalized model. Data files stay at their sites.")
    first_steps = suggest_steps(folder)
    if first_steps:
        _print_steps("In this folder:", first_steps)
    _print_steps("To begin:", BEGINNINGS)
    typer.echo("\nAll commands: fallow --help")


def _list_names(folder: Path) -> list[str]:
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) == LOOKED_AT:
                    break
    except OSError:  # missing or unreadable: nothing to suggest
        return []
    return sorted(name for name in names if name.isprintable())


def _steps_of_a_study(names: list[str]) -> Iterator[Suggestion]:
    """Suggest commands for the folder of a coordinator or a site, or for configuration files."""
    if "coordinator.json" in names:
        yield Suggestion(
            "fallow coordinate status .", "show participating and pending sites"
        )
        yield Suggestion("fallow coordinate start .", "resume the study")
        return
    if "site.toml" in names:
        yield Suggestion(
            "fallow site status .", "show labeling tasks and the disclosure log"
        )
        yield Suggestion("fallow site start .", "take part until Ctrl-C")
        yield Suggestion("fallow label .", "label in the browser")
        return
    files = [name for name in names if name.endswith(".toml") and name not in NOT_STUDIES]
    for name in files[:FEW]:
        file = shlex.quote(name)
        yield Suggestion(
            f"fallow compare {file} --dry-run",
            "show what was read, and estimate time and traffic",
        )
        yield Suggestion(f"fallow compare {file}", "run the study and write a report page")


def _steps_of_folders(folder: Path, names: list[str]) -> Iterator[Suggestion]:
    """Suggest commands for subfolders of sites and coordinators."""
    shown = 0
    for name in names:
        path = folder / name
        if shown == FEW or not path.is_dir():
            continue
        quoted = shlex.quote(name)
        if (path / "coordinator.json").exists():
            yield Suggestion(
                f"fallow coordinate status {quoted}", "show the study that you coordinate"
            )
        elif (path / "site.toml").exists():
            yield Suggestion(
                f"fallow site status {quoted}", "show the study that you take part in"
            )
        else:
            continue
        shown += 1


def _print_steps(title: str, steps: tuple[Suggestion, ...] | list[Suggestion]) -> None:
    typer.echo(f"\n{title}")
    for step in steps:
        typer.echo(f"  {step.command}")
        typer.echo(f"      {step.does}")
