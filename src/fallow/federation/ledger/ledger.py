"""A site's ledger: one SQLite file with all that a site must not lose.

The site process and the labeling page read and write it at the same time: each change is one short
transaction, and the rules about budgets and history are the database's own (`tables`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, final

from fallow.core.types import SiteId
from fallow.federation.ledger.history import HistoryLine, list_history
from fallow.federation.ledger.orders import Orders, Traffic
from fallow.federation.ledger.purchases import Purchases
from fallow.federation.ledger.questions import (
    EntryKind,
    LabelAnswer,
    LabelProgress,
    Question,
    QuestionState,
    check_value,
    decide_state,
    now,
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


class _QuestionLine(NamedTuple):
    """A line of `SHOWN`.  of: how many questions its purchase asked.  entered: the newest answer,
    by its id, that has entered training."""

    id: int
    row: int
    cycle: int
    place: int
    asked_at: str
    deadline: str | None
    why: str  # JSON
    state: QuestionState
    entered: int
    of: int


class _AnswerLine(NamedTuple):
    """Which answer can be undone: its id, its question, what it said."""

    id: int
    question: int
    value: float | None


@final
class Ledger:
    """The ledger of one site.

    path: the file, made if it is not there; ``classes``: how many, 0 where there are numbers to
    predict; ``limit``: labels that people of this site are ever asked for, None: as many as the
    study says; ``annotators``: how many must agree; ``epsilon`` and ``delta``: what the site ever
    spends on noise, over all runs; ``shown``: questions that its people ever see, None: as the
    study says.
    ``store`` is what `LocalSite` keeps things in, ``orders`` the exchanges,
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
        delta: float | None = None,
    ) -> None:
        if annotators < 1 or (limit is not None and limit < 0):
            raise ValueError(
                f"site {site} has annotators={annotators} and limit={limit}: somebody must answer, "
                "and a limit is 0 or more"
            )
        self.path = path
        self.site = site
        self.classes = classes
        self.annotators = annotators
        self._tables = Tables(path, site)
        self.store = SiteStore(self._tables, epsilon, delta)
        self.orders = Orders(self._tables)
        self.purchases = Purchases(self._tables, self.store)
        self.purchases.limit_to(most=limit, shown=shown)
        self.orders.check_owner(site, classes)

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
        """End the connection to the file."""
        self._tables.close()

    # -- what people see --------------------------------------------------------------------

    def questions(
        self, cycle: int | None = None, state: str | None = None
    ) -> list[Question]:
        """The questions of the newest run, of one cycle or one state where that is named, as they
        were chosen."""
        sql = (
            f"{SHOWN} WHERE q.run = ({NEWEST}) AND (?1 IS NULL OR q.cycle = ?1) "
            "AND (?2 IS NULL OR q.state = ?2) ORDER BY q.id"
        )
        lines = map(_QuestionLine._make, self._tables.read(sql, cycle, state))
        return [self._build_question(line) for line in lines]

    def cycles(self) -> list[int]:
        """The cycles in which the newest run asked; -1 is the first labels."""
        sql = f"SELECT DISTINCT cycle FROM purchase WHERE run = ({NEWEST}) ORDER BY cycle"
        return [cycle for (cycle,) in self._tables.read(sql)]

    def progress(self, cycle: int | None = None) -> LabelProgress:
        """Of one cycle of the newest run; None: the newest cycle."""
        if cycle is None:
            cycle = max(self.cycles(), default=-1)
        sql = (
            f"SELECT state, count(*) FROM question WHERE run = ({NEWEST}) AND cycle = ? "
            "GROUP BY state"
        )
        counts: dict[QuestionState, int] = dict(self._tables.read(sql, cycle))
        return LabelProgress(
            asked=sum(counts.values()),
            answered=counts.get("answered", 0),
            declined=counts.get("declined", 0),
            conflicts=counts.get("conflict", 0),
            open=counts.get("open", 0),
        )

    def history(self, row: int, cycle: int | None = None) -> list[LabelAnswer]:
        """Everything that was ever said about a row, oldest first; ``cycle``: only what answered
        the newest run's question of that cycle."""
        sql = (
            "SELECT g.who, g.value, g.at, g.kind FROM given AS g "
            f"JOIN question AS q ON q.id = g.question WHERE q.row = ?1 AND (?2 IS NULL OR "
            f"(q.cycle = ?2 AND q.run = ({NEWEST}))) ORDER BY g.id"
        )
        lines = self._tables.read(sql, row, cycle)
        return [
            LabelAnswer(who=who, value=value, at=at, kind=kind)
            for who, value, at, kind in lines
        ]

    def traffic(self) -> list[Traffic]:
        """What left this site, by run and verb."""
        return self.orders.traffic()

    def list_history(self) -> list[HistoryLine]:
        """All that happened at this site in all runs, oldest first, for an audit trail."""
        return list_history(self._tables, self.store)

    def _load_question(self, question: int) -> Question:
        return self._build_question(self._load_line(question))

    def _load_line(self, question: int) -> _QuestionLine:
        lines = self._tables.read(f"{SHOWN} WHERE q.id = ?", question)
        return _QuestionLine._make(lines[0])

    def _build_question(self, line: _QuestionLine) -> Question:
        answers = [value for _, value in self._load_current_answers(line.id)]
        return Question(
            row=line.row,
            cycle=line.cycle,
            place=line.place,
            of=line.of,
            why=json.loads(line.why),
            state=line.state,
            answers=tuple(answers),
            asked_at=line.asked_at,
            deadline=line.deadline,
        )

    def _load_current_answers(self, question: int) -> list[tuple[int, LabelAnswer]]:
        """The answers that count, with their ids: each person's last one, since a resolution."""
        current: dict[str, tuple[int, LabelAnswer]] = {}
        for answer, who, value, at, kind in self._tables.read(CURRENT, question, question):
            if kind == "resolved":
                current = {}
            current.pop(who, None)  # so that the newest stands last
            current[who] = (answer, LabelAnswer(who=who, value=value, at=at, kind=kind))
        return list(current.values())

    # -- what people do ---------------------------------------------------------------------

    def answer(
        self, row: int, value: float | None, who: str, kind: EntryKind = "answer"
    ) -> Question:
        """Somebody's label for a row, or None: cannot tell; it replaces their earlier one.

        The same answer again changes nothing.  A label that has entered training is corrected when
        the cycle is closed.  Raises ValueError for a row that was never asked or whose question has
        expired or was withdrawn, for an unknown class, and for a number that is not finite.
        """
        with self.transaction():
            asked = self._find_question(row)
            check_value(value, self.classes, row=row, site=self.site)
            answers = [given for _, given in self._load_current_answers(asked.id)]
            own: LabelAnswer | None = None
            for given in answers:
                if given.who == who:
                    own = given
            if own is None or own.value != value:
                is_correcting_resolution = own is not None and own.kind == "resolved"
                if is_correcting_resolution:
                    kind = "resolved"  # it is still the last word
                self._record(asked, who=who, value=value, kind=kind)
            return self._load_question(asked.id)

    def resolve(self, row: int, value: float | None, who: str) -> Question:
        """A conflict decided: earlier answers no longer count.  ValueError where there is none."""
        with self.transaction():
            asked = self._find_question(row)
            check_value(value, self.classes, row=row, site=self.site)
            if self._load_question(asked.id).state != "conflict":
                raise ValueError(
                    f"row {row} of site {self.site} is not in conflict: there is nothing to decide"
                )
            self._record(asked, who=who, value=value, kind="resolved")
            return self._load_question(asked.id)

    def take_back(self, who: str) -> Question | None:
        """Undo the latest answer of a person that has not entered training; None: there is none."""
        with self.transaction():
            latest = self._find_latest_answer(who)
            if latest is None:
                return None
            asked = self._load_line(latest.question)
            self._record(
                asked, who=who, value=latest.value, kind="taken back", undoes=latest.id
            )
            return self._load_question(latest.question)

    def undoable(self, who: str) -> Question | None:
        """The question that `take_back` would undo an answer to."""
        latest = self._find_latest_answer(who)
        if latest is None:
            return None
        return self._load_question(latest.question)

    def _find_latest_answer(self, who: str) -> _AnswerLine | None:
        """The answer that a person gave last, whatever the clock said; None: none can be undone."""
        sql = (
            "SELECT g.id, g.question, g.value FROM given AS g JOIN question AS q "
            "ON q.id = g.question WHERE g.who = ? AND g.kind <> 'taken back' AND g.id > q.entered "
            "AND q.state NOT IN ('expired', 'withdrawn') AND g.id NOT IN (SELECT undoes FROM given "
            "WHERE undoes IS NOT NULL) ORDER BY g.id DESC LIMIT 1"
        )
        lines = self._tables.read(sql, who)
        if not lines:
            return None
        return _AnswerLine._make(lines[0])

    def withdraw(self, row: int, who: str, why: str = "") -> None:
        """A sample leaves: its questions at once, the pool, training and validation at the next
        order that begins something.  It never comes back.  Withdrawn again: nothing changes."""
        rows = self.orders.rows()
        is_beyond = rows is not None and row >= rows
        if row < 0 or is_beyond:
            last = (rows or 1) - 1
            raise ValueError(f"site {self.site} has no row {row}; its rows are 0 to {last}")
        with self.transaction():
            self._tables.write(
                "INSERT INTO gone (row, why, who, note, at, applied) "
                "VALUES (?, 'withdrawn', ?, ?, ?, 0) ON CONFLICT (row) DO UPDATE "
                "SET why = 'withdrawn', who = excluded.who, note = excluded.note, "
                "at = excluded.at WHERE why = 'declined'",
                row,
                who,
                why,
                now(),
            )
            self._tables.write(
                "UPDATE question SET state = 'withdrawn' WHERE row = ? AND state <> 'expired'",
                row,
            )

    def _find_question(self, row: int) -> _QuestionLine:
        """The newest question about a row, which may be answered; ValueError where it may not."""
        lines = self._tables.read(
            f"{SHOWN} WHERE q.row = ? ORDER BY q.id DESC LIMIT 1", row
        )
        if not lines:
            raise ValueError(
                f"row {row} of site {self.site} was never asked: only rows that the study chose "
                "take labels"
            )
        asked = _QuestionLine._make(lines[0])
        if asked.state == "expired":
            raise ValueError(
                f"the question about row {row} of site {self.site} expired when cycle "
                f"{asked.cycle} closed: nothing was changed; if it is chosen again it will be "
                "asked again"
            )
        if asked.state == "withdrawn":
            raise ValueError(
                f"row {row} of site {self.site} was withdrawn: it takes no labels any more"
            )
        return asked

    def _record(
        self,
        asked: _QuestionLine,
        *,
        who: str,
        value: float | None,
        kind: EntryKind,
        undoes: int | None = None,
    ) -> None:
        """Add a line to a question's history, and bring the question's state up to date.

        undoes: the id of the answer that is taken back.
        """
        if not who.strip():
            raise ValueError(
                f"the label of row {asked.row} says not who gave it: name somebody"
            )
        if value is not None:
            value = float(value)
        self._tables.write(
            "INSERT INTO given (question, who, value, at, kind, undoes) VALUES (?, ?, ?, ?, ?, ?)",
            asked.id,
            who,
            value,
            now(),
            kind,
            undoes,
        )
        answers = [given for _, given in self._load_current_answers(asked.id)]
        state = decide_state(answers, self.annotators)
        sql = "UPDATE question SET state = ? WHERE id = ?"
        self._tables.write(sql, state, asked.id)
