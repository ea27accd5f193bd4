"""Ledger of a site: one SQLite file with all data that the site must not lose.

The site process and the labeling page use the file at the same time. Each change is a short
transaction, and the database enforces the rules about budgets and history (`tables`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

from fallow.core.types import SiteId
from fallow.deployment.annotator_statistics import (
    AnnotatorAgreement,
    PredictionUse,
    measure_agreement,
    measure_agreement_of_labels,
    measure_predictions,
)
from fallow.deployment.answer_plan import Rule
from fallow.deployment.ledger.history import HistoryLine, list_history
from fallow.deployment.ledger.instructions import Instructions
from fallow.deployment.ledger.label_requests import (
    LabelRequests,
    count_second_labels,
    load_annotations,
    load_answers,
    load_answers_of,
    load_predicted_labels,
)
from fallow.deployment.ledger.labeling_tasks import (
    EntryKind,
    LabelAnswer,
    LabelingTask,
    LabelProgress,
    TaskState,
    decide_state,
    now,
    require_open,
)
from fallow.deployment.ledger.store import SiteStore
from fallow.deployment.ledger.tables import Tables
from fallow.deployment.ledger.waiting_tasks import NEWEST, WaitingTasks

SHOWN = """
SELECT q.id, q.row, q.cycle, q.position, p.asked_at, p.deadline, q.reasons, q.state, q.entered,
    q.answers, c.selected, q.is_check
FROM task AS q JOIN request AS p ON p.id = q.request
JOIN (SELECT request, count(*) AS selected FROM task GROUP BY request) AS c
    ON c.request = q.request
"""


class _TaskLine(NamedTuple):
    """A line of `SHOWN`.

    ``of`` is the number of labeling tasks of its step. ``entered`` is the ID of the newest label
    that is used in training.
    """

    id: int
    row: int
    cycle: int
    position: int
    asked_at: str
    deadline: str | None
    reasons: str  # JSON
    state: TaskState
    entered: int
    needed: int
    of: int
    is_check: int


class _AnswerLine(NamedTuple):
    """A label that can be undone: its ID, its labeling task, its value and its reason."""

    id: int
    task: int
    value: float | None
    reason: str


@final
class Ledger:
    """Ledger of one site.

    Raises StorageError for a file that is damaged, that belongs to another site, or that cannot be
    written.

    Parameters
    ----------
    path
        The file, created if it is missing.
    classes
        Number of classes, 0 for regression.
    limit
        Largest number of annotations of this site (default: that of the study).
    rule
        Rule that decides labels that differ, if several annotations of an example are planned.
    epsilon, delta
        Privacy budget of the site over all runs.
    shown
        Largest number of annotations that are requested, including those of expired labeling tasks
        (default: that of the study).
    seed
        Seed of the study, which decides between equal folds of a new label.
    groups
        Group of each example, which shares a fold; None: each example is its own.
    labels
        Names of several labels of an example; empty for others.

    Attributes
    ----------
    store
        Storage of a `LocalSite`.
    orders
        Exchanges with the coordinator.
    requests
        Labeling tasks from the coordinator's point of view.
    waiting
        Labeling tasks from an annotator's point of view.
    """

    def __init__(
        self,
        path: Path,
        site: SiteId,
        classes: int,
        limit: int | None,
        rule: Rule = "majority",
        epsilon: float | None = None,
        shown: int | None = None,
        delta: float | None = None,
        seed: int = 0,
        groups: Sequence[int] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.site = site
        self.classes = classes
        self.labels = tuple(labels)
        self._decide = partial(decide_state, rule=rule, n_labels=len(labels))
        self._tables = Tables(path, site)
        self.store = SiteStore(self._tables, epsilon, delta, seed, classes, groups)
        self.instructions = Instructions(self._tables)
        self.requests = LabelRequests(self._tables, self.store, self._decide, classes)
        self.requests.limit_to(limit=limit, shown=shown)
        self.waiting = WaitingTasks(self._tables)
        self.instructions.check_owner(site, classes)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction. An inner transaction joins the outer one."""
        with self._tables.transaction():
            yield

    @property
    def copy(self) -> Path:
        """Return the path of the backup."""
        return self._tables.copy

    def backup(self) -> None:
        """Copy the file to ``<name>-backup`` beside it, for recovery from damage."""
        self._tables.backup()

    def check_in_place(self) -> None:
        """Raise StorageError if the file was replaced by another one since it was opened."""
        self._tables.check_in_place()

    def close(self) -> None:
        """Close the file."""
        self._tables.close()

    # -- views for annotators ---------------------------------------------------------------

    def tasks(
        self,
        cycle: int | None = None,
        state: str | None = None,
        annotator: str | None = None,
    ) -> list[LabelingTask]:
        """Return labeling tasks of the newest run in the order of selection.

        ``cycle``, ``state`` and ``annotator``, who has labeled them, filter the tasks.
        """
        where = f"q.run = ({NEWEST})"
        values: list[str | int] = []
        if cycle is not None:
            where += " AND q.cycle = ?"
            values.append(cycle)
        if state is not None:
            where += " AND q.state = ?"
            values.append(state)
        if annotator is not None:
            where += " AND q.id IN (SELECT task FROM annotation WHERE annotator = ?)"
            values.append(annotator)
        return self._load_tasks(where, *values)

    def load_tasks(self, tasks: Sequence[int]) -> list[LabelingTask]:
        """Return labeling tasks by their IDs, in the order of selection."""
        return self._load_tasks(
            "q.id IN (SELECT value FROM json_each(?1))", json.dumps(tasks)
        )

    def load_task(self, task: int | None) -> LabelingTask | None:
        """Return a labeling task by its ID, or None without an ID."""
        if task is None:
            return None
        return self._load_task(task)

    def newest_tasks(self) -> dict[int, LabelingTask]:
        """Return the newest labeling task of each row of the newest run, in the order of selection.

        An expired check is returned only without any other task of its row.
        """
        newest: dict[int, LabelingTask] = {}
        for task in self.tasks():
            is_over = task.is_check and task.state == "expired"
            if task.row not in newest or not is_over:
                newest.pop(task.row, None)
                newest[task.row] = task
        return newest

    def cycles(self) -> list[int]:
        """Return the cycles of the newest run with labeling tasks. -1 is the initial labeled set."""
        sql = f"SELECT DISTINCT cycle FROM request WHERE run = ({NEWEST}) ORDER BY cycle"
        return [cycle for (cycle,) in self._tables.read(sql)]

    def progress(self, cycle: int | None = None) -> LabelProgress:
        """Return the progress of a cycle of the newest run (default: the newest cycle)."""
        if cycle is None:
            cycle = max(self.cycles(), default=-1)
        sql = (
            f"SELECT state, count(*) FROM task WHERE run = ({NEWEST}) AND cycle = ? "
            "GROUP BY state"
        )
        counts: dict[TaskState, int] = dict(self._tables.read(sql, cycle))
        return LabelProgress(
            asked=sum(counts.values()),
            answered=counts.get("answered", 0),
            declined=counts.get("declined", 0),
            conflicts=counts.get("conflict", 0),
            open=counts.get("open", 0),
        )

    def count(self, state: TaskState, cycle: int | None = None) -> int:
        """Return the number of labeling tasks of the newest run in a state, or of one cycle."""
        sql = (
            f"SELECT count(*) FROM task WHERE run = ({NEWEST}) AND state = ?1 "
            "AND (?2 IS NULL OR cycle = ?2)"
        )
        number: int = self._tables.read_one(sql, state, cycle)
        return number

    def find_deadline(self, cycle: int) -> str | None:
        """Return the deadline of a cycle of the newest run."""
        sql = (
            f"SELECT deadline FROM request WHERE run = ({NEWEST}) AND cycle = ? AND id IN "
            "(SELECT request FROM task) ORDER BY id LIMIT 1"
        )
        deadline: str | None = self._tables.read_one(sql, cycle)
        return deadline

    def find_unsettled_rows(self) -> set[int]:
        """Return the rows of the newest run with an open task or a conflict."""
        sql = (
            f"SELECT row FROM task WHERE run = ({NEWEST}) AND state IN ('open', 'conflict')"
        )
        return {row for (row,) in self._tables.read(sql)}

    def find_rows_in_check(self) -> set[int]:
        """Return the rows of the newest run whose label is being checked."""
        sql = f"SELECT row FROM task WHERE run = ({NEWEST}) AND state = 'open' AND is_check"
        return {row for (row,) in self._tables.read(sql)}

    def history(self, row: int, cycle: int | None = None) -> list[LabelAnswer]:
        """Return all labels of a row, oldest first.

        ``cycle`` restricts them to the labeling task of that cycle in the newest run.
        """
        sql = (
            "SELECT g.annotator, g.value, g.at, g.kind, g.reason FROM annotation AS g "
            f"JOIN task AS q ON q.id = g.task WHERE q.row = ?1 AND (?2 IS NULL OR "
            f"(q.cycle = ?2 AND q.run = ({NEWEST}))) ORDER BY g.id"
        )
        lines = self._tables.read(sql, row, cycle)
        return [LabelAnswer(*line) for line in lines]

    def has_labeled(self, row: int, value: float | None, annotator: str) -> bool:
        """Return whether an annotator gave this label to a row in a labeling task, not a check."""
        sql = (
            "SELECT EXISTS (SELECT 1 FROM annotation AS g JOIN task AS q ON q.id = g.task "
            "WHERE q.row = ? AND NOT q.is_check AND g.value IS ? AND g.annotator = ?)"
        )
        ((has,),) = self._tables.read(sql, row, value, annotator)
        return bool(has)

    def measure_agreement(self) -> AnnotatorAgreement:
        """Return the agreement of the annotators over all runs, before adjudication."""
        annotations = load_annotations(self._tables)
        if self.labels:
            return measure_agreement_of_labels(annotations, self.labels)
        return measure_agreement(annotations, is_interval=not self.classes)

    def measure_predictions(self) -> PredictionUse:
        """Return how labels relate to predictions, over all runs and before adjudication."""
        use = measure_predictions(load_predicted_labels(self._tables))
        again, again_agreed = count_second_labels(self._tables)
        return replace(use, again=again, again_agreed=again_agreed)

    def list_history(self) -> list[HistoryLine]:
        """Return all events of all runs, oldest first, for the audit log."""
        return list_history(self._tables, self.store)

    def _load_tasks(self, where: str, *values: str | int) -> list[LabelingTask]:
        lines = self._tables.read(f"{SHOWN} WHERE {where} ORDER BY q.id", *values)
        shown = [_TaskLine._make(line) for line in lines]
        answers = load_answers_of(self._tables, [line.id for line in shown])
        return [self._build_task(line, answers[line.id]) for line in shown]

    def _load_task(self, task: int) -> LabelingTask:
        line = self._load_line(task)
        return self._build_task(line, load_answers(self._tables, task))

    def _load_line(self, task: int) -> _TaskLine:
        lines = self._tables.read(f"{SHOWN} WHERE q.id = ?", task)
        return _TaskLine._make(lines[0])

    def _build_task(
        self, line: _TaskLine, numbered: Sequence[tuple[int, LabelAnswer]]
    ) -> LabelingTask:
        """Return a labeling task with its labels and their IDs."""
        answers = [answer for _, answer in numbered]
        value = None
        if line.state == "answered":
            value = self._decide(answers, line.needed)[1]
        return LabelingTask(
            row=line.row,
            cycle=line.cycle,
            position=line.position,
            of=line.of,
            reasons=json.loads(line.reasons),
            state=line.state,
            answers=tuple(answers),
            asked_at=line.asked_at,
            deadline=line.deadline,
            needed=line.needed,
            value=value,
            is_check=bool(line.is_check),
        )

    # -- actions of annotators --------------------------------------------------------------

    def list_annotators(self) -> list[str]:
        """Return the names of all annotators, in the order of their first labels."""
        sql = (
            "SELECT annotator FROM annotation WHERE kind <> 'earlier' "
            "GROUP BY annotator ORDER BY min(id)"
        )
        return [name for (name,) in self._tables.read(sql)]

    def answer(
        self,
        row: int,
        value: float | None,
        annotator: str,
        kind: EntryKind = "answer",
        reason: str = "",
    ) -> LabelingTask:
        """Record an annotator's label of a row, replacing an earlier one.

        None is the answer that is no label with the code ``reason`` (`NoLabel`). Repeating a label
        changes nothing. A label that is already used in training is corrected before the next
        exchange.

        The page and the import check the value and the reason. Raises ValueError for a row without
        a labeling task, and for an expired or withdrawn task.
        """
        with self.transaction():
            line = self._find_newest_line(row)
            answers = [entry for _, entry in load_answers(self._tables, line.id)]
            own: LabelAnswer | None = None
            for entry in answers:
                if entry.annotator == annotator:
                    own = entry
            if own is None or (own.value, own.reason) != (value, reason):
                is_correcting_resolution = own is not None and own.kind == "resolved"
                if is_correcting_resolution:
                    kind = "resolved"  # the decision still counts
                self._record(
                    line, annotator=annotator, value=value, kind=kind, reason=reason
                )
            return self._load_task(line.id)

    def confirm(
        self, value: int, right: Sequence[int], wrong: Sequence[int], annotator: str
    ) -> list[int]:
        """Record a predicted class as the label of several rows, and return these rows.

        Rows are left out that do not wait for the annotator or do not show this prediction.
        The rows with a ``wrong`` prediction come one by one, after all others. All is one change.
        """
        with self.transaction():
            waiting = self.waiting.list_guided(annotator, value)
            rows = {self._load_line(task).row: task for task in waiting}
            confirmed = [row for row in dict.fromkeys(right) if row in rows]
            at = now()
            for row in confirmed:
                line = self._load_line(rows[row])
                self._record(
                    line, annotator=annotator, value=value, kind="confirmed", at=at
                )
            for row in wrong:
                if row in rows and row not in confirmed:
                    self.skip(row, annotator)
        return confirmed

    def resolve(
        self, row: int, value: float | None, annotator: str, reason: str = ""
    ) -> LabelingTask:
        """Resolve a conflict. Earlier labels no longer count. ``reason`` is that of `answer`."""
        with self.transaction():
            line = self._find_newest_line(row)
            self._record(
                line, annotator=annotator, value=value, kind="resolved", reason=reason
            )
            return self._load_task(line.id)

    def skip(self, row: int, annotator: str) -> None:
        """Record that an annotator labels a row later, after all others.

        Raises ValueError for a row whose labeling task is not open.
        """
        with self.transaction():
            line = self._find_newest_line(row)
            sql = "INSERT INTO skipped (task, annotator) VALUES (?, ?)"
            self._tables.write(sql, line.id, annotator)

    def take_back(self, annotator: str) -> LabelingTask | None:
        """Undo an annotator's latest label that is not used in training, or return None."""
        with self.transaction():
            latest = self._find_latest_answer(annotator)
            if latest is None:
                return None
            line = self._load_line(latest.task)
            self._record(
                line,
                annotator=annotator,
                value=latest.value,
                kind="taken back",
                undoes=latest.id,
                reason=latest.reason,
            )
            return self._load_task(latest.task)

    def undoable(self, annotator: str) -> LabelingTask | None:
        """Return the labeling task whose label `take_back` would undo."""
        latest = self._find_latest_answer(annotator)
        if latest is None:
            return None
        return self._load_task(latest.task)

    def _find_latest_answer(self, annotator: str) -> _AnswerLine | None:
        """Return the label that an annotator entered last, or None if none can be undone.

        The order of entry counts, not the clock.
        """
        sql = (
            "SELECT g.id, g.task, g.value, g.reason FROM annotation AS g JOIN task AS q "
            "ON q.id = g.task WHERE g.annotator = ? AND g.kind <> 'taken back' AND g.id > q.entered "
            "AND q.state NOT IN ('expired', 'withdrawn') AND g.id NOT IN "
            "(SELECT undoes FROM annotation WHERE undoes IS NOT NULL) ORDER BY g.id DESC LIMIT 1"
        )
        lines = self._tables.read(sql, annotator)
        if not lines:
            return None
        return _AnswerLine._make(lines[0])

    def withdraw(self, row: int, annotator: str, note: str = "") -> None:
        """Withdraw an example permanently.

        Its labeling tasks end at once. No later exchange has it in the pool, training or validation.
        Repeating the withdrawal changes nothing.
        """
        with self.transaction():
            self._tables.write(
                "INSERT INTO excluded (row, reason, annotator, note, at) "
                "VALUES (?, 'withdrawn', ?, ?, ?) ON CONFLICT (row) DO UPDATE "
                "SET reason = 'withdrawn', annotator = excluded.annotator, note = excluded.note, "
                "at = excluded.at WHERE reason = 'declined'",
                row,
                annotator,
                note,
                now(),
            )
            self._tables.write(
                "UPDATE task SET state = 'withdrawn' WHERE row = ? AND state <> 'expired'",
                row,
            )

    def _find_newest_line(self, row: int) -> _TaskLine:
        """Return the newest labeling task of a row, and an expired check after any other one.

        Raises ValueError if it cannot be labeled.
        """
        lines = self._tables.read(
            f"{SHOWN} WHERE q.row = ? ORDER BY q.is_check AND q.state = 'expired', q.id DESC "
            "LIMIT 1",
            row,
        )
        newest = _TaskLine._make(lines[0]) if lines else None
        return require_open(newest, f"row {row} of site {self.site}")

    def _record(
        self,
        line: _TaskLine,
        *,
        annotator: str,
        value: float | None,
        kind: EntryKind,
        undoes: int | None = None,
        reason: str = "",
        at: str | None = None,
    ) -> None:
        """Add a line to the history of a labeling task and update the state of the task.

        ``undoes`` is the ID of the label that is undone. ``at`` is the time (default: now).
        """
        if not annotator.strip():
            raise ValueError(f"the label of row {line.row} has no annotator: give a name")
        if value is not None:
            value = float(value)
        self._tables.write(
            "INSERT INTO annotation (task, annotator, value, at, kind, undoes, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            line.id,
            annotator,
            value,
            at or now(),
            kind,
            undoes,
            reason,
        )
        answers = [answer for _, answer in load_answers(self._tables, line.id)]
        state, _ = self._decide(answers, line.needed)
        sql = "UPDATE task SET state = ? WHERE id = ?"
        self._tables.write(sql, state, line.id)
