"""Commands of `fallow` in files and documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from fallow.cli.app import build_command

COMMAND = re.compile(r"(?:^|[|;(]|&&)\s*(?:\w+=\S+\s+)*fallow\s+(?P<words>[^|;&)\n]*)")


def check_command(words: list[str]) -> None:
    """Check that a command and its options exist."""
    command: Any = build_command()
    rest = list(words)
    while rest and not rest[0].startswith("-") and hasattr(command, "commands"):
        name = rest.pop(0)
        assert name in command.commands, f"fallow has no command {name!r}"
        command = command.commands[name]
    options = {
        name for param in command.params for name in param.opts + param.secondary_opts
    }
    for word in rest:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in options | {"--help", "-h"}, f"no option {word}"


def commands_of(script: str) -> Iterator[list[str]]:
    """Return the arguments of each `fallow` command in a shell script.

    >>> list(
    ...     commands_of(
    ...         "# fallow no\\nX=1 fallow run demo \\\\\\n  --seed 1  # once\\nmake x"
    ...     )
    ... )
    [['run', 'demo', '--seed', '1']]
    """
    joined = script.replace("\\\n", " ")
    for line in joined.splitlines():
        code = re.sub(r"(^|\s)#.*", "", line)
        for match in COMMAND.finditer(code):
            words = match["words"].split("  >")[0]
            yield shlex.split(words)


def find_commands() -> dict[str, Any]:
    """Return all commands by their arguments."""
    return dict(_walk(build_command(), ""))


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}".strip())
    if not children:
        yield path, command


def check_result(words: tuple[str, ...], written: str) -> None:
    """Check that the --json output of a command has one of its declared types."""
    import functools
    import operator
    from importlib import import_module

    from pydantic import TypeAdapter

    commands = find_commands()
    path = " ".join(words[:2]) if " ".join(words[:2]) in commands else words[0]
    declared = commands[path].callback.__results__
    kinds = []
    for name in declared.kinds:
        module, _, kind = name.partition(":")
        kinds.append(getattr(import_module(module), kind))
    joined: Any = functools.reduce(operator.or_, kinds)
    if declared.is_list:
        joined = list[joined]
    TypeAdapter(joined).validate_json(written, strict=True)
