"""The queries of a labeling page select what a plain reading of the whole queue selects."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.label_queue import find_own_answer
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.ledger.labeling_tasks import LabelingTask
from tests.deployment.label_queues import RUN, ask, close, enter, make_queue, table_rows

ANNOTATORS = ("Ann", "Bob", "Cy")
ROWS = 12
STEPS = 40


class PlainQueue:
    """The queue of an annotator, from all labeling tasks."""

    def __init__(self, queue: LabelQueue, annotator: str, skipped: list[int]) -> None:
        self.skipped = {row: number for number, row in enumerate(skipped, start=1)}
        newest: dict[int, LabelingTask] = {}
        self.waiting: dict[int, LabelingTask] = {}
        for task in queue.ledger.tasks():
            is_over = task.is_check and task.state == "expired"
            if task.row not in newest or not is_over:
                newest.pop(task.row, None)
                newest[task.row] = task
            if task.state == "open" and find_own_answer(task, annotator) is None:
                self.waiting[task.row] = task
        self.newest = newest
        self.rows = list(newest)

    def around(self, row: int) -> tuple[LabelingTask | None, LabelingTask | None]:
        here = self.rows.index(row) if row in self.rows else -1
        circle = self.rows[here + 1 :] + self.rows[: max(here, 0)]
        others = [other for other in circle if other in self.waiting and other != row]
        if not others:
            return None, None
        return self.waiting[others[-1]], self.waiting[others[0]]

    def next_task(self, row: int) -> LabelingTask | None:
        start = self.rows.index(row) + 1 if row in self.rows else 0

        def turn(task: LabelingTask) -> tuple[int, int]:
            steps = (self.rows.index(task.row) - start) % len(self.rows)
            return self.skipped.get(task.row, 0), steps

        return min(self.waiting.values(), key=turn, default=None)


def act(queue: LabelQueue, draw: random.Random, skipped: dict[str, list[int]]) -> None:
    """Let a random annotator do something to a random row."""
    annotator = draw.choice(ANNOTATORS)
    row = draw.randrange(ROWS)
    kind = draw.choice(["answer", "answer", "skip", "take back", "resolve", "withdraw"])
    try:
        if kind == "answer":
            queue.ledger.answer(row, draw.choice([0.0, 1.0, None]), annotator)
        elif kind == "skip":
            queue.skip(row, annotator)
            skipped[annotator].append(row)
        elif kind == "take back":
            queue.ledger.take_back(annotator)
        elif kind == "resolve":
            queue.ledger.resolve(row, 1.0, annotator)
        elif draw.random() < 0.2:
            queue.ledger.withdraw(row, annotator)
    except ValueError:  # the row has no open task
        return


def ask_again(queue: LabelQueue, draw: random.Random, cycle: int) -> None:
    """End the cycle, ask for new rows, and check a label that was entered."""
    close(queue.ledger, cycle - 1)
    labeled = [label.row for label in queue.ledger.store.load_labels(queue.site)]
    left = set(queue.ledger.requests.find_left_rows())
    taken = {*labeled, *left}
    taken |= {task.row for task in queue.ledger.tasks() if task.state != "expired"}
    fresh = [row for row in range(ROWS) if row not in taken]
    if fresh:
        ask(queue.ledger, tuple(fresh[:4]), cycle=cycle, answers=draw.choice([1, 2]))
    labeled = [row for row in labeled if row not in left]
    if labeled:
        step = f"{cycle}/checks"
        ask_checks(queue, (draw.choice(labeled),), cycle, step)


def ask_checks(queue: LabelQueue, rows: tuple[int, ...], cycle: int, step: str) -> None:
    queue.ledger.requests.ask(
        RUN,
        step,
        cycle=cycle,
        allowed=len(rows),
        deadline=None,
        rows=[SelectedRow(row, is_check=True) for row in rows],
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_page_shows_the_task_that_the_whole_queue_gives(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)  # noqa: S311 - a history, no secret
    first = tuple(draw.sample(range(ROWS), 6))
    queue = make_queue(tmp_path, asked=first, answers=draw.choice([1, 2]))
    skipped: dict[str, list[int]] = {annotator: [] for annotator in ANNOTATORS}
    for step in range(STEPS):
        act(queue, draw, skipped)
        if step % 15 == 14:
            ask_again(queue, draw, 1 + step // 15)
        if step % 4 != 3:
            continue
        for annotator in ANNOTATORS:
            plain = PlainQueue(queue, annotator, skipped[annotator])
            waiting = queue.ledger.waiting
            assert waiting.count(annotator) == len(plain.waiting)
            checks = [task for task in plain.waiting.values() if task.is_check]
            assert queue.list_checks(annotator) == checks
            for row in range(ROWS):
                assert queue.task(row) == plain.newest.get(row)
                assert waiting.has_row(row, annotator) == (row in plain.waiting)
                assert queue.around(row, annotator) == plain.around(row)
                assert queue.next_task(row, annotator) == plain.next_task(row)
    queue.ledger.close()


def read_and_keep(
    read: Callable[..., list[object]], lines: list[object], sql: str, *values: object
) -> list[object]:
    """Read lines of a table, and keep them."""
    outcome = read(sql, *values)
    lines.extend(outcome)
    return outcome


def test_a_page_reads_few_lines_of_a_long_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of lines that a page reads does not grow with the queue."""
    n_lines = {}
    for length in (20, 200):
        names = tuple(f"patient-{row}" for row in range(length))
        folder = tmp_path / str(length)
        folder.mkdir()
        queue = make_queue(folder, rows=table_rows(names), asked=tuple(range(length)))
        browser = enter(queue)
        tables = queue.ledger._tables
        lines: list[object] = []
        monkeypatch.setattr(tables, "read", partial(read_and_keep, tables.read, lines))
        assert "patient-0" in browser.get("/")
        n_lines[length] = len(lines)
        queue.ledger.close()
    assert n_lines[20] == n_lines[200]
