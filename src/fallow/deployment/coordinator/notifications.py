"""Notifications to sites: absences and other events of a run.

Notifications are stored in the event log in the transaction of the event itself. An instruction
that is sent again after a restart carries the same notifications.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from fallow.core.exchange_key import ExchangeKey, read_key
from fallow.core.types import SiteId, Tree
from fallow.deployment.coordinator.absences import (
    describe_absence,
    describe_key,
    load_absences,
)
from fallow.experiment.event_log import EventLog

CUT_SHORT = "cut short"
CLOSED = "closed without"
"""Key in the event log: sites that missed the labeling of a step or its end."""


def note_cut_short(journal: EventLog, step: ExchangeKey, sites: Iterable[SiteId]) -> None:
    """Record that the labeling of a step was ended before these sites were done."""
    _note(journal, CUT_SHORT, step, sites)


def note_closed_without(
    journal: EventLog, step: ExchangeKey, sites: Iterable[SiteId]
) -> None:
    """Record that a step ended, and its labels were counted, without these sites."""
    _note(journal, CLOSED, step, sites)


def list_notifications(journal: EventLog, site: SiteId) -> list[str]:
    """Return the notifications to a site in a run, one sentence each."""
    news: list[str] = []
    for absence in load_absences(journal):
        if absence.site == site:
            news.append(describe_absence(absence))
    for step in _list_steps(journal, CUT_SHORT, site):
        news.append(_describe_cut(step))
    for step in _list_steps(journal, CLOSED, site):
        news.append(_describe_closed(step))
    return news


def describe_leaving(since: str) -> str:
    """Describe the removal of a site from a study at a time (ISO text)."""
    return (
        f"this site was removed from the study at {since}, because it did not reply "
        "to the standardization, which needs all sites: it receives no more "
        "requests of this run, and its labels remain stored here; ask the "
        "coordinator about another run"
    )


def _describe_cut(step: ExchangeKey) -> str:
    return (
        f"the coordinator ended the labeling of {describe_key(step)} before its "
        "deadline: open labeling tasks have expired, but existing labels count"
    )


def _describe_closed(step: ExchangeKey) -> str:
    return (
        f"the coordinator ended {describe_key(step)} without this site, which did "
        "not reply in time: its labels count in the next cycle"
    )


def _note(journal: EventLog, name: str, step: ExchangeKey, sites: Iterable[SiteId]) -> None:
    steps = _load(journal, name)
    steps[step.step_name] = {"key": step.to_dict(), "sites": sorted(sites)}
    journal.note(name, json.dumps(steps))


def _load(journal: EventLog, name: str) -> dict[str, Tree]:
    result: dict[str, Tree] = json.loads(journal.read_note(name) or "{}")
    return result


def _list_steps(journal: EventLog, name: str, site: SiteId) -> list[ExchangeKey]:
    lines = _load(journal, name).values()
    return [read_key(line["key"]) for line in lines if site in line["sites"]]
