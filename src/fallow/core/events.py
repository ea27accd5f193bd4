"""What is said while a run goes on, for whoever watches it: a terminal, a page, a live state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Required, TypedDict

from fallow.core.types import SiteId


class Event(TypedDict, total=False):
    """Something that happened: its kind, and what there is to say of it.

    A run says ``round``, ``query`` and ``scored``, and ``device`` where memory is short; a study
    ``done`` and ``failed`` beside them, each with the ``strategy`` and the ``seed`` of the run; a
    coordinator also how its sites and their people are.  Whoever takes events looks at the kind
    first, and passes over kinds that it does not know.
    """

    event: Required[str]  # the kind
    why: Any  # a sentence; how labeling ended
    # of a run
    cycle: int
    round: int
    labeled: int
    accuracy: float | None
    mse: float | None
    bytes_up: int  # so far
    bytes_down: int
    epsilon: float  # what a site has spent on noise so far; of an exchange: what it cost
    # of a study
    strategy: str
    seed: int
    cached: bool  # it was finished before
    # of an encoder: rows that are encoded, of so many
    done: int
    rows: int
    # of sites
    site: SiteId
    sites: Any  # their names; with "labels" how far the people of each are
    awaited: list[SiteId]  # those that were not heard yet
    key: str  # of the exchange
    needed: int  # answers
    asked: int  # sites
    waited: float  # seconds so far
    left: float  # seconds until nobody waits any more
    # of people
    step: str
    deadline: str  # UTC
    open: list[SiteId]  # whose people are not done
    # of sites that are silent now: what is known, and since when
    earlier: dict[SiteId, Any]
    silent: dict[SiteId, Any]
    # how an exchange waits, as the live state has it
    since: str
    until: str
    can_advance: bool
    is_of_all: bool
    now: str
    newest: str
    # of processes
    name: str
    problem: str | None
    refused: str | None
    bytes: int


Say = Callable[[Event], None]


def stay_silent(event: Event) -> None:
    """Say nothing."""


def name_run(event: Event, strategy: str, seed: int) -> Event:
    """An event of a run as an event of its study, which says of which run.

    >>> name_run({"event": "query", "cycle": 2}, "badge", 0)
    {'event': 'query', 'cycle': 2, 'strategy': 'badge', 'seed': 0}
    """
    return {**event, "strategy": strategy, "seed": seed}
