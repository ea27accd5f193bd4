"""Tables, lines and an animated line in a terminal, and plain lines elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from rich.text import Text

from fallow.storage.plain import one_line, printable

PATIENCE = 2.0
"""Seconds before a message is shown."""
QUIET = 10.0
"""Seconds between plain lines."""


class Spinner:
    """Show a message while a block of code runs.

    In a terminal, the line disappears at the end of the block.  Elsewhere, a plain line is printed
    after two seconds, and then every ten seconds if the number of bytes is known.

    >>> with Spinner(Console(), "reading a.csv"):
    ...     pass
    """

    def __init__(self, console: Console, words: str) -> None:
        self.console = console
        self.words = words
        self._status: Status | None = None
        self._timer: threading.Timer | None = None
        self._shown = time.monotonic()

    def __enter__(self) -> Spinner:
        self._shown = time.monotonic()
        if self.console.is_terminal:
            self._status = self.console.status(_as_text(self.words))
            self._status.start()
        else:
            self._timer = threading.Timer(PATIENCE, self._say, [f"{self.words} ..."])
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
        if self._timer is not None:
            self._timer.cancel()

    def tell_bytes(self, done: int, total: int) -> None:
        """Report the number of bytes read and in total."""
        # imports PyTorch, which reading a file needs anyway
        from fallow.core.wording import size

        text = f"{self.words}: {size(done)} of {size(total)}"
        if self._status is not None:
            self._status.update(_as_text(text))
        elif time.monotonic() - self._shown > QUIET and done < total:
            self._say(text)

    def _say(self, text: str) -> None:
        self._shown = time.monotonic()
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)


def _as_text(words: str) -> Text:
    """Escape file names, which could contain markup or terminal control characters."""
    return Text(one_line(words))


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
