"""What happens in a run, for people: the live state, the page, and lines for a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fallow.core.types import Answer, SiteId
from fallow.federation.agreement import Agreement
from fallow.federation.coordinator.live import Live, utc
from fallow.lab.report import write_report
from fallow.lab.run import Say

SELDOM = 30.0  # seconds between pages while people label


@final
@dataclass
class Teller:
    """Takes the events of a run, its carrier and its desk; passes them on to ``say``.

    ``pages``: the report is written anew after every score, and while people label where they are
    further than the page says.
    """

    folder: Path
    agreement: Agreement
    live: Live
    say: Say
    pages: bool = True
    _paged: float = -SELDOM
    _shown: Any = None  # how far people were when the page was written

    def begin(self) -> None:
        recipe = self.agreement.recipe
        for site in self.agreement.sites:
            self.live.site(site, online=False, seen=None, awaited=None)
        self.live.put(
            state="running", pid=os.getpid(), started=utc(self.live.clock()), phase="meeting sites",
            cycles=recipe.cycles, rounds=recipe.rounds, name=self.agreement.name,
        )  # fmt: skip

    def greeted(self, known: Mapping[SiteId, Answer]) -> None:
        for site, answer in known.items():
            self.live.site(site, rows=answer["rows"], test=answer.get("test"))
        self({"event": "met", "sites": sorted(known)})

    def end(self, state: str, why: str | None = None) -> None:
        """The last word: the run is finished, was stopped or has failed."""
        for site in self.live.sites:
            self.live.site(site, awaited=None)
        self.live.put(state=state, why=why, deadline=None)
        self._page()
        self.say({"event": state, "why": why})

    def __call__(self, event: dict[str, Any]) -> None:
        told = {k: v for k, v in event.items() if k in ("cycle", "round")}
        match event["event"]:
            case "met":
                self.live.put(phase="first labels", cycle=0)
            case "round":
                self.live.put(phase="training", deadline=None, **told)
            case "query":
                self.live.put(phase="choosing rows", **told)
            case "labels":
                self._labels(event)
            case "labelled":
                self.live.put(phase="entering labels", deadline=None)
            case "refused":
                self.live.refused(event["site"], event["why"])
            case "scored":
                self.live.put(**told)
                self._page()
            case _:
                self.live.beat()
        self.say(event)

    def _labels(self, event: dict[str, Any]) -> None:
        """People are asked, or further than they were."""
        for site, counts in event["sites"].items():
            self.live.site(site, labels=counts)
        self.live.put(phase="people label", step=event["step"], deadline=event["deadline"])
        is_new = self._shown != (event["step"], event["sites"])
        if is_new and time.monotonic() - self._paged >= SELDOM:
            self._shown = (event["step"], event["sites"])
            self._page()

    def _page(self) -> None:
        """Write the report anew; a page that cannot be written does not end a run."""
        if not self.pages:
            return
        self._paged = time.monotonic()
        try:
            write_report([self.folder])
        except (OSError, ValueError) as error:
            self.say({"event": "page", "why": str(error)})
