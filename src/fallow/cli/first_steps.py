"""``fallow`` without a command: what there is in this folder to go on with, or how to begin."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

FEW = 3
"""So many files or folders of a kind are named; who has more knows what to do with them."""

LOOKED_AT = 1000
"""So many names of a folder are looked at: a folder of a million pictures is not read for a hint."""

TABLES = {".csv", ".tsv", ".xlsx", ".parquet", ".feather", ".arrow", ".npz"}
NOT_STUDIES = {"pyproject.toml", "site.toml", "Cargo.toml"}


@dataclass(frozen=True)
class Suggestion:
    """A command to type, and what it does."""

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
    """What can be done with what lies in a folder, by names alone: nothing is opened.

    >>> suggest_steps(Path("no/such/folder"))
    []
    """
    names = _list_names(folder)
    steps = [
        *_steps_of_a_study(names),
        *_steps_of_folders(folder, names),
    ]
    tables = [name for name in names if Path(name).suffix.lower() in TABLES]
    if not steps:
        for name in tables[:FEW]:
            file = shlex.quote(name)
            steps.append(
                Suggestion(
                    f"fallow init study.toml --data {file} --label COLUMN",
                    "settings for this table, with a comment each",
                )
            )
    return steps


def print_first_steps(folder: Path) -> None:
    """What `fallow` alone answers."""
    typer.echo("Fallow selects which examples each site labels, then trains a global or a")
    typer.echo("personalized model. Data stay at their sites.")
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
    except OSError:  # gone, or not ours to read: there is nothing to go on with
        return []
    return sorted(name for name in names if name.isprintable())


def _steps_of_a_study(names: list[str]) -> Iterator[Suggestion]:
    """The folder of a coordinator or of a site, or files of simulated studies."""
    if "coordinator.json" in names:
        yield Suggestion(
            "fallow coordinate status .", "who takes part, and what it waits for"
        )
        yield Suggestion("fallow coordinate start .", "go on with the study")
        return
    if "site.toml" in names:
        yield Suggestion(
            "fallow site status .", "what is asked of this site, and what it told"
        )
        yield Suggestion("fallow site start .", "take part, until Ctrl-C")
        yield Suggestion("fallow label .", "answer what is asked, in the browser")
        return
    files = [name for name in names if name.endswith(".toml") and name not in NOT_STUDIES]
    for name in files[:FEW]:
        file = shlex.quote(name)
        yield Suggestion(
            f"fallow compare {file} --dry-run", "what was read, and what it would cost"
        )
        yield Suggestion(f"fallow compare {file}", "run it, and write a report page")


def _steps_of_folders(folder: Path, names: list[str]) -> Iterator[Suggestion]:
    """Folders of sites and of coordinators that lie in this one."""
    shown = 0
    for name in names:
        path = folder / name
        if shown == FEW or not path.is_dir():
            continue
        quoted = shlex.quote(name)
        if (path / "coordinator.json").exists():
            yield Suggestion(
                f"fallow coordinate status {quoted}", "a study that you coordinate"
            )
        elif (path / "site.toml").exists():
            yield Suggestion(
                f"fallow site status {quoted}", "a study that you take part in"
            )
        else:
            continue
        shown += 1


def _print_steps(title: str, steps: tuple[Suggestion, ...] | list[Suggestion]) -> None:
    typer.echo(f"\n{title}")
    for step in steps:
        typer.echo(f"  {step.command}")
        typer.echo(f"      {step.does}")
