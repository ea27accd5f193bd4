"""When a run began, by its name, and by how much a site believes it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from fallow.core.refusal import Refusal

RUN = re.compile(r"([0-9a-f]{10})-[0-9a-f]{16}")
"""The name of a run: the second in which it began, the nanosecond of that, and a random number that
tells two of one moment apart; earlier versions had a longer one in place of the last two."""
AHEAD = 86400  # seconds by which a coordinator's clock may be ahead of the site's


def find_start(run: str) -> float | None:
    """When a run began, in seconds since 1970; None for what is no name of a run.

    >>> find_start("003b9aca00-0123456789abcdef"), find_start("zzz")
    (1000000000.0, None)
    """
    name = RUN.fullmatch(run)
    if name is None:
        return None
    return float(int(name[1], 16))


def check_run(run: str, now: float) -> None:
    """Raise ValueError for a run that is none, or begins more than a day after the site's clock:
    no earlier run could ever be led again."""
    start = find_start(run)
    if start is None:
        raise Refusal(
            f"{run!r:.80} is no name of a run: a coordinator names it by the time when it begins"
        )
    if start > now + AHEAD:
        raise Refusal(
            f"run {run} begins at {format_time(start)} and it is {format_time(now)} here: the clock "
            "of the coordinator or of this site is wrong by more than a day; set it right, and "
            "begin in a new folder if it is the coordinator's"
        )


def format_time(seconds: float) -> str:
    """A time of day as ISO text, UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return f"second {seconds:.0f} since 1970"
