"""Log lines of a coordinator or a site: date, level, study and party, as text or JSON.

A log line contains only what may leave a site.  Quoted values of errors are written to ``errors.log``.
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

if TYPE_CHECKING:  # imports PyTorch
    from fallow.core.events import Event

LogFormat = Literal["text", "json"]
Level = Literal["INFO", "WARNING", "ERROR"]
LONGEST = 4000  # characters of the text

ERRORS = ("failed", "process")
WARNINGS = (
    "refused",
    "weighed",
    "lost",
    "missing",
    "waiting",
    "taken back",
    "revoked",
    "version",
    "page",
    "state",
    "transport",
)


def find_level(event: Event) -> Level:
    """Return the log level of an event.

    >>> (
    ...     find_level({"event": "round"}),
    ...     find_level({"event": "instruction", "refused": "reason"}),
    ... )
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
    """Log writer of one party of a study: ``coordinator`` or the name of a site."""

    form: LogFormat
    study: str
    party: str

    def write(self, level: Level, event: str, text: str) -> None:
        """Write one line with time (UTC), level, study, party, event and text."""
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
        """Log the start and the end of the process.

        The text of an error may quote an example, so it is omitted.
        """
        self.write("INFO", "start", "the process begins")
        try:
            yield
        except BaseException:
            self.write(
                "ERROR",
                "end",
                "the process exits with an error, printed last",
            )
            raise
        self.write("INFO", "end", "the process exits normally")


def open_log(form: LogFormat | None, study: str, party: str) -> LogLines | None:
    """Return the log of a party, or None if logging is off."""
    if form is None:
        return None
    return LogLines(form=form, study=study, party=party)
