"""Events of a run, for observers such as a terminal, a page or the live state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Required, TypedDict

from fallow.core.exchange_key import ExchangeKey
from fallow.core.types import SiteId


class Event(TypedDict, total=False):
    """An event: its kind and details.

    A run sends ``round``, ``query`` and ``scored``, and ``device`` if memory is short.  A study
    also sends ``done`` and ``failed``, each with the ``strategy`` and the ``seed`` of the run.  A
    coordinator also reports the state of its sites and annotators.  Observers read the kind first
    and ignore unknown kinds.
    """

    event: Required[str]  # the kind
    reason: Any  # a sentence: reason for the end of labeling
    # of a run
    cycle: int
    round: int
    labeled: int
    accuracy: float | None
    mse: float | None
    distance: float | None  # without training
    bytes_up: int  # so far
    bytes_down: int
    epsilon: float  # privacy budget that a site has spent; for an exchange: its cost
    # of a study
    strategy: str
    seed: int
    cached: bool  # it was completed before
    # of an encoder: number of encoded examples, and of all
    done: int
    rows: int
    # of sites
    site: SiteId
    sites: Any  # their names; for "labels" the progress of their annotators
    awaited: list[SiteId]  # pending sites
    key: str  # of the exchange, as text
    exchange: ExchangeKey  # the same with its fields
    needed: int  # number of replies
    asked: int  # number of sites
    waited: float  # seconds so far
    left: float  # seconds until the timeout
    # of annotators
    step: str
    tasks: str  # name of the labeling tasks of a step
    deadline: str  # UTC
    open: list[SiteId]  # sites whose annotators are not done
    # of silent sites: details, and since when
    earlier: dict[SiteId, Any]
    silent: dict[SiteId, Any]
    # state of a pending exchange in the live state
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


EventHandler = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Ignore an event."""


def is_progress(event: Event) -> bool:
    """Return whether an event is about a progress request, which is not an exchange."""
    exchange = event.get("exchange")
    return exchange is not None and exchange.phase == "progress"


def name_run(event: Event, strategy: str, seed: int) -> Event:
    """Return an event of a run as an event of its study, with the identity of the run.

    >>> name_run({"event": "query", "cycle": 2}, "badge", 0)
    {'event': 'query', 'cycle': 2, 'strategy': 'badge', 'seed': 0}
    """
    return {**event, "strategy": strategy, "seed": seed}


def describe_score(event: Event) -> str:
    """Return the score of a cycle in an event ``scored``, "" without one.

    >>> describe_score({"event": "scored", "accuracy": 0.5, "mse": None})
    'accuracy 0.500'
    """
    accuracy = event.get("accuracy")
    if accuracy is not None:
        return f"accuracy {accuracy:.3f}"
    mse = event.get("mse")
    if mse is not None:
        return f"mse {mse:.4g}"
    distance = event.get("distance")
    if distance is not None:
        return f"distance {distance:.3f}"
    return ""
