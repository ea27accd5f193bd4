"""History of a site: all recorded events in chronological order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fallow.deployment.ledger.store import PUT_BACK, SiteStore
from fallow.deployment.ledger.tables import MARKED, Tables


class HistoryLine(NamedTuple):
    """One event.

    ``event`` is its kind. ``at`` is ISO 8601 in UTC, or empty if the time is unknown. ``key``
    identifies the exchange or the step. ``row`` is a row number.
    """

    event: str
    at: str
    annotator: str = ""
    run: str = ""
    key: str = ""
    row: int | None = None
    n_bytes: int | None = None
    epsilon: float | None = None
    note: str = ""


def list_history(tables: Tables, store: SiteStore) -> list[HistoryLine]:
    """Return the events of all runs, oldest first.

    Events of the same second are sorted by table. Labels and reasons for withdrawals are not
    included. Raises StorageError if a line was changed.
    """
    with tables.transaction():  # read a consistent snapshot
        tables.check(tuple(MARKED))
        lines = [
            *_list_requests(tables),
            *_list_answers(tables),
            *_list_withdrawals(tables),
            *_list_exchanges(tables),
            *_list_releases(tables, store),
            *_list_going_back(tables),
            *_list_runs_left(tables),
        ]
    return sorted(lines, key=lambda line: line.at)


def _list_requests(tables: Tables) -> Iterator[HistoryLine]:
    sql = (
        "SELECT p.run, p.step, p.asked_at, p.deadline, "
        "(SELECT count(*) FROM task WHERE request = p.id) FROM request AS p ORDER BY p.id"
    )
    for run, step, at, deadline, shown in tables.read(sql):
        note = f"{shown} rows"
        if deadline:
            note += f", until {deadline}"
        yield HistoryLine("asked", at, run=run, key=step, note=note)


def _list_answers(tables: Tables) -> Iterator[HistoryLine]:
    sql = (
        "SELECT g.kind, g.at, g.annotator, q.run, p.step, q.row FROM annotation AS g "
        "JOIN task AS q ON q.id = g.task JOIN request AS p ON p.id = q.request "
        "WHERE g.kind <> 'earlier' ORDER BY g.id"
    )
    for kind, at, annotator, run, step, row in tables.read(sql):
        yield HistoryLine(kind, at, annotator=annotator, run=run, key=step, row=row)


def _list_withdrawals(tables: Tables) -> Iterator[HistoryLine]:
    sql = (
        "SELECT at, annotator, row FROM excluded WHERE reason = 'withdrawn' ORDER BY rowid"
    )
    for at, annotator, row in tables.read(sql):
        yield HistoryLine("withdrawn", at, annotator=annotator, row=row)


def _list_exchanges(tables: Tables) -> Iterator[HistoryLine]:
    sql = "SELECT run, key, functions, bytes, at FROM exchange ORDER BY id"
    for run, key, functions, n_bytes, at in tables.read(sql):
        yield HistoryLine("sent", at, run=run, key=key, n_bytes=n_bytes, note=functions)


def _list_releases(tables: Tables, store: SiteStore) -> Iterator[HistoryLine]:
    """Yield each release of epsilon.

    Its time is that of its exchange or of its line in the release log, whichever is earlier. Lines
    of a recreated log have the time of the recreation.
    """
    exchanges = tables.read("SELECT run, key, at FROM exchange")
    sent = {(run, key): at for run, key, at in exchanges}
    booked = store.list_release_times()
    spent = tables.read("SELECT run, key, epsilon FROM privacy_spending ORDER BY rowid")
    for run, key, epsilon in spent:
        known = [times[run, key] for times in (sent, booked) if (run, key) in times]
        what = "noise"
        if key.startswith(PUT_BACK):
            what = "noise in doubt"
        yield HistoryLine(what, min(known, default=""), run=run, key=key, epsilon=epsilon)


def _list_going_back(tables: Tables) -> Iterator[HistoryLine]:
    sql = "SELECT run, key, at FROM rollback_log ORDER BY rowid"
    for run, key, at in tables.read(sql):
        yield HistoryLine("went back", at, run=run, key=key)


def _list_runs_left(tables: Tables) -> Iterator[HistoryLine]:
    for run, at in tables.read("SELECT id, at FROM left_run ORDER BY rowid"):
        yield HistoryLine("run left", at, run=run)
