"""Labeling tasks from the coordinator's point of view.

Tasks are created within a budget, closed, and turned into labels.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple, final

from fallow.core.refusal import explain_errors
from fallow.deployment.annotator_statistics import (
    Annotation,
    PredictedLabel,
    estimate_classes,
    measure_pause,
)
from fallow.deployment.ledger.labeling_tasks import (
    LabelAnswer,
    Reasons,
    TaskState,
    now,
)
from fallow.deployment.ledger.store import SiteStore
from fallow.deployment.ledger.tables import Tables
from fallow.deployment.no_label import CANNOT_TELL, NONE_OF_THESE
from fallow.sites.store import Label

SETTLED = """
SELECT q.id, q.row, q.run, q.cycle, q.weight, q.probability, q.answers, q.request, max(g.id)
FROM task AS q JOIN annotation AS g ON g.task = q.id
WHERE q.state IN ('answered', 'declined') GROUP BY q.id HAVING max(g.id) > q.entered ORDER BY q.id
"""
CORRECTED = f"""
SELECT * FROM ({SETTLED}) WHERE row IN (SELECT row FROM label)
"""
"""Lines of `SETTLED` whose row has a label, which is corrected."""
STANDING = """
SELECT id, task, annotator, value, at, kind, reason FROM annotation WHERE kind <> 'taken back'
AND id NOT IN (SELECT undoes FROM annotation WHERE undoes IS NOT NULL)
"""
"""Labels that were not undone."""
DecideState = Callable[[Sequence[LabelAnswer], int], tuple[TaskState, float | None]]
"""State and label of a task from its labels and their planned number (`decide_state`)."""
TAKEN = """
SELECT row FROM label UNION SELECT row FROM excluded
UNION SELECT row FROM task WHERE run = ? AND cycle = ?
UNION SELECT row FROM task WHERE state IN ('answered', 'declined', 'conflict')
UNION SELECT q.row FROM task AS q JOIN request AS p ON p.id = q.request
    WHERE p.closed = 0 AND p.run = ?
"""
CHECKABLE = """
SELECT row FROM label WHERE row NOT IN (SELECT row FROM place WHERE is_validation)
AND row NOT IN (SELECT row FROM excluded)
AND row NOT IN (SELECT row FROM task WHERE is_check AND state <> 'expired')
AND row NOT IN (SELECT q.row FROM task AS q JOIN annotation AS g ON g.task = q.id
    WHERE q.state IN ('answered', 'declined', 'conflict') AND g.id > q.entered)
"""
"""Rows whose label may be checked. Labels with a correction or a conflict are decided anyway."""
IS_AGAIN = "is_check AND json_extract(reasons, '$.is_again')"
"""Condition for a task in which a label that was confirmed on a sheet is given again."""
CONFIRMED = f"""
SELECT DISTINCT q.row FROM task AS q JOIN ({STANDING}) AS g ON g.task = q.id
WHERE NOT q.is_check AND g.kind = 'confirmed'
"""
"""Rows whose prediction was confirmed on a sheet."""


@dataclass(frozen=True)
class SelectedRow:
    """A selected row with the reasons shown to annotators and the data of the query."""

    row: int
    reasons: Reasons = field(default_factory=Reasons)
    weight: float = 1.0
    probability: float | None = None
    answers: int = 1  # planned annotations
    is_check: bool = (
        False  # it has a label, which is suspicious or was confirmed on a sheet
    )


@dataclass(frozen=True)
class TaskLimits:
    """Limits of a study at a site over all runs (default: unlimited).

    Both count the planned annotations of labeling tasks. ``labels`` leaves out those that are
    missing when a task expires. ``shown`` counts all.
    """

    labels: int | None = None
    shown: int | None = None


@dataclass(frozen=True)
class StepOutcome:
    """Outcome of the labeling tasks of one step."""

    asked: int
    answered: int
    declined: int


class _Answered(NamedTuple):
    """A line of `SETTLED`: a labeling task with new labels since it was last used.

    ``newest_answer`` is the ID of the newest line of its history.
    """

    task: int
    row: int
    run: str
    cycle: int
    weight: float
    probability: float | None
    answers: int
    request: int
    newest_answer: int


def load_answers(tables: Tables, task: int) -> list[tuple[int, LabelAnswer]]:
    """Return the labels of a task that count, with their IDs: see `load_answers_of`."""
    return load_answers_of(tables, [task])[task]


def load_answers_of(
    tables: Tables, tasks: Sequence[int]
) -> dict[int, list[tuple[int, LabelAnswer]]]:
    """Return the labels of each task that count, with their IDs, in the order of first labels.

    These are the last label of each annotator, or those since the last decision. The earlier label
    of a check counts beside a new one only.
    """
    current: dict[int, dict[str, tuple[int, LabelAnswer]]] = {task: {} for task in tasks}
    sql = f"{STANDING} AND task IN (SELECT value FROM json_each(?)) ORDER BY id"
    for number, task, *line in tables.read(sql, json.dumps(tasks)):
        answer = LabelAnswer(*line)
        if answer.kind == "resolved":
            current[task] = {}
        current[task][answer.annotator] = (number, answer)
    counted: dict[int, list[tuple[int, LabelAnswer]]] = {}
    for task, answers in current.items():
        is_new = any(answer.kind != "earlier" for _, answer in answers.values())
        counted[task] = list(answers.values()) if is_new else []
    return counted


def load_annotations(tables: Tables) -> list[Annotation]:
    """Return the last label of each annotator and task over all runs, without decisions and checks.

    Answers that are no label are left out.
    """
    last: dict[tuple[int, str], float | None] = {}
    sql = (
        f"{STANDING} AND kind <> 'resolved' AND task IN (SELECT id FROM task WHERE NOT is_check) "
        "ORDER BY id"
    )
    for _, task, annotator, value, *_ in tables.read(sql):
        last[task, annotator] = value
    return [
        Annotation(task, annotator, value)
        for (task, annotator), value in last.items()
        if value is not None
    ]


def load_predicted_labels(tables: Tables) -> list[PredictedLabel]:
    """Return the first label of each annotator and task with a prediction, over all runs.

    Checks and examples without a label are left out.
    """
    lines = tables.read(
        f"SELECT g.task, g.annotator, g.value, g.at, g.kind, q.reasons FROM ({STANDING}) AS g "
        "JOIN task AS q ON q.id = g.task WHERE NOT q.is_check AND g.kind IN ('answer', 'confirmed') "
        "ORDER BY g.id"
    )
    sheets = Counter((name, at) for _, name, _, at, kind, _ in lines if kind == "confirmed")
    latest: dict[str, datetime] = {}  # time of the annotator's previous label
    # a sheet has one pause for all its labels
    pauses: dict[tuple[str, str], float | None] = {}
    labels: dict[tuple[int, str], PredictedLabel] = {}
    for task, annotator, value, at, kind, reasons in lines:
        is_confirmed = kind == "confirmed"
        time = datetime.fromisoformat(at)
        pause = measure_pause(latest.get(annotator), time)
        latest[annotator] = time
        if is_confirmed:
            pause = pauses.setdefault((annotator, at), pause)
        why: Reasons = json.loads(reasons)
        if value is None or "predicted" not in why or (task, annotator) in labels:
            continue
        if pause is not None and is_confirmed:
            pause /= sheets[annotator, at]
        labels[task, annotator] = PredictedLabel(
            value,
            why["predicted"],
            is_guided="likeliest" in why,
            is_confirmed=is_confirmed,
            seconds=pause,
        )
    return list(labels.values())


def count_second_labels(tables: Tables) -> tuple[int, int]:
    """Return the number of labels that were given again after a sheet, and of equal ones.

    The first new label of a task counts, before adjudication. An answer that is no label differs.
    """
    lines = tables.read(
        f"SELECT g.task, g.value, e.value FROM ({STANDING}) AS g "
        "JOIN annotation AS e ON e.task = g.task AND e.kind = 'earlier' "
        f"WHERE g.kind = 'answer' AND g.task IN (SELECT id FROM task WHERE {IS_AGAIN}) "
        "ORDER BY g.id DESC"
    )
    is_equal = {task: value == earlier for task, value, earlier in lines}
    return len(is_equal), sum(is_equal.values())


@final
class LabelRequests:
    """Part of the ledger that creates and closes labeling tasks."""

    def __init__(
        self, tables: Tables, store: SiteStore, decide: DecideState, classes: int
    ) -> None:
        self._tables = tables
        self._store = store
        self._decide_state = decide
        self._classes = classes

    def limit_to(self, limit: int | None, shown: int | None = None) -> None:
        """Set the site's own limits on annotations and on those ``shown`` to annotators.

        A limit below the current number prevents further tasks.
        """
        sql = (
            "UPDATE display_budget SET maximum = "
            "CASE WHEN ?1 IS NULL THEN NULL ELSE max(?1, shown) END"
        )
        self._tables.write(sql, shown)
        sql = "UPDATE label_budget SET maximum = CASE WHEN ?1 IS NULL THEN NULL ELSE max(?1, asked) END"
        self._tables.write(sql, limit)

    @property
    def asked(self) -> int:
        """Return the number of annotations requested over all runs, without expired tasks."""
        return int(self._tables.read("SELECT asked FROM label_budget")[0][0])

    @property
    def shown(self) -> int:
        """Return the number of annotations requested over all runs, with expired tasks."""
        return int(self._tables.read("SELECT shown FROM display_budget")[0][0])

    def ask(
        self,
        run: str,
        step: str,
        *,
        cycle: int,
        allowed: int,
        deadline: str | None,
        rows: Iterable[SelectedRow],
        allowance: TaskLimits | None = None,
    ) -> int:
        """Turn rows into labeling tasks within the budget, and return their number.

        Rows are used in order. A repeated step keeps its tasks. Rows are skipped if they have a
        label, were withdrawn, were already requested in this cycle or in a step without an end of
        labeling, or have a label that is not used yet. Rows to check have a label, and are those of
        `find_checkable_rows`. Open tasks of earlier steps expire. ``allowance`` applies over all
        runs.
        """
        allowance = allowance or TaskLimits()
        with self._tables.transaction():
            self._tables.check()
            request = self._find_request(run, step)
            if request is not None:
                return self._count_tasks(request)
            self._expire()
            taken = self.find_taken_rows(run, cycle)
            checkable = self.find_checkable_rows()
            free = [
                chosen
                for chosen in rows
                if (chosen.is_check and chosen.row in checkable)
                or (not chosen.is_check and chosen.row not in taken)
            ]
            request = self._tables.write(
                "INSERT INTO request (run, step, cycle, allowed, asked_at, deadline) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                run,
                step,
                cycle,
                allowed,
                now(),
                deadline,
            )
            limit = min(allowed, self._count_affordable(free, allowance))
            asked = free[:limit]
            for position, chosen in enumerate(asked):
                self._add_task(
                    chosen, request=request, run=run, cycle=cycle, position=position
                )
            return len(asked)

    def find_taken_rows(self, run: str, cycle: int) -> set[int]:
        """Return the rows that cannot be requested in a cycle."""
        return {row for (row,) in self._tables.read(TAKEN, run, cycle, run)}

    def load_first_entries(self) -> dict[int, tuple[str, int]]:
        """Return the run and cycle in which each row got its first label from an annotator."""
        sql = (
            "SELECT q.row, q.run, q.cycle FROM task AS q JOIN run ON run.id = q.run "
            "WHERE q.entered > 0 ORDER BY run.turn DESC, q.cycle DESC"
        )
        return {row: (run, cycle) for row, run, cycle in self._tables.read(sql)}

    def find_checkable_rows(self) -> set[int]:
        """Return the rows whose training label may be checked, once and not with an open task."""
        return {row for (row,) in self._tables.read(CHECKABLE)}

    def find_confirmed_rows(self) -> list[int]:
        """Return the rows whose prediction was confirmed on a sheet, in their order."""
        lines = self._tables.read(f"{CONFIRMED} ORDER BY q.row")
        return [row for (row,) in lines]

    def count_again(self) -> int:
        """Return the number of tasks in which a confirmed label is given again, over all runs."""
        sql = f"SELECT count(*) FROM task WHERE {IS_AGAIN} AND state <> 'expired'"
        return int(self._tables.read(sql)[0][0])

    def _add_task(
        self, chosen: SelectedRow, *, request: int, run: str, cycle: int, position: int
    ) -> None:
        with explain_errors(
            f"site {self._tables.site} cannot create a labeling task for row {chosen.row} in "
            f"cycle {cycle}: ",
            of=sqlite3.IntegrityError,
        ):
            task = self._tables.write(
                "INSERT INTO task "
                "(request, run, cycle, row, position, reasons, weight, probability, answers, is_check) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                request,
                run,
                cycle,
                chosen.row,
                position,
                json.dumps(chosen.reasons),
                chosen.weight,
                chosen.probability,
                chosen.answers,
                chosen.is_check,
            )
        if chosen.is_check:
            sql = (
                "INSERT INTO annotation (task, annotator, value, at, kind) "
                "SELECT ?, '', value, ?, 'earlier' FROM label WHERE row = ?"
            )
            self._tables.write(sql, task, now(), chosen.row)

    def _count_affordable(
        self, wanted: Sequence[SelectedRow], allowance: TaskLimits
    ) -> int:
        """Return how many of the wanted tasks, in order, the limits over all runs permit."""
        most_asked, asked = self._tables.read("SELECT maximum, asked FROM label_budget")[0]
        most_shown, shown = self._tables.read("SELECT maximum, shown FROM display_budget")[
            0
        ]
        limits = [
            (most_asked, asked),
            (allowance.labels, asked),
            (most_shown, shown),
            (allowance.shown, shown),
        ]
        left = [int(limit) - int(used) for limit, used in limits if limit is not None]
        annotations = accumulate(chosen.answers for chosen in wanted)
        return sum(all(n <= one for one in left) for n in annotations)

    def _find_request(self, run: str, step: str) -> int | None:
        sql = "SELECT id FROM request WHERE run = ? AND step = ?"
        one: int | None = self._tables.read_one(sql, run, step)
        return one

    def _count_tasks(self, request: int, state: TaskState | None = None) -> int:
        """Return the number of tasks of a step, in one state or in any."""
        sql = "SELECT count(*) FROM task WHERE request = ?1 AND (?2 IS NULL OR state = ?2)"
        return int(self._tables.read(sql, request, state)[0][0])

    def _expire(self) -> None:
        self._tables.write("UPDATE task SET state = 'expired' WHERE state = 'open'")

    def close(
        self, run: str, step: str, hold: Callable[[list[Label]], list[Label]]
    ) -> StepOutcome:
        """Turn the annotators' answers into labels. Open tasks expire at no cost.

        Labels are added in the order of selection. ``hold`` marks those that are held back for
        validation. Late answers, corrections and decisions count now: a new label is used for
        training, and a correction changes the value only.
        """
        with self._tables.transaction():
            self._tables.check()
            self._expire()
            self._tables.write("UPDATE request SET closed = 1")
            request = self._find_request(run, step)
            fresh: list[Label] = []
            late: list[Label] = []
            settled = [_Answered._make(line) for line in self._tables.read(SETTLED)]
            for answered, value in self._decide(settled):
                label = self._enter(answered, value, run)
                if label is None:
                    continue
                if answered.request == request:
                    fresh.append(label)
                else:
                    late.append(label)
            self._store.write(self._tables.site, hold(fresh))
            self._store.write(self._tables.site, late)
            if request is None:
                return StepOutcome(asked=0, answered=0, declined=0)
            return StepOutcome(
                asked=self._count_tasks(request),
                answered=self._count_tasks(request, "answered"),
                declined=self._count_tasks(request, "declined"),
            )

    def _decide(
        self, settled: Sequence[_Answered]
    ) -> Iterator[tuple[_Answered, float | None]]:
        """Yield tasks and their labels, None if annotators gave none.

        A task between whose labels the estimate does not decide becomes a conflict.
        """
        estimated: Mapping[int, int | None] | None = None
        for answered in settled:
            answers = [label for _, label in load_answers(self._tables, answered.task)]
            state, value = self._decide_state(answers, answered.answers)
            if state == "answered" and value is None:
                if estimated is None:
                    annotations = load_annotations(self._tables)
                    estimated = estimate_classes(annotations, self._classes)
                value = estimated[answered.task]
                if value is None:
                    sql = "UPDATE task SET state = 'conflict' WHERE id = ?"
                    self._tables.write(sql, answered.task)
                    continue
            yield answered, value

    def _enter(self, answered: _Answered, value: float | None, run: str) -> Label | None:
        """Add or correct the label of a row, or remove it if annotators gave none."""
        task = answered.task
        row = answered.row
        sql = "UPDATE task SET entered = ? WHERE id = ?"
        self._tables.write(sql, answered.newest_answer, task)
        if value is None:
            self._store.erase(row)
            sql = (
                "INSERT INTO excluded (row, reason, annotator, note, at) "
                "VALUES (?, 'declined', '', ?, ?) ON CONFLICT (row) DO UPDATE "
                "SET note = excluded.note WHERE reason = 'declined'"
            )
            answers = load_answers(self._tables, task)
            reasons = dict.fromkeys(answer.reason for _, answer in answers if answer.reason)
            self._tables.write(sql, row, " / ".join(reasons), now())
            return None
        self._tables.write(
            "DELETE FROM excluded WHERE row = ? AND reason = 'declined'", row
        )
        earlier = self._store.erase(row)
        if earlier is not None:
            self._store.write(self._tables.site, [earlier._replace(value=value)])
            return None
        cycle = -1  # labels of an earlier run are treated like labels in the site's data
        if answered.run == run:
            cycle = answered.cycle
        return Label(
            row=row,
            value=value,
            cycle=cycle,
            weight=answered.weight,
            probability=answered.probability,
        )

    def apply_corrections(self) -> bool:
        """Correct or remove labels by newer answers, and return whether there were any.

        New labels wait for the end of labeling (`close`).
        """
        if not self._tables.read(CORRECTED):  # without a transaction, as usual
            return False
        with self._tables.transaction():
            self._tables.check()
            corrected = [_Answered._make(line) for line in self._tables.read(CORRECTED)]
            for answered, value in self._decide(corrected):
                self._enter(answered, value, answered.run)
        return True

    def find_none_of_these(self) -> set[int]:
        """Return the rows that no class fits, over all runs.

        Annotators who cannot tell do not contradict. Other reasons for a missing label do.
        """
        lines = self._tables.read("SELECT id, row FROM task WHERE state = 'declined'")
        row_of = dict(lines)
        rows: set[int] = set()
        for task, answers in load_answers_of(self._tables, [*row_of]).items():
            reasons = {answer.reason for _, answer in answers}
            if reasons - {CANNOT_TELL.code} == {NONE_OF_THESE.code}:
                rows.add(row_of[task])
        return rows

    def count_none(self) -> tuple[int, int]:
        """Return the numbers of rows that no class fits, and of all answered ones, over all runs."""
        sql = "SELECT count(DISTINCT row) FROM task WHERE state IN ('answered', 'declined')"
        return len(self.find_none_of_these()), int(self._tables.read_one(sql))

    def find_left_rows(self) -> set[int]:
        """Return the withdrawn and the undecidable rows."""
        return {row for (row,) in self._tables.read("SELECT row FROM excluded")}

    def find_excluded_rows(self) -> list[int]:
        """Return the rows that are excluded from the pool and from training.

        These are withdrawn rows, rows that annotators could not label, and rows with a conflict at
        the end of labeling.
        """
        sql = (
            "SELECT row FROM excluded UNION SELECT q.row FROM task AS q "
            "JOIN request AS p ON p.id = q.request WHERE p.closed = 1 AND q.state NOT IN "
            "('expired', 'withdrawn') AND q.row NOT IN (SELECT row FROM label) ORDER BY row"
        )
        return [row for (row,) in self._tables.read(sql)]
