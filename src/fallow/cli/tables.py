"""Tables and lines in a terminal, a file or a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
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
    """Print a table of at most ``widest`` characters, wrapping all but the first ``whole`` columns.

    The first ``words`` columns are text (left-aligned), the others numbers (right-aligned).  None means
    that all are text.
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
    """Print lines without markup and without wrapping."""
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def print_event(kind: str, text: str) -> None:
    """Print an event as one line of JSON, with time (UTC), event and text."""
    from fallow.cli.objects import EventLine

    at = datetime.now(UTC).isoformat(timespec="seconds")
    typer.echo(json.dumps(asdict(EventLine(at, kind, text))))
