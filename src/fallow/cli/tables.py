"""Tables and lines in a terminal, or in a file or pipe, which have no width of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fallow.storage.plain import one_line, printable

WIDEST = 100  # columns


def show_table(
    console: Console,
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: int = 1,
    words: int | None = None,
    widest: int = WIDEST,
) -> None:
    """Print a table at most ``widest`` wide; longer cells are wrapped, but in the first ``whole``
    columns.

    The first ``words`` columns are text (left), the others numbers (right); None: all are text.
    """
    table = Table(
        title=Text(one_line(title)), title_justify="left", box=None, pad_edge=False
    )
    for at, head in enumerate(heads):
        justify: Literal["left", "right"] = "left"
        if words is not None and at >= words:
            justify = "right"
        table.add_column(Text(one_line(head)), justify=justify, no_wrap=at < whole)
    for row in rows:
        cells = [escape(printable(cell)) for cell in row]
        table.add_row(*cells)
    console.print(table, width=min(console.width, widest))


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as they are: no markup is read in them, and none is wrapped."""
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def print_event(kind: str, text: str) -> None:
    """Something that happened, as one line of JSON: when (UTC), what kind of thing, in words."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    typer.echo(json.dumps({"time": at, "event": kind, "text": text}))
