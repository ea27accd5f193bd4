"""Wait for annotators, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, final

from fallow.core.aggregation import number_of
from fallow.core.events import EventHandler, ignore_event
from fallow.core.exchange_key import ExchangeKey
from fallow.core.types import SiteId, Values
from fallow.deployment.coordinator.live import Control, seconds_of, utc
from fallow.experiment.event_log import EventLog
from fallow.report.live import INITIAL_LABELS

Ended = Literal["settled", "deadline", "advance"]
"""Reason for the end of labeling: all done, deadline passed, or ended by request."""

COUNTS = ("asked", "answered", "declined", "open", "conflicts")


class LabelCounter(Protocol):
    """Source of labeling progress. Sites that do not reply are left out."""

    def progress(self) -> dict[SiteId, Values]: ...


@final
@dataclass
class LabelWait:
    """Wait for the labels of a step.

    The deadline is an absolute time that is stored when the labeling tasks are created. It does not
    change after a restart. ``every`` is the number of seconds between progress requests.
    """

    sites: LabelCounter
    event_log: EventLog
    control: Control
    seconds: float  # time for annotators
    notify: EventHandler = ignore_event
    clock: Callable[[], float] = time.time
    every: float = 10.0

    def deadline(self, step: ExchangeKey) -> str:
        """Return the deadline for the labels of a step as ISO text."""
        name = f"deadline/{step.step_name}"
        result = self.event_log.read_note(name)
        if result is None:
            result = utc(self.clock() + self.seconds)
            self.control.forget("advance")  # a request for an earlier step
            with self.event_log.transaction():
                self.event_log.note(name, result)
        return result

    def wait(self, step: ExchangeKey, asked: Mapping[SiteId, int]) -> str:
        """Wait until all labeling tasks are done or the deadline has passed, and return why.

        The reason is one of `Ended`. A site that cannot be reached counts as not done.
        """
        name = f"ended/{step.step_name}"
        result = self.event_log.read_note(name)
        if result is None:
            while (why := self._why_over(step, asked)) is None:
                self.control.pause(self.every)
            result = why
            with self.event_log.transaction():
                self.event_log.note(name, result)
        self.notify(
            {
                "event": "labeled",
                "step": step.step_name,
                "tasks": name_tasks(step),
                "reason": result,
            }
        )
        return result

    def _why_over(self, step: ExchangeKey, asked: Mapping[SiteId, int]) -> Ended | None:
        if not any(asked.values()):
            return "settled"
        until = self.deadline(step)
        if self.control.take("advance"):
            return "advance"
        result: dict[SiteId, dict[str, int]] = {}
        for site, reply in self.sites.progress().items():
            result[site] = read_progress(reply)
        waiting: list[SiteId] = []
        for site, n in asked.items():
            if n and _is_open(result.get(site)):
                waiting.append(site)
        self.notify(
            {
                "event": "labels",
                "step": step.step_name,
                "tasks": name_tasks(step),
                "deadline": until,
                "sites": result,
                "open": waiting,
            }
        )
        if not waiting:
            return "settled"
        if self.clock() >= seconds_of(until):
            return "deadline"
        return None


def name_tasks(step: ExchangeKey) -> str:
    """Return the display name of the labeling tasks of a step.

    >>> name_tasks(ExchangeKey("initial", "initial"))
    'initial labels'
    >>> name_tasks(ExchangeKey("query", "query", cycle=2))
    'labels of cycle 2'
    >>> name_tasks(ExchangeKey("query", "query", cycle=2, part=1))
    'labels of cycle 2, part 2'
    """
    if step.phase == "initial":
        return INITIAL_LABELS
    if step.part:
        return f"labels of cycle {step.cycle}, part {step.part + 1}"
    return f"labels of cycle {step.cycle}"


def read_progress(reply: Values) -> dict[str, int]:
    """Return the labeling progress of one site.

    >>> read_progress({"asked": 5, "answered": 2, "declined": 1, "open": 2})["conflicts"]
    0
    """
    return {name: read_count(reply, name) for name in COUNTS}


def read_count(reply: Values, name: str) -> int:
    """Return an integer of a reply that `ResponseCheck` has accepted, or 0 if it is missing."""
    return int(number_of(reply.get(name)) or 0)


def _is_open(counts: Mapping[str, int] | None) -> bool:
    return counts is None or bool(counts["open"] or counts["conflicts"])
