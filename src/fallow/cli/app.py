"""The command's frame: which commands there are, and how errors leave it."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer
from rich.console import Console

from fallow._version import __version__
from fallow.cli import lists, results, studies
from fallow.lab.errors import Failed

app = typer.Typer(
    name="fallow",
    help="Federated active learning: decide which rows each site labels, train one model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (studies.demo, studies.run, studies.compare, results.report, results.export,
                results.predict, lists.methods, lists.datasets, lists.recipes):  # fmt: skip
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fallow {__version__}")
        raise typer.Exit


@app.callback()
def frame(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command; ``--debug`` is read by `main`."""


def main() -> None:
    """Run the command line.  Exit codes: 0 done, 1 failed, 2 wrong use."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        app()
    except (ValueError, Failed, OSError) as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        errors.print(f"[bold red]error:[/] {_sentence(error)}", markup=True)
        sys.exit(2 if isinstance(error, ValueError) else 1)
    except KeyboardInterrupt:
        errors.print("stopped; run the same command with --resume to go on")
        sys.exit(1)


def _sentence(error: Exception) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
