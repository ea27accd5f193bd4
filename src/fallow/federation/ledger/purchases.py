"""Questions as the coordinator's program sees them: asked within a budget, closed, turned into
labels."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from fallow.federation.ledger.questions import now
from fallow.federation.ledger.store import SiteStore
from fallow.federation.ledger.tables import Tables
from fallow.sites.store import Label

SETTLED = """
SELECT q.id, q.row, q.run, q.cycle, q.weight, q.probability, q.state, q.purchase, max(g.id)
FROM question AS q JOIN given AS g ON g.question = q.id
WHERE q.state IN ('answered', 'declined') GROUP BY q.id HAVING max(g.id) > q.entered ORDER BY q.id
"""
VALUE = """
SELECT value FROM given WHERE question = ? AND kind <> 'taken back' AND id NOT IN
(SELECT undoes FROM given WHERE question = ? AND undoes IS NOT NULL) ORDER BY id DESC LIMIT 1
"""
TAKEN = """
SELECT row FROM label UNION SELECT row FROM gone
UNION SELECT row FROM question WHERE run = ? AND cycle = ?
UNION SELECT row FROM question WHERE state IN ('answered', 'declined', 'conflict')
UNION SELECT q.row FROM question AS q JOIN purchase AS p ON p.id = q.purchase
    WHERE p.closed = 0 AND p.run = ?
"""


@dataclass(frozen=True)
class Line:
    """A row to ask for, what is told of it, and what the query attached to it."""

    row: int
    why: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    probability: float | None = None


@dataclass(frozen=True)
class Bounds:
    """What a study may have of a site over all runs; None: as much as there is.

    labels: questions that did not expire.  shown: questions that people ever saw.
    """

    labels: int | None = None
    shown: int | None = None


@dataclass(frozen=True)
class Closed:
    """What came of the questions of one step."""

    asked: int
    answered: int
    declined: int


@final
class Purchases:
    """The part of a ledger that asks and closes."""

    def __init__(self, tables: Tables, store: SiteStore) -> None:
        self._tables, self._store = tables, store

    def limit_to(self, most: int | None, shown: int | None = None) -> None:
        """What the site allows in all, and how many questions people are ever ``shown``; a limit
        below what was asked stops further questions."""
        sql = "UPDATE attention SET most = CASE WHEN ?1 IS NULL THEN NULL ELSE max(?1, shown) END"
        self._tables.write(sql, shown)
        sql = (
            "UPDATE purse SET most = CASE WHEN ?1 IS NULL THEN NULL ELSE max(?1, asked) END"
        )
        self._tables.write(sql, most)

    @property
    def asked(self) -> int:
        """Labels that people of this site were asked for so far, over all runs, without those that
        expired; a limit counts them."""
        return int(self._tables.read("SELECT asked FROM purse")[0][0])

    @property
    def shown(self) -> int:
        """Questions that people of this site ever saw, over all runs; none is given back."""
        return int(self._tables.read("SELECT shown FROM attention")[0][0])

    def ask(
        self,
        run: str,
        step: str,
        cycle: int,
        allowed: int,
        deadline: str | None,
        lines: Iterable[Line],
        bounds: Bounds | None = None,
    ) -> int:
        """Turn rows into questions, the first ones where the budget does not reach; how many.

        A step that has asked keeps its questions.  Rows that have a label, have left, were asked in
        this cycle or in a step that was never closed, or whose answer waits to enter, are passed
        over.  Questions of earlier steps that are still open expire.  ``bounds``: over all runs.
        """
        if allowed < 0:
            raise ValueError(
                f"site {self._tables.site} is allowed {allowed} labels in {step}"
            )
        bounds = bounds or Bounds()
        with self._tables.transaction():
            self._tables.check()
            found = self._purchase(run, step)
            if found is not None:
                return self._count(found)
            self._expire()
            taken = self.taken(run, cycle)
            free = [line for line in lines if line.row not in taken]
            sql = (
                "INSERT INTO purchase (run, step, cycle, allowed, asked_at, deadline) "
                "VALUES (?, ?, ?, ?, ?, ?)"
            )
            at = self._tables.write(sql, run, step, cycle, allowed, now(), deadline)
            asked = free[: min(allowed, self._left(len(free), bounds))]
            for place, line in enumerate(asked):
                self._add(at, run, cycle, place, line)
            return len(asked)

    def taken(self, run: str, cycle: int) -> set[int]:
        """Rows that are not asked in a cycle."""
        return {row for (row,) in self._tables.read(TAKEN, run, cycle, run)}

    def _add(self, purchase: int, run: str, cycle: int, place: int, line: Line) -> None:
        sql = (
            "INSERT INTO question (purchase, run, cycle, row, place, why, weight, probability) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        )
        kept = (json.dumps(dict(line.why)), line.weight, line.probability)
        try:
            self._tables.write(sql, purchase, run, cycle, line.row, place, *kept)
        except sqlite3.IntegrityError as error:
            raise ValueError(
                f"site {self._tables.site} cannot ask for row {line.row} in cycle {cycle}: {error}"
            ) from error

    def _left(self, wanted: int, bounds: Bounds) -> int:
        """How many of so many questions no limit over all runs forbids."""
        most, asked = self._tables.read("SELECT most, asked FROM purse")[0]
        most_shown, shown = self._tables.read("SELECT most, shown FROM attention")[0]
        limits = [
            (most, asked),
            (bounds.labels, asked),
            (most_shown, shown),
            (bounds.shown, shown),
        ]
        left = [int(limit) - int(used) for limit, used in limits if limit is not None]
        return max(0, min([wanted, *left]))

    def _purchase(self, run: str, step: str) -> int | None:
        found = self._tables.read(
            "SELECT id FROM purchase WHERE run = ? AND step = ?", run, step
        )
        return found[0][0] if found else None

    def _count(self, purchase: int, *states: str) -> int:
        marks = ", ".join("?" * len(states))
        among = f" AND state IN ({marks})" if states else ""
        sql = f"SELECT count(*) FROM question WHERE purchase = ?{among}"
        return int(self._tables.read(sql, purchase, *states)[0][0])

    def _expire(self) -> None:
        self._tables.write("UPDATE question SET state = 'expired' WHERE state = 'open'")

    def close(
        self, run: str, step: str, hold: Callable[[list[Label]], list[Label]]
    ) -> Closed:
        """Answers become labels, in the order in which rows were chosen; open questions expire and
        cost nothing.

        ``hold`` marks those of this step that are held back for validation.  Answers that came
        after their own step was closed, corrections and decided conflicts, enter now: a new label
        trains, a corrected one keeps all but its value.
        """
        with self._tables.transaction():
            self._tables.check()
            self._expire()
            self._tables.write("UPDATE purchase SET closed = 1")
            at = self._purchase(run, step)
            fresh: list[Label] = []
            late: list[Label] = []
            for line in self._tables.read(SETTLED):
                label = self._enter(line, run)
                if label is not None:
                    (fresh if line[7] == at else late).append(label)
            self._store.write(self._tables.site, [*hold(fresh), *late])
            if at is None:
                return Closed(0, 0, 0)
            counts = (self._count(at, state) for state in ("answered", "declined"))
            return Closed(self._count(at), *counts)

    def _enter(self, line: Any, run: str) -> Label | None:
        """One settled question: its row's new label, unless it corrects one or takes it away."""
        at, row, own, cycle, weight, probability, state, _, last = line
        self._tables.write("UPDATE question SET entered = ? WHERE id = ?", last, at)
        if state == "declined":
            self._store.erase(row)
            sql = (
                "INSERT OR IGNORE INTO gone (row, why, who, note, at, applied) "
                "VALUES (?, 'declined', '', '', ?, 1)"
            )
            self._tables.write(sql, row, now())
            return None
        self._tables.write("DELETE FROM gone WHERE row = ? AND why = 'declined'", row)
        value = self._tables.read(VALUE, at, at)[0][0]
        earlier = self._store.erase(row)
        if earlier is not None:
            self._store.write(self._tables.site, [earlier._replace(value=value)])
            return None
        return Label(row, value, cycle if own == run else -1, weight, probability)

    def let_go(self) -> None:
        """From now on rows that were withdrawn so far have left."""
        self._tables.write("UPDATE gone SET applied = 1")

    def left(self) -> list[int]:
        """Rows that are in no pool and train nothing: those that were let go, those that nobody can
        tell, and those that people still disagreed on when their step was closed."""
        sql = (
            "SELECT row FROM gone WHERE applied = 1 UNION SELECT q.row FROM question AS q "
            "JOIN purchase AS p ON p.id = q.purchase WHERE p.closed = 1 AND q.state NOT IN "
            "('expired', 'withdrawn') AND q.row NOT IN (SELECT row FROM label) ORDER BY row"
        )
        return [row for (row,) in self._tables.read(sql)]
