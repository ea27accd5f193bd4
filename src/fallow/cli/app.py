"""Command line application: list of commands, and error handling.

Commands import libraries where they use them.  PyTorch and scikit-learn take seconds to import,
and neither ``fallow --help`` nor a typing error should need them.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from fallow.cli import completion
from fallow.cli.paths import leave_current_folder
from fallow.core.refusal import RunHalted
from fallow.core.version import __version__
from fallow.storage.errors import Stopped, sentence
from fallow.storage.plain import plain

COMMANDS = {
    "demo": "studies:demo",
    "run": "studies:run",
    "compare": "studies:compare",
    "benchmark": "benchmark:benchmark",
    "report": "results:report",
    "export": "results:export",
    "forecast": "results:forecast",
    "advise": "benchmark:advise",
    "predict": "results:predict",
    "export-model": "export_model:export_model",
    "cite": "export_model:cite",
    "describe": "describe:describe",
    "init": "new_study:init",
    "new": "new_study:new",
    "configs": "lists:configs",
    "papers": "papers:papers",
    "datasets": "lists:datasets",
    "settings": "lists:settings",
    "algorithms": "lists:algorithms",
    "models": "lists:models",
    "partitions": "lists:partitions",
    "encoders": "lists:encoders",
    "schema": "schema:schema",
    "label": "label:label",
    "monitor": "monitor:monitor",
    "completion": "completion:completion",
}
"""Modules of `fallow.cli` and functions of commands, in the order of ``fallow --help``."""
GROUPS = {
    "coordinate": "coordinate:coordinate",
    "site": "site:site",
    "audit": "audit:audit",
}
"""Modules of `fallow.cli` and groups of commands."""

UsageError: Any = typer.BadParameter.__base__  # of click, which typer wraps
LONGEST = 4000  # characters of an error, which may quote untrusted text
INTERRUPTED = 130  # exit code after Ctrl-C: 128 + SIGINT, as in typer
KEPT = "stopped; existing files are unchanged, and no file is incomplete"
LACKS_MEMORY = (
    "out of memory: use fewer examples or columns, close other programs, or use a "
    "machine with more memory"
)
# both typer and click suggest a command
REPEATED = re.compile(r"( Did you mean [^?]+\?)\1+")
CONTINUED = "\\\n"
"""End of a line in an example of a command, whose lines stay as they are."""
WRONG_NUMBERS = (
    (re.compile(r"is not a valid int(?:eger)?(?: range)?"), "is not a whole number"),
    (re.compile(r"is not a valid float(?: range)?"), "is not a number"),
)
"""Types of numbers in messages of click, in the words of all other messages."""
SEVERAL = re.compile(r"\. \(Did you mean one of: ([^)?]+)\?\)")
"""Suggestions of several names by click."""

STRATEGIES = "strategies"
"""A likely word for the list of algorithms, which is too different for the nearest command."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fallow {__version__}")
        raise typer.Exit


def frame(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback on errors")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version"
        ),
    ] = False,
) -> None:
    """Handle the options of the application; `main` reads ``--debug``."""
    if context.invoked_subcommand is None:
        from fallow.cli.first_steps import print_first_steps

        print_first_steps(Path.cwd())


@cache
def build_app(only: str | None = None) -> typer.Typer:
    """Return the command line with all commands, or ``only`` with one command or group.

    Modules and signatures of all commands take 0.3 s of CPU to read.
    """
    app = typer.Typer(
        name="fallow",
        help="Federated active learning: select the examples that each site labels, and train a model.",
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(frame)
    for name, target in COMMANDS.items():
        if only in (None, name):
            app.command(name)(_import_command(target))
    for name, target in GROUPS.items():
        if only in (None, name):
            app.add_typer(_import_command(target))
    return app


def _import_command(target: str) -> Any:
    module, _, function = target.partition(":")
    return getattr(import_module(f"fallow.cli.{module}"), function)


@cache
def build_command(only: str | None = None) -> Any:  # a command of click
    """Return the command of `build_app` with formatted help."""
    command = typer.main.get_command(build_app(only))
    _format_help(command)
    return command


def find_command(words: Sequence[str]) -> str | None:
    """Return the name of the command or group that the arguments call, if it exists.

    >>> find_command(["--debug", "datasets", "mnist"]), find_command(["datasetz"])
    ('datasets', None)
    """
    for word in words:
        if word != "--debug":
            return word if word in COMMANDS or word in GROUPS else None
    return None


def _format_help(command: Any) -> None:
    """Format the help of all commands, which are docstrings.

    The terminal wraps all paragraphs: typer keeps line breaks after the first.  The summary has no
    final period, as the help of options.
    """
    summary, *paragraphs = (command.help or "").split("\n\n")
    shown = [" ".join(summary.split()).removesuffix(".")]
    for text in paragraphs:
        if CONTINUED not in text:
            text = " ".join(text.split())
        shown.append(text)
    command.help = "\n\n".join(shown)
    for subcommand in getattr(command, "commands", {}).values():
        _format_help(subcommand)


def main() -> None:
    """Run the command line.  Exit codes: 0 success, 1 failure, 2 usage error, 130 Ctrl-C."""
    completion.prepare()
    leave_current_folder()  # commands with custom classes restore it
    command = build_command(find_command(sys.argv[1:]))
    try:
        check_repeated(command, sys.argv[1:])
        ended: object = command(prog_name="fallow", standalone_mode=False)
    except UsageError as error:
        _leave(2, _usage(error))
    except (KeyboardInterrupt, typer.Abort):
        _leave(INTERRUPTED, KEPT)
    except Stopped as error:
        _leave(INTERRUPTED, sentence(error))
    except ValueError as error:
        _leave(2, sentence(error))
    except (RunHalted, OSError) as error:
        _leave(1, sentence(error))
    except MemoryError:
        _leave(1, LACKS_MEMORY)
    except Exception as error:
        _leave(
            1, f"{sentence(error)}; this is a bug: run 'fallow --debug ...' for a traceback"
        )
    if ended == INTERRUPTED:
        _leave(INTERRUPTED, KEPT)
    if isinstance(ended, int):
        sys.exit(ended)
    sys.exit(0)


def check_repeated(command: Any, words: Sequence[str]) -> None:
    """Raise ValueError for an option that is given twice, of which the last would be used.

    >>> check_repeated(
    ...     build_command("demo"), ["demo", "--seeds", "2", "--fast", "--seeds=3"]
    ... )
    Traceback (most recent call last):
    ValueError: --seeds is given twice; give it once
    """
    names: set[str] = set()
    for word in words:
        subcommand = getattr(command, "commands", {}).get(word)
        if subcommand is not None:
            command = subcommand
            continue
        flag = word.partition("=")[0]
        for option in command.params:
            if flag not in option.opts or not flag.startswith("-"):
                continue
            if option.name in names and not (option.multiple or option.is_flag):
                raise ValueError(f"{flag} is given twice; give it once")
            names.add(option.name)


def _usage(error: Any) -> str:
    """Describe a usage error, with a reference to the help."""
    output = REPEATED.sub(r"\1", error.format_message().rstrip("."))
    output = output.replace(". Did you mean", "; did you mean")
    output = SEVERAL.sub(r"; did you mean one of \1?", output)
    for typed, words in WRONG_NUMBERS:
        output = typed.sub(words, output)
    if not output:  # of a group, which prints its help
        output = "Missing command"
    where = "fallow"
    if error.ctx is not None:
        where = error.ctx.command_path
    if f"No such command '{STRATEGIES}'" in output:
        return f"{output}; 'fallow algorithms' lists strategies and training algorithms"
    if output.endswith("?"):
        return f"{output} See '{where} --help'"
    return f"{output}; see '{where} --help'"


def _leave(code: int, reason: str) -> None:
    if "--debug" in sys.argv:
        traceback.print_exc()
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    errors.print(f"[bold red]error:[/] {escape(plain(reason, LONGEST))}")
    sys.exit(code)
