"""The coordinator waits for people, and never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, final

from fallow.core.events import Say, stay_silent
from fallow.core.types import Answer, SiteId
from fallow.experiment.journal import Journal
from fallow.federation.coordinator.live import Control, seconds_of, utc
from fallow.federation.coordinator.news import note_cut_short

Ended = Literal["settled", "deadline", "advance"]
"""Why waiting ended: everybody is done, time is up, or somebody said that it is enough."""

SLACK = 60.0  # seconds by which clocks are corrected without a word
COUNTS = ("asked", "answered", "declined", "open", "conflicts")


class Counting(Protocol):
    """Who can say how far people are; sites that do not answer are left out."""

    def progress(self) -> dict[SiteId, Answer]: ...


@final
@dataclass
class LabelWait:
    """Waits for the labels of a step.

    The deadline is a time of day, written down when the questions are asked: it is the same after
    any number of restarts.  ``every``: seconds between looks at the sites.
    """

    sites: Counting
    journal: Journal
    control: Control
    seconds: float  # that people have
    say: Say = stay_silent
    clock: Callable[[], float] = time.time
    every: float = 10.0
    _warned: bool = False
    _open: list[SiteId] | None = None  # sites with open questions at the last look

    def deadline(self, step: str) -> str:
        """Until when the questions of a step can be answered, as ISO text."""
        name = f"deadline/{step}"
        result = self.journal.read_note(name)
        if result is None:
            result = utc(self.clock() + self.seconds)
            self.control.forget("advance")  # of an earlier step
            with self.journal.transaction():
                self.journal.note(name, result)
        return result

    def wait(self, step: str, asked: Mapping[SiteId, int]) -> str:
        """Come back when no question is open or the deadline has passed; why (`Ended`).

        A site that cannot be reached counts as open.
        """
        name = f"ended/{step}"
        result = self.journal.read_note(name)
        if result is None:
            self._open = None
            while (why := self._why_over(step, asked)) is None:
                self.control.pause(self.every)
            result = why
            with self.journal.transaction():
                self.journal.note(name, result)
                if result == "advance":
                    note_cut_short(self.journal, step, self._left_behind(asked))
        self.say({"event": "labeled", "step": step, "why": result})
        return result

    def _why_over(self, step: str, asked: Mapping[SiteId, int]) -> Ended | None:
        if not any(asked.values()):
            return "settled"
        until = self.deadline(step)
        if self.control.take("advance"):
            return "advance"
        result: dict[SiteId, dict[str, int]] = {}
        for site, answer in self.sites.progress().items():
            result[site] = read_progress(answer)
        waiting: list[SiteId] = []
        for site, n in asked.items():
            if n and _is_open(result.get(site)):
                waiting.append(site)
        self._open = waiting
        self.say(
            {
                "event": "labels",
                "step": step,
                "deadline": until,
                "sites": result,
                "open": waiting,
            }
        )
        if not waiting:
            return "settled"
        if self._now() >= seconds_of(until):
            return "deadline"
        return None

    def _left_behind(self, asked: Mapping[SiteId, int]) -> list[SiteId]:
        """Sites that were not done at the last look; before the first one all that were asked."""
        if self._open is not None:
            return self._open
        return [site for site, n in asked.items() if n]

    def _now(self) -> float:
        """The time, and a word where the clock was set back: then people have longer."""
        now = self.clock()
        newest = float(self.journal.read_note("newest time") or 0.0)
        if now > newest + SLACK:
            with self.journal.transaction():
                self.journal.note("newest time", repr(now))
        elif now < newest - SLACK and not self._warned:
            self._warned = True
            self.say({"event": "clock", "now": utc(now), "newest": utc(newest)})
        return now


def read_progress(answer: Answer) -> dict[str, int]:
    """How far the people of one site are.

    >>> read_progress({"asked": 5, "answered": 2, "declined": 1, "open": 2})["conflicts"]
    0
    """
    return {name: read_count(answer, name) for name in COUNTS}


def read_count(answer: Answer, name: str) -> int:
    """A whole number of an answer, 0 where it is not told; `ResponseCheck` has looked at it."""
    value = answer.get(name, 0)
    if value is None or isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, which is no count")
    return int(value)


def _is_open(counts: Mapping[str, int] | None) -> bool:
    return counts is None or bool(counts["open"] or counts["conflicts"])
