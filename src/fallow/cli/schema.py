"""``fallow schema``: JSON schemas of files and of the results of commands."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fallow.cli import options as opt
from fallow.cli.terminal import show_table
from fallow.core.suggestions import require_known

if TYPE_CHECKING:
    from fallow.storage.validation import JsonSchema

FILES = {
    "configuration": (
        "experiment configuration (.toml)",
        "fallow.settings.listing:configuration_schema",
    ),
    "study": ("study agreement (study.toml)", "fallow.deployment.study_file:study_schema"),
    "site": (
        "local settings of a site (site.toml)",
        "fallow.deployment.site.settings:site_schema",
    ),
    "record": ("line of records.jsonl", "fallow.experiment.record:Record"),
    "status": ("status of a coordinator", "fallow.report.live_state:Status"),
}
"""Name -> title, and type or function that returns the schema."""


def complete_schema(context: typer.Context, incomplete: str) -> list[str]:
    """Return the next words of names with a prefix."""
    before = " ".join([*(context.params.get("name") or ()), ""])
    words = []
    for name in [*FILES, *list_results()]:
        if f"{name} ".startswith(before.lstrip()):
            rest = name[len(before.lstrip()) :].split()
            words += [word for word in rest[:1] if word.startswith(incomplete)]
    return sorted(set(words))


Name = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]",
        help="File, or command whose --json is described, e.g. site status (default: list all)",
        autocompletion=complete_schema,
    ),
]


def schema(name: Name = None) -> None:
    """Print the JSON schema of a file, or of what a command prints with --json.

    For example:

    fallow schema configuration

    fallow schema coordinate status
    """
    results = list_results()
    if not name:
        console = opt.console()
        rows = [[file, title] for file, (title, _) in FILES.items()]
        show_table(console, "", ("name", "describes"), rows)
        console.print(
            f"\nResults of commands with --json: {', '.join(results)}", markup=False
        )
        return
    wanted = " ".join(name)
    require_known(
        wanted, [*FILES, *results], f"{wanted} has no schema", "'fallow schema' lists them"
    )
    opt.print_json(find_schema(wanted, results))


def find_schema(name: str, results: dict[str, opt.Results]) -> JsonSchema:
    """Return the schema of a file or of the result of a command."""
    from fallow.storage.validation import DIALECT, build_schema

    if name in FILES:
        kind = _load(FILES[name][1])
        schema = build_schema(kind) if isinstance(kind, type) else kind()
    else:
        kind = functools.reduce(operator.or_, map(_load, results[name].kinds))
        schema = build_schema(kind)
        if results[name].is_list:
            definitions = schema.pop("$defs", {})
            schema = {"type": "array", "items": schema, "$defs": definitions}
    return {"$schema": DIALECT, **schema}


def _load(path: str) -> Any:  # a type, or a function that returns a schema
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def list_results() -> dict[str, opt.Results]:
    """Return the results of all commands with ``--json``, by the words of the command."""
    from fallow.cli.app import build_command

    return {
        path: callback.__results__
        for path, callback in _walk(build_command(), "")
        if hasattr(callback, "__results__")
    }


def _walk(command: Any, path: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions of all commands with their words."""
    children: dict[str, Any] = getattr(command, "commands", {})  # commands of click
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}".strip())
    if not children and command.callback is not None:
        yield path, command.callback
