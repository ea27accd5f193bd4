"""What stands in ``live.json``: the types of its parts, by which one from elsewhere is checked."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, TypedDict

from fallow.study.record_parts import Rule

STEP = re.compile(r"[0-9]{1,9}/(initial|query(-[0-9]{1,9})?)")
YEARS = (1970, 9998)
"""A moment lies in them in any time zone."""


def is_moment(text: str) -> bool:
    """Whether a text is a moment with its time zone, as the state of a run has it.

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
    """Whether a text names questions, as `name_questions` takes it."""
    return STEP.fullmatch(text) is not None


def is_count(number: int) -> bool:
    """Whether a whole number may count something."""
    return number >= 0


Moment = Annotated[str, Rule(is_moment, "a moment such as 2026-12-05T21:49:24+00:00")]
Step = Annotated[str, Rule(is_step, "a step such as 2/query")]
Count = Annotated[int, Rule(is_count, "a whole number, 0 or more")]


class LabelCounts(TypedDict, total=False):
    """How far the people of a site are."""

    asked: Count
    answered: Count
    declined: Count
    open: Count
    conflicts: Count


class SiteState(TypedDict, total=False):
    """What is known of a site."""

    online: bool
    awaited: Moment | None
    seen: Moment | None
    rows: Count | None
    test: Count | None
    labels: LabelCounts | None
    counted: Moment | None


class Refusal(TypedDict):
    """An answer that did not count."""

    site: str
    at: Moment
    why: str


class AbsentSite(TypedDict):
    """A site that a round or query goes on without."""

    site: str
    what: str
    at: Moment


class WaitingState(TypedDict):
    """An exchange that waits for sites."""

    key: str
    sites: list[str]
    needed: Count
    since: Moment
    until: Moment
    can_advance: bool
    is_of_all: bool


class EndedLabels(TypedDict, total=False):
    """A step whose questions are closed."""

    step: Step
    why: str
    open: Count | None


class LiveState(TypedDict, total=False):
    """All of ``live.json``."""

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
