"""Entries of an audit log, from the folder of a site or a coordinator.

Entries contain no data, row names, labels or free text. A row is given by its number, and a label
by its annotator and time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from fallow.deployment.agreement import Agreement
from fallow.deployment.coordinator.absences import load_absences, load_left
from fallow.deployment.coordinator.arrivals import ARRIVALS, read_arrivals
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.folders import find_kind
from fallow.deployment.joining import fingerprint
from fallow.deployment.ledger.history import HistoryLine
from fallow.deployment.site.agreement_text import Disclosed, list_agreed_disclosures
from fallow.deployment.site.folder import SETTINGS, SiteFolder
from fallow.experiment.event_log import EventLog
from fallow.study.study_run import StudyRun

Role = Literal["site", "coordinator"]


class Entry(TypedDict):
    """One event. Unset fields are empty.

    ``time`` is ISO 8601 in UTC by the party's own clock. ``event`` is the kind of event, a key of
    `KINDS`. ``party`` is an annotator, or the site that an entry of a coordinator concerns. ``row``
    is the row number in the site's file, from 0.
    """

    number: int
    time: str
    event: str
    party: str
    run: str
    exchange: str
    row: int | str
    bytes: int | str
    epsilon: float | str
    note: str


FIELDS = tuple(Entry.__annotations__)
EMPTY: Entry = {
    "number": 0,
    "time": "",
    "event": "",
    "party": "",
    "run": "",
    "exchange": "",
    "row": "",
    "bytes": "",
    "epsilon": "",
    "note": "",
}

KINDS = {
    "asked": "labeling tasks were created; note: their number and deadline",
    "answer": "an annotator gave a label, or stated that they cannot tell",
    "confirmed": "an annotator confirmed a prediction as the label, together with others",
    "imported": "a label was imported from a file, under the annotator's name in it",
    "resolved": "an annotator resolved a conflict between two labels",
    "taken back": "an annotator undid their latest label",
    "withdrawn": "an annotator withdrew an example from the study",
    "sent": "a reply to the coordinator was stored and sent, perhaps more than once",
    "noise": "counts were released with noise, which cost epsilon",
    "noise in doubt": "the ledger was restored, and possible releases since the backup count as spent",
    "went back": "the run was rolled back to repeat an exchange",
    "run left": "users at this site left a run permanently",
    "admitted": "a site was admitted; note: the fingerprint of its keys",
    "received": "a reply of a site arrived and was accepted",
    "refused": "a reply of a site was rejected; note: the reason",
    "absent": "a round or query proceeded without a site",
    "left out": "the run proceeded permanently without a site",
}
"""Kinds of events and their meaning."""


@dataclass(frozen=True)
class AuditLog:
    """Audit log of a party. ``key`` is the public key of its signature, 32 bytes."""

    role: Role
    party: str
    study: str
    digest: str
    key: bytes
    entries: list[Entry]
    disclosures: list[Disclosed]

    @property
    def title(self) -> str:
        """Return the party in words."""
        return name_party(self.role, self.party)


def name_party(role: str, party: str) -> str:
    """Return a party in words.

    >>> name_party("site", "basel"), name_party("coordinator", "coordinator")
    ('site basel', 'the coordinator')
    """
    if role == "coordinator":
        return "the coordinator"
    return f"site {party}"


def read_audit_log(folder: Path) -> tuple[AuditLog, bytes]:
    """Return the audit log of a party's folder and the signing key.

    Raises ValueError for any other folder, and StorageError if a line of its ledger was changed.
    """
    if find_kind(folder) == SETTINGS:
        site = SiteFolder.open(folder)
        return read_site_audit_log(site), site.keys.sign
    coordinator_folder = CoordinatorFolder.open(folder)
    return read_coordinator_audit_log(coordinator_folder), coordinator_folder.secret


def read_site_audit_log(folder: SiteFolder) -> AuditLog:
    """Return the audit log of a site, from its ledger."""
    with closing(folder.open_ledger()) as ledger:
        lines = ledger.list_history()
    return AuditLog(
        role="site",
        party=folder.name,
        study=folder.agreement.name,
        digest=folder.agreement.digest,
        key=folder.keys.verify,
        entries=_number(map(_read_line, lines)),
        disclosures=list_agreed_disclosures(folder.agreement),
    )


def _read_line(line: HistoryLine) -> Entry:
    """Convert a line of a ledger to an entry."""
    result: Entry = {
        **EMPTY,
        "event": line.event,
        "time": line.at,
        "party": line.annotator,
        "run": line.run,
        "exchange": line.key,
        "note": line.note,
    }
    if line.row is not None:
        result["row"] = line.row
    if line.n_bytes is not None:
        result["bytes"] = line.n_bytes
    if line.epsilon is not None:
        result["epsilon"] = line.epsilon
    return result


def read_coordinator_audit_log(folder: CoordinatorFolder) -> AuditLog:
    """Return the audit log of a coordinator: admissions, replies and removals."""
    agreement = folder.agreement
    entries: list[Entry] = []
    for site, details in folder.admitted.items():
        note = fingerprint(details)
        entries.append({**EMPTY, "event": "admitted", "party": site, "note": note})
    entries += _list_decisions(folder.path, agreement)
    for arrival in read_arrivals(folder.path / ARRIVALS):
        entry: Entry = {
            **EMPTY,
            "event": arrival.event,
            "time": arrival.time,
            "party": arrival.site,
            "run": arrival.run,
            "exchange": arrival.key,
            "note": arrival.reason,
        }
        if arrival.event == "received":
            entry["bytes"] = arrival.n_bytes
            entry["epsilon"] = arrival.epsilon
        entries.append(entry)
    return AuditLog(
        role="coordinator",
        party="coordinator",
        study=agreement.name,
        digest=agreement.digest,
        key=agreement.coordinator,
        entries=_number(sorted(entries, key=_time_of)),
        disclosures=list_agreed_disclosures(agreement),
    )


def _list_decisions(folder: Path, agreement: Agreement) -> Iterator[Entry]:
    """Yield the entries about sites that were left out or removed."""
    path = StudyRun(str(agreement.config.strategy), agreement.seed).folder(folder)
    if not (path / "event_log.sqlite").exists():
        return
    with closing(EventLog(path / "event_log.sqlite", is_durable=True)) as event_log:
        run = event_log.read_note("run") or ""
        for absence in load_absences(event_log):
            yield {
                **EMPTY,
                "event": "absent",
                "time": absence.at,
                "party": absence.site,
                "run": run,
                "exchange": str(absence.key),
            }
        for site, since in load_left(event_log).items():
            yield {**EMPTY, "event": "left out", "time": since, "party": site, "run": run}


def _time_of(entry: Entry) -> str:
    return entry["time"]


def _number(entries: Iterable[Entry]) -> list[Entry]:
    """Number the entries from 1."""
    numbered: list[Entry] = []
    for number, entry in enumerate(entries, start=1):
        entry["number"] = number
        numbered.append(entry)
    return numbered
