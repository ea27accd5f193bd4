"""Report the events of a run: live state, report page and terminal output."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from fallow.configs.papers import load_papers
from fallow.core.events import Event, EventHandler, is_progress
from fallow.core.types import SiteId, Values
from fallow.deployment.agreement import Agreement
from fallow.deployment.coordinator.absences import (
    Absence,
    can_advance,
    describe_key,
    is_of_all,
)
from fallow.deployment.coordinator.arrivals import ARRIVALS, Arrival, add_arrival
from fallow.deployment.coordinator.live import LABELING, StatusFile, read_last, utc
from fallow.storage.errors import StorageError, sentence

SELDOM = 30.0  # seconds between report pages during labeling
LASTING = (
    *("rows", "test", "seen", "labels", "counted"),
    *("alpha", "predictions", "none_of_these"),
)
"""State of a site that is kept when the coordinator restarts."""
OVER = ("gathered", "missing", "labels", "labeled", "round", "query", "scored")
"""Events after which the list of pending sites changes."""


@final
@dataclass
class EventReporter:
    """Receive the events of a run, its transport and the wait for labels, and pass them to ``notify``.

    ``pages`` updates the report after every score and when labeling has progressed. ``run`` is the
    name of the run once it is known.
    """

    folder: Path
    agreement: Agreement
    live: StatusFile
    notify: EventHandler
    pages: bool = True
    run: str = ""
    _paged: float = -SELDOM
    # step and labeling progress when the page was written
    _shown: tuple[str, object] | None = None
    # sites without a reply since the start
    _away: set[SiteId] = field(default_factory=set)

    def begin(self) -> None:
        """Restore the stored state at the start of the coordinator."""
        config = self.agreement.config
        before = read_last(self.folder) or {"sites": {}}
        for site in self.agreement.sites:
            known = before["sites"].get(site, {})
            lasting = {name: known.get(name) for name in LASTING}
            self.live.update_site(site, online=False, awaited=None, **lasting)
        self.live.state |= {name: before.get(name) for name in ("step", "tasks", "ended")}
        self.live.put(
            state="running",
            pid=os.getpid(),
            started=utc(self.live.clock()),
            phase="registering sites",
            cycles=config.cycles,
            rounds=config.rounds,
            name=self.agreement.name,
        )
        self._away = set(self.agreement.sites)
        self.notify({"event": "meeting", "sites": sorted(self._away)})

    def note_absences(
        self, absences: Sequence[Absence], left: Mapping[SiteId, str]
    ) -> None:
        """Record sites left out of a round or query, and sites removed from the study."""
        absent = [
            {"site": absence.site, "exchange": describe_key(absence.key), "at": absence.at}
            for absence in absences
        ]
        self.live.put(absent=absent, left=dict(left))
        self._away -= left.keys()

    def note_greetings(self, known: Mapping[SiteId, Values]) -> None:
        """Record the registration replies of all sites."""
        for site, reply in known.items():
            self.live.update_site(site, rows=reply["rows"], test=reply.get("test"))
        self({"event": "met", "sites": sorted(known), "awaited": sorted(self._away)})

    def end(self, state: str, reason: str | None = None) -> None:
        """Record that the run is finished, stopped or failed."""
        for site in self.live.sites:
            self.live.update_site(site, awaited=None)
        self.live.put(state=state, reason=reason, deadline=None, waiting=None, silent=None)
        self._write_page()
        self.notify({"event": state, "reason": reason})

    def __call__(self, event: Event) -> None:
        output: dict[str, int] = {}
        for name in ("cycle", "round"):
            if name in event:
                output[name] = event[name]
        if event["event"] in OVER:
            self.live.state["waiting"] = None
        match event["event"]:
            case "met":
                self.live.put(phase="initial labels", cycle=0)
            case "round":
                self.live.put(phase="training", deadline=None, **output)
            case "query":
                self.live.put(phase="selecting examples", **output)
            case "labels":
                self._note_progress(event)
                event = event | {
                    "earlier": self._find_earlier(event["sites"]),
                    "silent": self.live.state["silent"],
                }
            case "labeled":
                self._note_end_of_labeling(event)
            case "agreement":
                for site, alpha in event["sites"].items():
                    self.live.update_site(site, alpha=alpha)
            case "annotators":
                for site, counts in event["sites"].items():
                    self.live.update_site(site, **counts)
            case "replied":
                self._record(event)
                self._note_arrival(event["site"])
            case "waiting" if not is_progress(event):
                event = self._note_waiting(event)
            case "weighed":
                self.live.note_refusal(event["site"], event["key"], event["reason"])
            case "advanced" | "revoked":
                self.live.put(waiting=None)
            case "refused":
                self._record(event)
                self.live.note_refusal(event["site"], event["key"], event["reason"])
            case "scored":
                self.live.put(**output)
                self._write_page()
            case _:
                self.live.beat()
        self.notify(event)

    def _note_waiting(self, event: Event) -> Event:
        """Record the pending sites of an exchange, its deadline and the available options."""
        now = self.live.clock()
        removed = {*event["sites"], *(self.live.state.get("left") or {})}
        waiting: Event = {
            "event": event["event"],
            "key": event["key"],
            "sites": event["sites"],
            "needed": event["needed"],
            "since": utc(now - event["waited"]),
            "until": utc(now + event["left"]),
            "can_advance": can_advance(self.agreement, event["exchange"], removed),
            "is_of_all": is_of_all(event["exchange"]),
        }
        shown = dict(waiting)
        del shown["event"]
        self.live.put(waiting=shown)
        return event | waiting

    def _note_progress(self, event: Event) -> None:
        """Record labeling progress. A site that does not reply keeps its last known progress."""
        step = event["step"]
        now = utc(self.live.clock())
        if self.live.state.get("step") != step:
            for site in self.live.sites:
                self.live.update_site(site, labels=None, counted=None)
        for site, counts in event["sites"].items():
            self.live.update_site(site, labels=counts, counted=now)
        silent: dict[SiteId, str | None] = {}  # time of the last reply of each site
        for site in event.get("open", []):
            if site not in event["sites"] and site in self.live.sites:
                silent[site] = self.live.sites[site].get("seen")
        self.live.put(
            phase=LABELING,
            step=step,
            tasks=event["tasks"],
            deadline=event["deadline"],
            silent=silent,
        )
        is_asked = self._shown is None or self._shown[0] != step
        is_new = self._shown != (step, event["sites"])
        if is_asked or (is_new and time.monotonic() - self._paged >= SELDOM):
            self._shown = (step, event["sites"])
            self._write_page()

    def _note_end_of_labeling(self, event: Event) -> None:
        """Record the end of labeling. Open labeling tasks expire."""
        step = event["step"]
        details = self.live.state
        counts: dict[SiteId, dict[str, int]] = {}
        for site, state in self.live.sites.items():
            if state.get("labels"):
                counts[site] = state["labels"]
        if (details.get("ended") or {}).get("step") != step:
            details["ended"] = {
                "step": step,
                "tasks": event["tasks"],
                "reason": event["reason"],
                "open": sum(n["open"] for n in counts.values()),
            }
        for site, n in counts.items():
            self.live.update_site(site, labels=n | {"open": 0})
        self.live.put(phase="storing labels", deadline=None, silent=None)
        self._write_page()

    def _note_arrival(self, site: SiteId) -> None:
        """Report a site as connected at its first reply since the start."""
        self.live.beat()
        if site in self._away:
            self._away.remove(site)
            self.notify({"event": "arrived", "site": site, "awaited": sorted(self._away)})

    def _record(self, event: Event) -> None:
        """Add an accepted or rejected reply to the audit log, except progress replies."""
        if is_progress(event):
            return
        event_kind: Literal["received", "refused"] = "received"
        if event["event"] == "refused":
            event_kind = "refused"
        arrival = Arrival(
            time=utc(self.live.clock()),
            event=event_kind,
            site=event["site"],
            run=self.run,
            key=event.get("key", ""),
            n_bytes=event.get("bytes", 0),
            epsilon=event.get("epsilon", 0.0),
            reason=event.get("reason", ""),
        )
        add_arrival(self.folder / ARRIVALS, arrival)

    def _find_earlier(
        self, now: Mapping[SiteId, object]
    ) -> dict[SiteId, tuple[dict[str, int], str]]:
        """Return the last known progress of sites that did not report now, and its time."""
        earlier: dict[SiteId, tuple[dict[str, int], str]] = {}
        for site, details in self.live.sites.items():
            if site not in now and details.get("labels"):
                earlier[site] = (details["labels"], details["counted"])
        return earlier

    def _write_page(self) -> None:
        """Write the report. A failure does not end the run."""
        from fallow.report.page import write_report

        if not self.pages:
            return
        self._paged = time.monotonic()
        try:
            write_report([self.folder], papers=load_papers())
        except (StorageError, OSError, ValueError) as error:
            why = f"the report page is outdated: {sentence(error)}; the run continues"
            self.notify({"event": "page", "reason": why})
