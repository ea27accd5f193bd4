"""What a party's process says as lines of a log: date, level, study and party, as text or JSON.

Only words that may leave a site stand in a line: what an error quotes stays in ``errors.log``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import typer

from fallow.storage.plain import plain

if TYPE_CHECKING:  # it would load PyTorch
    from fallow.core.events import Event

LogFormat = Literal["text", "json"]
Level = Literal["INFO", "WARNING", "ERROR"]
LONGEST = 4000  # characters of what is said

ERRORS = ("failed", "process")
WARNINGS = (
    "refused",
    "weighed",
    "lost",
    "missing",
    "waiting",
    "clock",
    "taken back",
    "version",
    "page",
    "state",
    "pipe",
    "flower",
    "https",
)


def find_level(event: Event) -> Level:
    """How much an event asks for somebody's attention.

    >>> find_level({"event": "round"}), find_level({"event": "order", "refused": "why"})
    ('INFO', 'WARNING')
    """
    kind = event["event"]
    if kind in ERRORS:
        return "ERROR"
    is_problem = bool(event.get("refused")) or bool(event.get("problem"))
    if kind in WARNINGS or is_problem:
        return "WARNING"
    return "INFO"


@dataclass(frozen=True)
class LogLines:
    """Writes lines for one party of a study: ``coordinator`` or the name of a site."""

    form: LogFormat
    study: str
    party: str

    def write(self, level: Level, event: str, text: str) -> None:
        """One line: when (UTC), how urgent, of what, by whom, what kind of thing, in words."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        output = plain(text, LONGEST)
        if self.form == "text":
            study = plain(self.study)
            typer.echo(f"{now} {level:7} {study} {self.party} {event}: {output}")
            return
        line = {
            "time": now,
            "level": level,
            "study": self.study,
            "party": self.party,
            "event": event,
            "text": output,
        }
        typer.echo(json.dumps(line))

    @contextmanager
    def around(self) -> Iterator[None]:
        """Say that the process begins, and how it ends.  What an error says may quote a row, and is
        not repeated here."""
        self.write("INFO", "start", "the process begins")
        try:
            yield
        except BaseException:
            self.write(
                "ERROR",
                "end",
                "the process ends with an error, which it says as its last words",
            )
            raise
        self.write("INFO", "end", "the process ends in order")


def open_log(form: LogFormat | None, study: str, party: str) -> LogLines | None:
    """The lines of a party's log; None where nobody asked for one."""
    if form is None:
        return None
    return LogLines(form=form, study=study, party=party)
