"""A site's ledger: one SQLite file with all that a site must not lose.

The site process and the labelling page read and write it at the same time: each change is one short
transaction, and the rules about budgets and history are the database's own (`ledger_tables`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from fallow.core.types import SiteId
from fallow.federation.ledger.orders import Orders, Sent
from fallow.federation.ledger.purchases import Purchases
from fallow.federation.ledger.questions import (
    Given,
    Kind,
    Progress,
    Question,
    check_value,
    now,
    settled,
)
from fallow.federation.ledger.store import SiteStore
from fallow.federation.ledger.tables import Tables

CURRENT = """
SELECT id, who, value, at, kind FROM given WHERE question = ? AND kind <> 'taken back'
AND id NOT IN (SELECT undoes FROM given WHERE question = ? AND undoes IS NOT NULL) ORDER BY id
"""
SHOWN = """
SELECT q.id, q.row, q.cycle, q.place, p.asked_at, p.deadline, q.why, q.state, q.entered,
    (SELECT count(*) FROM question WHERE purchase = q.purchase)
FROM question AS q JOIN purchase AS p ON p.id = q.purchase
"""
NEWEST = "SELECT id FROM run ORDER BY turn DESC LIMIT 1"


@final
class Ledger:
    """The ledger of one site.

    path: the file, made if it is not there; ``classes``: how many, 0 where there are numbers to
    predict; ``limit``: labels that people of this site are ever asked for, None: as many as the
    study says; ``annotators``: how many must agree; ``epsilon``: what the site ever spends on
    noise, over all runs; ``shown``: questions that its people ever see, None: as the study says.
    ``store`` is what `Site` keeps things in, ``orders`` the exchanges,
    ``purchases`` the questions as the coordinator's program sees them.

    Raises Failed for a file that is damaged, of another site, or cannot be written.
    """

    def __init__(
        self,
        path: Path,
        site: SiteId,
        classes: int,
        limit: int | None,
        annotators: int = 1,
        epsilon: float | None = None,
        shown: int | None = None,
    ) -> None:
        if annotators < 1 or (limit is not None and limit < 0):
            raise ValueError(
                f"site {site} has annotators={annotators} and limit={limit}: somebody must answer, "
                "and a limit is 0 or more"
            )
        self.path, self.site, self.classes, self.annotators = (
            path,
            site,
            classes,
            annotators,
        )
        self._tables = Tables(path, site)
        self.store = SiteStore(self._tables, epsilon)
        self.orders = Orders(self._tables)
        self.purchases = Purchases(self._tables, self.store)
        self.purchases.limit_to(limit, shown)
        self.orders.belongs_to(site, classes)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; an inner transaction joins the outer one."""
        with self._tables.transaction():
            yield

    @property
    def copy(self) -> Path:
        """Where `backup` writes to."""
        return self._tables.copy

    def backup(self) -> None:
        """Copy the file to ``<name>-backup`` beside it: the way out if it is ever damaged."""
        self._tables.backup()

    def check_in_place(self) -> None:
        """Raise Failed where another file has taken the place of this one since it was opened."""
        self._tables.check_in_place()

    def close(self) -> None:
        self._tables.close()

    # -- what people see --------------------------------------------------------------------

    def questions(
        self, cycle: int | None = None, state: str | None = None
    ) -> list[Question]:
        """The questions of the newest run, of one cycle or one state where that is named, as they
        were chosen."""
        sql = f"{SHOWN} WHERE q.run = ({NEWEST})"
        wanted = {"q.cycle": cycle, "q.state": state}
        for column in [name for name, value in wanted.items() if value is not None]:
            sql += f" AND {column} = ?"
        values = [value for value in wanted.values() if value is not None]
        return [
            self._question(line)
            for line in self._tables.read(f"{sql} ORDER BY q.id", *values)
        ]

    def cycles(self) -> list[int]:
        """The cycles in which the newest run asked; -1 is the first labels."""
        sql = f"SELECT DISTINCT cycle FROM purchase WHERE run = ({NEWEST}) ORDER BY cycle"
        return [cycle for (cycle,) in self._tables.read(sql)]

    def progress(self, cycle: int | None = None) -> Progress:
        """Of one cycle of the newest run; None: the newest cycle."""
        if cycle is None:
            cycle = max(self.cycles(), default=-1)
        sql = (
            f"SELECT state, count(*) FROM question WHERE run = ({NEWEST}) AND cycle = ? "
            "GROUP BY state"
        )
        n = dict(self._tables.read(sql, cycle))
        done = (n.get(state, 0) for state in ("answered", "declined", "conflict", "open"))
        return Progress(sum(n.values()), *done)

    def history(self, row: int, cycle: int | None = None) -> list[Given]:
        """Everything that was ever said about a row, oldest first; ``cycle``: only what answered
        the newest run's question of that cycle."""
        sql = (
            "SELECT g.who, g.value, g.at, g.kind FROM given AS g "
            f"JOIN question AS q ON q.id = g.question WHERE q.row = ?1 AND (?2 IS NULL OR "
            f"(q.cycle = ?2 AND q.run = ({NEWEST}))) ORDER BY g.id"
        )
        return [Given(*line) for line in self._tables.read(sql, row, cycle)]

    def sent(self) -> list[Sent]:
        """What left this site, by run and verb."""
        return self.orders.sent()

    def _question(self, line: Any) -> Question:
        at, row, cycle, place, asked_at, deadline, why, state, _, of = line
        answers = tuple(given for _, given in self._current(at))
        told = (json.loads(why), state, answers, asked_at, deadline)
        return Question(row, cycle, place, of, *told)

    def _current(self, question: int) -> list[tuple[int, Given]]:
        """The answers that count, with their ids: each person's last one, since a resolution."""
        found: dict[str, tuple[int, Given]] = {}
        for at, *line in self._tables.read(CURRENT, question, question):
            given = Given(*line)
            if given.kind == "resolved":
                found = {}
            found.pop(given.who, None)
            found[given.who] = (at, given)
        return list(found.values())

    # -- what people do ---------------------------------------------------------------------

    def answer(
        self, row: int, value: float | None, who: str, kind: Kind = "answer"
    ) -> Question:
        """Somebody's label for a row, or None: cannot tell; it replaces their earlier one.

        The same answer again changes nothing.  A label that has entered training is corrected when
        the cycle is closed.  Raises ValueError for a row that was never asked or whose question has
        expired or was withdrawn, for an unknown class, and for a number that is not finite.
        """
        with self.transaction():
            asked = self._asked(row)
            check_value(value, self.classes, row, self.site)
            mine = {given.who: given for _, given in self._current(asked[0])}.get(who)
            if mine is None or mine.value != value:
                resolves = (
                    mine is not None and mine.kind == "resolved"
                )  # still the last word
                self._give(asked, who, value, "resolved" if resolves else kind)
            return self._again(asked[0])

    def resolve(self, row: int, value: float | None, who: str) -> Question:
        """A conflict decided: earlier answers no longer count.  ValueError where there is none."""
        with self.transaction():
            asked = self._asked(row)
            check_value(value, self.classes, row, self.site)
            if self._again(asked[0]).state != "conflict":
                raise ValueError(
                    f"row {row} of site {self.site} is not in conflict: there is nothing to decide"
                )
            self._give(asked, who, value, "resolved")
            return self._again(asked[0])

    def take_back(self, who: str) -> Question | None:
        """Undo the latest answer of a person that has not entered training; None: there is none."""
        with self.transaction():
            found = self._latest(who)
            if not found:
                return None
            at, question, value = found[0]
            line = self._tables.read(f"{SHOWN} WHERE q.id = ?", question)[0]
            self._give(line, who, value, "taken back", undoes=at)
            return self._again(question)

    def undoable(self, who: str) -> Question | None:
        """The question that `take_back` would undo an answer to."""
        found = self._latest(who)
        return self._again(found[0][1]) if found else None

    def _latest(self, who: str) -> list[Any]:
        """Of the answer that was given last, whatever the clock said: its id, question, value."""
        sql = (
            "SELECT g.id, g.question, g.value FROM given AS g JOIN question AS q "
            "ON q.id = g.question WHERE g.who = ? AND g.kind <> 'taken back' AND g.id > q.entered "
            "AND q.state NOT IN ('expired', 'withdrawn') AND g.id NOT IN (SELECT undoes FROM given "
            "WHERE undoes IS NOT NULL) ORDER BY g.id DESC LIMIT 1"
        )
        return self._tables.read(sql, who)

    def withdraw(self, row: int, who: str, why: str = "") -> None:
        """A sample leaves: its questions at once, the pool, training and validation at the next
        order that begins something.  It never comes back.  Withdrawn again: nothing changes."""
        rows = self.orders.rows()
        if row < 0 or (rows is not None and row >= rows):
            raise ValueError(
                f"site {self.site} has no row {row}; its rows are 0 to {(rows or 1) - 1}"
            )
        with self.transaction():
            self._tables.write(
                "INSERT INTO gone (row, why, who, note, at, applied) "
                "VALUES (?, 'withdrawn', ?, ?, ?, 0) ON CONFLICT (row) DO UPDATE "
                "SET why = 'withdrawn', who = excluded.who, note = excluded.note, "
                "at = excluded.at WHERE why = 'declined'",
                *(row, who, why, now()),
            )
            self._tables.write(
                "UPDATE question SET state = 'withdrawn' WHERE row = ? AND state <> 'expired'",
                row,
            )

    def _asked(self, row: int) -> Any:
        """The newest question about a row, which may be answered; ValueError where it may not."""
        found = self._tables.read(
            f"{SHOWN} WHERE q.row = ? ORDER BY q.id DESC LIMIT 1", row
        )
        if not found:
            raise ValueError(
                f"row {row} of site {self.site} was never asked: only rows that the study chose "
                "take labels"
            )
        state, cycle = found[0][7], found[0][2]
        if state == "expired":
            raise ValueError(
                f"the question about row {row} of site {self.site} expired when cycle {cycle} "
                "closed: nothing was changed; if it is chosen again it will be asked again"
            )
        if state == "withdrawn":
            raise ValueError(
                f"row {row} of site {self.site} was withdrawn: it takes no labels any more"
            )
        return found[0]

    def _give(
        self,
        asked: Any,
        who: str,
        value: float | None,
        kind: Kind,
        undoes: int | None = None,
    ) -> None:
        if not who.strip():
            raise ValueError(
                f"the label of row {asked[1]} says not who gave it: name somebody"
            )
        sql = "INSERT INTO given (question, who, value, at, kind, undoes) VALUES (?, ?, ?, ?, ?, ?)"
        kept = None if value is None else float(value)
        self._tables.write(sql, asked[0], who, kept, now(), kind, undoes)
        state = settled([given for _, given in self._current(asked[0])], self.annotators)
        self._tables.write("UPDATE question SET state = ? WHERE id = ?", state, asked[0])

    def _again(self, question: int) -> Question:
        return self._question(self._tables.read(f"{SHOWN} WHERE q.id = ?", question)[0])
