"""Dates and times in files and messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fallow.storage.validation import Rule

NOTHING = "–"
"""Text of a moment or number that is not known."""
YEARS = (1970, 9998)
"""First and last year of a moment, in any time zone."""


def is_moment(text: str) -> bool:
    """Return whether text is a date and time with a time zone.

    >>> is_moment("2026-12-05T21:49:24+00:00"), is_moment("2026-12-05"), is_moment("soon")
    (True, False, False)
    """
    first, last = YEARS
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return False
    return then.tzinfo is not None and first <= then.year <= last


Moment = Annotated[str, Rule(is_moment, "a moment such as 2026-12-05T21:49:24+00:00")]


def format_moment(iso: str | None) -> str:
    """Return a moment to the minute, with its time zone.

    >>> format_moment("2026-12-05T21:49:24+00:00"), format_moment(None)
    ('5 Dec 2026, 21:49 UTC', '–')
    """
    if iso is None:
        return NOTHING
    then = datetime.fromisoformat(iso).astimezone(UTC)
    return f"{then.day} {then:%b %Y, %H:%M} UTC"
