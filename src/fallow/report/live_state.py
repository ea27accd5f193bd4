"""Types of ``live.json``, used to validate untrusted files."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, TypedDict

from fallow.study.record_parts import Rule

STEP = re.compile(r"[0-9]{1,9}/(initial|query(-[0-9]{1,9})?)")
YEARS = (1970, 9998)
"""A moment lies in them in any time zone."""


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


def is_step(text: str) -> bool:
    """Return whether text names a step for `name_questions`."""
    return STEP.fullmatch(text) is not None


def is_count(number: int) -> bool:
    """Return whether an integer is a valid count."""
    return number >= 0


Moment = Annotated[str, Rule(is_moment, "a moment such as 2026-12-05T21:49:24+00:00")]
Step = Annotated[str, Rule(is_step, "a step such as 2/query")]
Count = Annotated[int, Rule(is_count, "a whole number, 0 or more")]


class LabelCounts(TypedDict, total=False):
    """Labeling progress of a site."""

    asked: Count
    answered: Count
    declined: Count
    open: Count
    conflicts: Count


class SiteState(TypedDict, total=False):
    """State of a site."""

    online: bool
    awaited: Moment | None
    seen: Moment | None
    rows: Count | None
    test: Count | None
    labels: LabelCounts | None
    counted: Moment | None


class Refusal(TypedDict):
    """Rejected reply."""

    site: str
    at: Moment
    why: str


class AbsentSite(TypedDict):
    """Site that a round or query proceeds without."""

    site: str
    what: str
    at: Moment


class WaitingState(TypedDict):
    """Exchange that waits for sites."""

    key: str
    sites: list[str]
    needed: Count
    since: Moment
    until: Moment
    can_advance: bool
    is_of_all: bool


class EndedLabels(TypedDict, total=False):
    """Step whose labeling has ended."""

    step: Step
    why: str
    open: Count | None


class LiveState(TypedDict, total=False):
    """Content of ``live.json``."""

    state: str
    why: str | None
    name: str
    pid: int
    started: Moment
    updated: Moment
    phase: str
    step: Step | None
    cycle: int | None
    cycles: int | None
    round: int | None
    rounds: int | None
    deadline: Moment | None
    waiting: WaitingState | None
    silent: dict[str, Moment | None] | None
    ended: EndedLabels | None
    absent: list[AbsentSite] | None
    left: dict[str, Moment] | None
    sites: dict[str, SiteState]
    refusals: list[Refusal] | None
