"""Start time of a run: encoded in its name, and checked by the site."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from fallow.core.refusal import Refusal

RUN = re.compile(r"([0-9a-f]{10})-[0-9a-f]{16}")
"""Name of a run: second and nanosecond of its start, and a random number."""
AHEAD = 86400  # largest lead of the coordinator's clock in seconds


def find_start(run: str) -> float | None:
    """Return the start of a run in seconds since 1970, or None for an invalid name.

    >>> find_start("003b9aca00-0123456789abcdef"), find_start("zzz")
    (1000000000.0, None)
    """
    name = RUN.fullmatch(run)
    if name is None:
        return None
    return float(int(name[1], 16))


def check_run(run: str, now: float) -> None:
    """Raise ValueError for an invalid run, or one more than a day ahead of the site's clock.

    After such a run, no run with an earlier name could be accepted.
    """
    start = find_start(run)
    if start is None:
        raise Refusal(
            f"{run!r:.80} is not a valid run name; a coordinator derives it from the "
            "start time"
        )
    if start > now + AHEAD:
        raise Refusal(
            f"run {run} starts at {format_time(start)} but the time here is "
            f"{format_time(now)}: the clock of the coordinator or of this site is "
            "wrong by more than a day; correct it, and start in a new folder if it "
            "is the coordinator's"
        )


def format_time(seconds: float) -> str:
    """Format a time as ISO text in UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")
    except (OverflowError, ValueError, OSError):  # outside the range of the calendar
        return f"second {seconds:.0f} since 1970"
