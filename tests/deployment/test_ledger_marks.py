"""Test the checksum of each ledger line: changed lines are never read as valid."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.ledger.tables import MARKED
from fallow.privacy.ledger import Released
from fallow.sites.store import Label
from fallow.storage.errors import StorageError
from tests.deployment.ledgers import close, values

RUN, STEP = "run", "0/query"


def fill_ledger(folder: Path) -> Ledger:
    """Return a ledger with a line in every table that has checksums."""
    ledger = Ledger(folder / "ledger.sqlite", "north", 3, 9)
    if ledger.instructions.newest_run() is None:
        ledger.instructions.begin(RUN)
        ledger.requests.ask(
            RUN,
            STEP,
            cycle=0,
            allowed=3,
            deadline=None,
            rows=[SelectedRow(row) for row in range(3)],
        )
        ledger.skip(0, "ann")
        for row in range(3):
            ledger.answer(row, 1, "ann")
        ledger.withdraw(2, "ann", "consent")
        ledger.store.write("north", [Label(9, 1.0, -1)])
        ledger.store.run = RUN
        ledger.store.spend("north", "0/query/0", Released(0.5, "laplace", {}))
        ledger.instructions.note_score(RUN, "0/train/0", "digest")
        ledger.instructions.leave("an earlier one")
    return ledger


def damage(path: Path, sql: str) -> None:
    """Change bytes of the file without database constraints, as a damaged disk does."""
    db = sqlite3.connect(path, isolation_level=None)
    names = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    saved = db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in names:
        db.execute(f"DROP TRIGGER {name}")
    db.execute(sql)
    for (trigger,) in saved:
        db.execute(trigger)
    db.close()


CHANGES = {
    "annotation": (
        "value = 2.0",
        "annotator = 'bob'",
        "task = 2",
        "kind = 'imported'",
        "reason = 'quality'",
    ),
    "skipped": ("annotator = 'bob'",),
    "task": (
        "row = 7",
        "state = 'expired'",
        "weight = 2.0",
        "entered = 99",
        "reasons = '[]'",
    ),
    "request": ("allowed = 9", "closed = 1", "step = '1/query'"),
    "label_budget": ("maximum = 8", "asked = 2"),
    "display_budget": ("shown = 0", "maximum = 99"),
    "privacy_spending": ("epsilon = 0.25", "key = '0/query/1'"),
    "excluded": ("row = 1", "note = ''"),
    "place": ("fold = 1 - fold", "is_validation = 1"),
    "scored": ("digest = 'another'", "step = '0/train/1'"),
    "run": ("position = 7", "id = 'rum'"),
    "left_run": ("id = 'run'",),
    "metadata": ("value = '4'",),
}


@pytest.mark.parametrize(
    "sql", [f"{t} SET {c}" for t, some in CHANGES.items() for c in some]
)
def test_a_changed_line_is_noticed_when_the_ledger_is_opened(
    tmp_path: Path, sql: str
) -> None:
    fill_ledger(tmp_path).close()
    table = sql.split()[0]
    only = f" WHERE rowid = (SELECT min(rowid) FROM {table})"
    damage(tmp_path / "ledger.sqlite", f"UPDATE {sql}{only}")
    with pytest.raises(StorageError, match=f"of its table {table} was changed"):
        fill_ledger(tmp_path)


@pytest.mark.parametrize(
    "sql", ["annotation SET value = 2.0 WHERE id = 1", "task SET row = 5 WHERE id = 1"]
)
def test_a_changed_answer_never_becomes_a_label(tmp_path: Path, sql: str) -> None:
    """This also holds if the line changes while the site is running."""
    ledger = fill_ledger(tmp_path)
    damage(ledger.path, f"UPDATE {sql}")
    with pytest.raises(StorageError, match="was changed"):
        close(ledger)
    assert [label.row for label in ledger.store.load_labels("north")] == [9]
    ledger.close()


def test_a_changed_cost_of_noise_is_noticed_before_more_is_spent(tmp_path: Path) -> None:
    ledger = fill_ledger(tmp_path)
    damage(ledger.path, "UPDATE privacy_spending SET epsilon = 0.0")
    with pytest.raises(StorageError, match="of its table privacy_spending was changed"):
        ledger.store.spend("north", "1/query/0", Released(0.5, "laplace", {}))
    ledger.close()


def test_every_table_has_checksums_or_holds_what_has_its_own(tmp_path: Path) -> None:
    ledger = fill_ledger(tmp_path)
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = {name for (name,) in ledger._tables.read(sql)}
    assert tables - MARKED.keys() == {
        "answer",
        "memory",
        "undo",
        "secret",
        "label",
    }
    for table, columns in MARKED.items():
        there = {line[1] for line in ledger._tables.read(f"PRAGMA table_info({table})")}
        # these lines are signed separately
        assert there - {*columns, "mark"} <= {"reply", "line"}
    ledger.close()


def test_lines_that_change_as_they_may_are_whole(tmp_path: Path) -> None:
    ledger = fill_ledger(tmp_path)
    ledger.take_back("ann")
    ledger.answer(1, 2, "ann")
    close(ledger)
    ledger.close()
    again = fill_ledger(tmp_path)
    assert values(again) == {0: 1.0, 1: 2.0, 9: 1.0}
    again.close()
