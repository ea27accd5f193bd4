"""Every ``fallow`` command of the documents and studies exists with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fallow.cli.app import build_command
from tests.test_docs import REPOSITORY, blocks

COMMAND = re.compile(
    r"(?:^|[;&|(]\s*|\bdo\s+)fallow\s+(?P<words>[^;&|#)\n]*)", re.MULTILINE
)
SPLICED = re.compile(r"(?<!\S)\$[A-Z]+(?!\S)")
"""A variable of a shell that stands for several words."""


def documents() -> list[Path]:
    """Return the pages that show commands."""
    folders = (REPOSITORY / "docs", REPOSITORY / "studies")
    pages = [page for folder in folders for page in sorted(folder.glob("*.md"))]
    return [REPOSITORY / "README.md", *pages]


def read_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``fallow`` command in a piece of shell.

    >>> list(
    ...     read_commands(
    ...         "fallow run demo $C --set lr=$R # x\\nfor R in a; do fallow report $R; done"
    ...     )
    ... )
    [['run', 'demo', '--set', 'lr=$R'], ['report']]
    """
    plain = re.sub(r"\$\{([A-Z]+)[^}]*\}", r"$\1", text.replace("\\\n", " "))
    for match in COMMAND.finditer(plain):
        words = match["words"]
        for spliced in reversed(list(SPLICED.finditer(words))):
            before = words[: spliced.start()].split()
            if not (before and before[-1].startswith("--") and "=" not in before[-1]):
                words = words[: spliced.start()] + words[spliced.end() :]
        yield shlex.split(words)


def check_command(words: list[str]) -> None:
    """Raise click's error for a command or an option that does not exist."""
    command: click.Command = build_command()
    context = click.Context(command, info_name="fallow")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, subcommand, rest = command.resolve_command(context, rest)
        assert subcommand is not None
        command = subcommand
        context = click.Context(command, info_name=name, parent=context)
    command.make_parser(context).parse_args(rest)


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.name)
def test_commands_of_a_page_exist(page: Path) -> None:
    shown = [block.code for block in blocks(page) if block.language in ("bash", "console")]
    wrong = []
    for code in shown:
        for words in read_commands(re.sub(r"^\$ ", "", code, flags=re.MULTILINE)):
            try:
                check_command(words)
            except click.ClickException as error:
                wrong.append(f"fallow {shlex.join(words)}: {error.format_message()}")
    assert wrong == []


@pytest.mark.parametrize("words", ["compare demo --querry random", "compair demo"])
def test_a_command_that_does_not_exist_is_refused(words: str) -> None:
    with pytest.raises(click.ClickException):
        check_command(words.split())
