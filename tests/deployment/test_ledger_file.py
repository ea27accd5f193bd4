"""Test a ledger's file: constraints, concurrent writers, damage and full disks."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.draft import Draft
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.ledger.tables import MARK_OF, mark_of
from fallow.privacy.ledger import Released
from fallow.sites.store import Label, PeerMessage
from fallow.storage.database import Database
from tests.experiment.crash import KILLED, start_child, wait_for_child

RUN, STEP = "run", "0/query"


def make_ledger(folder: Path, limit: int | None = None, rows: int = 0) -> Ledger:
    """Create a ledger with this number of labeling tasks."""
    ledger = Ledger(folder / "ledger.sqlite", "north", 3, limit)
    if ledger.instructions.newest_run() is None:
        ledger.instructions.begin(RUN)
        ledger.requests.ask(
            RUN,
            STEP,
            cycle=0,
            allowed=rows,
            deadline=None,
            rows=[SelectedRow(row) for row in range(rows)],
        )
    return ledger


def by_hand(ledger: Ledger, sql: str, *values: Any) -> None:
    """Change the file directly, without the ledger's checks."""
    db = sqlite3.connect(ledger.path, isolation_level=None)
    db.create_function(MARK_OF, -1, mark_of, deterministic=True)
    try:
        db.execute(sql, values)
    finally:
        db.close()


def test_a_ledger_and_its_copy_are_for_their_owner_alone_whatever_the_umask(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        ledger = make_ledger(tmp_path, rows=1)
        ledger.backup()
    finally:
        os.umask(before)
    assert ledger.copy.stat().st_mode & 0o777 == 0o600
    files = [file for file in tmp_path.iterdir() if file.name.startswith("ledger")]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    ledger.close()


# -- budgets -------------------------------------------------------------------------------


def test_a_step_asks_no_more_than_it_is_allowed(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    lines = [SelectedRow(row) for row in range(5)]
    assert (
        ledger.requests.ask(RUN, "1/query", cycle=1, allowed=3, deadline=None, rows=lines)
        == 3
    )
    assert [question.row for question in ledger.tasks(1)] == [0, 1, 2]


def test_a_step_that_asked_keeps_its_questions(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, rows=2)
    assert (
        ledger.requests.ask(
            RUN,
            STEP,
            cycle=0,
            allowed=9,
            deadline=None,
            rows=[SelectedRow(row) for row in range(9)],
        )
        == 2
    )
    assert len(ledger.tasks()) == 2


def test_the_limit_of_the_site_holds_over_all_steps(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, limit=3, rows=2)
    ledger.answer(0, 1, "ann")
    ledger.answer(1, 1, "ann")
    lines = [SelectedRow(row) for row in range(2, 9)]
    assert (
        ledger.requests.ask(RUN, "1/query", cycle=1, allowed=5, deadline=None, rows=lines)
        == 1
    )


def test_a_limit_below_what_was_asked_stops_further_questions(tmp_path: Path) -> None:
    make_ledger(tmp_path, rows=3).close()
    ledger = make_ledger(tmp_path, limit=1)
    for row in range(3):
        ledger.answer(row, 1, "ann")
    assert (
        ledger.requests.ask(
            RUN, "1/query", cycle=1, allowed=2, deadline=None, rows=[SelectedRow(8)]
        )
        == 0
    )


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE request SET asked = asked + 1", "CHECK"),
        ("UPDATE label_budget SET asked = asked + 1", "CHECK"),
        (
            "INSERT INTO task (request, run, cycle, row, position, reasons, weight) "
            "VALUES (1, 'run', 0, 7, 2, '{}', 1.0)",
            "CHECK",
        ),
        (
            "INSERT INTO task (request, run, cycle, row, position, reasons, weight) "
            "VALUES (1, 'run', 1, 0, 2, '{}', 1.0)",
            "never asked",
        ),
        ("UPDATE task SET state = 'open' WHERE row = 1", "ended"),
        ("DELETE FROM annotation", "only added to"),
        ("UPDATE annotation SET value = 2", "only added to"),
    ],
)
def test_the_database_itself_refuses(tmp_path: Path, sql: str, why: str) -> None:
    ledger = make_ledger(tmp_path, limit=2, rows=2)
    ledger.answer(0, 1, "ann")
    ledger.answer(1, 1, "ann")
    ledger.requests.close(RUN, STEP, lambda labels: labels)
    ledger.withdraw(1, "ann")
    with pytest.raises(sqlite3.IntegrityError, match=why):
        by_hand(ledger, sql)


def test_the_database_itself_refuses_to_ask_twice_in_a_cycle(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, rows=1)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        by_hand(
            ledger,
            "INSERT INTO task (request, run, cycle, row, position, reasons, weight) "
            "VALUES (1, 'run', 0, 0, 1, '{}', 1.0)",
        )


def test_writers_at_the_same_time_never_ask_beyond_the_limit(tmp_path: Path) -> None:
    ledgers = [make_ledger(tmp_path, limit=7) for _ in range(4)]
    asked: list[int] = []

    def ask(ledger: Ledger, step: str, first: int) -> None:
        lines = [SelectedRow(row) for row in range(first, first + 3)]
        asked.append(
            ledger.requests.ask(
                RUN, step, cycle=int(step[0]), allowed=3, deadline=None, rows=lines
            )
        )

    with ledgers[0].transaction():  # all threads wait for the same moment
        threads = [
            threading.Thread(target=ask, args=(ledgers[i], f"{i}/query", 3 * i))
            for i in (1, 2, 3)
        ]
        for thread in threads:
            thread.start()
        ask(ledgers[0], "0/more", 0)
    for thread in threads:
        thread.join(20)
    states = [question.state for question in ledgers[0].tasks()]
    assert len(asked) == 4 and states.count("open") <= 7
    for ledger in ledgers:
        ledger.close()


def test_another_process_answers_while_this_one_writes(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, rows=3)

    def answers() -> None:
        page = make_ledger(tmp_path)
        for row in range(3):
            page.answer(row, row, "ann")

    child = start_child(answers)
    for row in range(20, 40):
        ledger.withdraw(row, "bob")
    assert wait_for_child(child) == 0
    assert [answer.annotator for row in range(3) for answer in ledger.history(row)] == 3 * [
        "ann"
    ]
    assert ledger.requests.find_excluded_rows() == list(range(20, 40))


# -- crashes -------------------------------------------------------------------------------


def test_a_process_that_dies_before_the_commit_leaves_nothing(tmp_path: Path) -> None:
    make_ledger(tmp_path, rows=2).close()

    def dies() -> None:
        def kill(self: Database) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        Database.commit = kill  # type: ignore[method-assign]  # in the process that dies
        Ledger(tmp_path / "ledger.sqlite", "north", 3, None)

    assert wait_for_child(start_child(dies)) == KILLED
    ledger = make_ledger(tmp_path)
    assert [question.state for question in ledger.tasks()] == ["open", "open"]


def test_an_exception_in_a_transaction_undoes_all_of_it(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, rows=2)
    with pytest.raises(ValueError, match="has no labeling task"), ledger.transaction():
        ledger.answer(0, 1, "ann")
        ledger.answer(7, 1, "ann")
    assert ledger.history(0) == []


# -- storage -------------------------------------------------------------------------------


def test_a_draft_is_read_as_if_it_were_written_and_writes_nothing(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    ledger.store.keep("north", "model/south", {"w": torch.zeros(2)})
    draft = Draft(ledger.store)
    draft.keep("north", "local", {"w": torch.ones(2)})
    draft.receive("north", "model", {"west": PeerMessage({"w": torch.full((2,), 3.0)})})
    draft.write("north", [Label(3, 1.0, 0)])
    draft.spend("north", "0/query/0", Released(0.5, "digest", {"p": torch.ones(1)}))
    draft.hide("north", {"name": "a"})
    assert set(draft.load_states("north")) == {"local", "model/west"}
    assert draft.epsilon == 0.5 and draft.load_secret("north") == {"name": "a"}
    assert set(ledger.store.load_states("north")) == {"model/south"}
    assert (
        ledger.store.load_labels("north") == []
        and ledger.store.load_releases("north") == {}
    )
    draft.flush("north")
    assert set(ledger.store.load_states("north")) == {"local", "model/west"}
    assert [label.row for label in ledger.store.load_labels("north")] == [3]
    assert draft.epsilon == 0
    assert set(ledger.store.load_releases("north")) == {"0/query/0"}


def test_memory_is_put_back_to_what_it_was_when_it_last_counted(tmp_path: Path) -> None:
    store = make_ledger(tmp_path).store
    store.keep("north", "global", {"w": torch.zeros(2)})
    store.keep("north", "best", {"w": torch.zeros(2)})
    store.settle(0)
    for number in (1, 2):  # two exchanges whose replies came too late
        store.exchange = number
        store.keep("north", "global", {"w": torch.full((2,), float(number))})
        store.keep("north", f"new {number}", {"w": torch.ones(2)})
        store.keep("north", "best", None)
    assert store.restore() and not store.restore()
    kept = store.load_states("north")
    assert set(kept) == {"global", "best"} and kept["global"]["w"].tolist() == [0.0, 0.0]


def test_undo_reaches_back_to_the_exchange_that_counted_and_no_further(
    tmp_path: Path,
) -> None:
    store = make_ledger(tmp_path).store
    for number in (1, 2):
        store.exchange = number
        store.keep("north", "global", {"w": torch.full((2,), float(number))})
    store.settle(1)
    assert store.restore()
    assert store.load_states("north")["global"]["w"].tolist() == [1.0, 1.0]


def test_noise_is_limited_over_all_runs_and_each_run_has_its_own_book(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", "north", 3, None, epsilon=1.0)
    line = Released(0.6, "digest", {})
    ledger.store.run = "one"
    ledger.store.spend("north", "0/query/0", line)
    ledger.store.run = "two"
    assert ledger.store.load_releases("north") == {}
    with pytest.raises(ValueError, match=r"spent epsilon 0\.6 of the 1 .* over all runs"):
        ledger.store.spend("north", "0/query/0", line)
    assert ledger.store.sum_spent() == 0.6
