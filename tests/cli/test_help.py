"""Help texts follow the style guide: short, in standard terms, without a final period."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from fallow.cli.app import app

PRIVATE = re.compile(
    r"\b(anew|go on with|by which alone|so many|what (?:it|there) is|"
    r"rows are dealt|people|reads out|in words|say nothing|addend)\b",
    re.IGNORECASE,
)
"""Words that a reader of other libraries' help does not expect."""
LONGEST = 95
"""Characters of the summary of a command."""


def list_commands(command: Any, path: str = "fallow") -> Iterator[tuple[str, Any]]:
    """A command and all below it, with the words that one types."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from list_commands(below, f"{path} {name}")


COMMANDS = dict(list_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_has_a_short_summary_in_standard_terms(path: str) -> None:
    summary = COMMANDS[path].help.partition("\n\n")[0].replace("\n", " ")
    assert len(summary) <= LONGEST
    assert summary.endswith(".")
    assert PRIVATE.search(COMMANDS[path].help) is None


@pytest.mark.parametrize("path", COMMANDS)
def test_help_of_options_has_no_final_period_and_standard_terms(path: str) -> None:
    for option in COMMANDS[path].params:
        text = getattr(option, "help", None)
        if text is None or option.name == "help":
            continue
        assert not text.endswith("."), option.name
        assert PRIVATE.search(text) is None, option.name
