"""Open labeling tasks of an annotator: counts and positions by indexed queries.

A labeling page shows one task of a queue that may have thousands. The queries below therefore
return the tasks that a page needs, and never the whole queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import final

from fallow.deployment.ledger.tables import Tables

NEWEST = "SELECT id FROM run ORDER BY turn DESC LIMIT 1"
"""Query for the newest run."""
IS_LAST_RESORT = "q.is_check AND q.state = 'expired'"
"""Condition for a task that stands for its row only if the row has no other task."""
WAITING = f"""
SELECT q.id FROM task AS q WHERE q.run = ({NEWEST}) AND q.state = 'open' AND NOT EXISTS (
    SELECT 1 FROM annotation AS g WHERE g.task = q.id AND g.annotator = ?1
    AND g.kind NOT IN ('taken back', 'earlier')
    AND NOT EXISTS (SELECT 1 FROM annotation AS u WHERE u.undoes = g.id))
"""
"""Query for the IDs of the open tasks that annotator ``?1`` has not labeled."""
SKIPPED_AT = """
SELECT max(s.id) FROM skipped AS s JOIN task AS t ON t.id = s.task
WHERE t.row = q.row AND t.run = q.run AND s.annotator = ?1
"""
"""Query for the time at which annotator ``?1`` last skipped the row of task ``q``, or NULL."""
IS_SUSPICIOUS = "json_extract(q.reasons, '$.is_again') IS NULL"
"""Condition for a check of a label that is suspicious, and not drawn from those of sheets."""
ALL = -1
"""No limit on the number of lines, in SQLite."""
PREDICTED = "json_extract(q.reasons, '$.likeliest[0][0]')"
"""Expression for the likeliest class that a task shows, or NULL."""
FRESH = f"{WAITING} AND ({SKIPPED_AT}) IS NULL"
"""Query for the waiting tasks that the annotator has not skipped."""
GUIDED = f"{FRESH} AND {PREDICTED} IS NOT NULL"
"""Query for the waiting tasks that show predictions and that were not skipped."""


@final
class WaitingTasks:
    """Open labeling tasks of the newest run that an annotator has not labeled.

    The order of the tasks is that of the selection, which is the order of their IDs.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def count(self, annotator: str) -> int:
        """Return the number of waiting tasks."""
        number: int = self._tables.read_one(f"SELECT count(*) FROM ({WAITING})", annotator)
        return number

    def has_row(self, row: int, annotator: str) -> bool:
        """Return whether a row waits for the annotator."""
        return self._find(f"{WAITING} AND q.row = ?2", annotator, row) is not None

    def list_checks(self, annotator: str) -> list[int]:
        """Return the IDs of suspicious labels to check, the most suspicious first.

        Labels that are given again after a sheet are not suspicious, and look like any other task.
        """
        sql = f"{WAITING} AND q.is_check AND {IS_SUSPICIOUS} ORDER BY q.id"
        return [task for (task,) in self._tables.read(sql, annotator)]

    def count_guided(self, annotator: str) -> dict[int, int]:
        """Return the number of waiting tasks for a sheet by predicted class, largest first.

        These are tasks that show predictions and that the annotator has not skipped.
        """
        sql = (
            f"SELECT {PREDICTED} AS class, count(*) AS n FROM task AS q WHERE q.id IN ({GUIDED}) "
            "GROUP BY class ORDER BY n DESC, class"
        )
        return dict(self._tables.read(sql, annotator))

    def list_guided(self, annotator: str, predicted: int, n: int = ALL) -> list[int]:
        """Return the IDs of up to ``n`` such tasks of a predicted class, the most certain first."""
        sql = (
            f"{GUIDED} AND {PREDICTED} = ?2 "
            "ORDER BY json_extract(q.reasons, '$.probability') DESC, q.id LIMIT ?3"
        )
        return [task for (task,) in self._tables.read(sql, annotator, predicted, n)]

    def find_of_row(self, row: int) -> int | None:
        """Return the ID of the newest task of a row, waiting or not, or None without one.

        An expired check is returned only without any other task of the row; then the first one.
        """
        sql = (
            f"SELECT q.id FROM task AS q WHERE q.run = ({NEWEST}) AND q.row = ? "
            f"ORDER BY {IS_LAST_RESORT}, CASE WHEN {IS_LAST_RESORT} THEN q.id ELSE -q.id END "
            "LIMIT 1"
        )
        return self._find(sql, row)

    def find_neighbors(
        self, row: int | None, annotator: str
    ) -> tuple[int | None, int | None]:
        """Return the IDs of the previous and the next waiting task of other rows, cyclically."""
        here = self._locate(row)
        before = f"{WAITING} AND q.id < ?2 ORDER BY q.id"
        after = f"{WAITING} AND q.id > ?2 ORDER BY q.id"
        previous = self._find(f"{before} DESC LIMIT 1", annotator, here)
        if previous is None:
            previous = self._find(f"{after} DESC LIMIT 1", annotator, here)
        following = self._find(f"{after} LIMIT 1", annotator, here)
        if following is None:
            following = self._find(f"{before} LIMIT 1", annotator, here)
        return previous, following

    def list_fresh_rows(self, annotator: str) -> list[int]:
        """Return the rows that wait for the annotator and that they have not skipped."""
        lines = self._tables.read(f"SELECT row FROM task WHERE id IN ({FRESH})", annotator)
        return [row for (row,) in lines]

    def find_next(
        self, row: int | None, annotator: str, later: Iterable[int] = ()
    ) -> int | None:
        """Return the ID of the task to label after ``row``, or None.

        Rows ``later`` come after all others, and after them rows that the annotator skipped, in the
        order of skipping.
        """
        here = self._locate(row)
        rows = json.dumps([*later])
        first = f"{FRESH} AND q.row NOT IN (SELECT value FROM json_each(?2))"
        task = self._find(
            f"{first} AND q.id > ?3 ORDER BY q.id LIMIT 1", annotator, rows, here
        )
        if task is None:
            task = self._find(f"{first} ORDER BY q.id LIMIT 1", annotator, rows)
        if task is None:
            task = self._find(f"{FRESH} ORDER BY q.id LIMIT 1", annotator)
        if task is None:
            task = self._find(f"{WAITING} ORDER BY ({SKIPPED_AT}) LIMIT 1", annotator)
        return task

    def _locate(self, row: int | None) -> int:
        """Return the position of a row among the tasks, or one before all of them."""
        task = None
        if row is not None:
            task = self.find_of_row(row)
        return -1 if task is None else task

    def _find(self, sql: str, *values: str | int) -> int | None:
        task: int | None = self._tables.read_one(sql, *values)
        return task
