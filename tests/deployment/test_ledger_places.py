"""Test the places of labels in a site's ledger: training or validation, and the fold."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fallow.deployment.ledger import Ledger
from fallow.sites.store import Label
from fallow.storage.errors import StorageError
from tests.deployment.ledgers import RUN, STEP, Open
from tests.deployment.test_ledger_file import by_hand, make_ledger

ROWS = (4, 2, 9)


def place_of(ledger: Ledger, row: int) -> tuple[bool, int | None]:
    for label in ledger.store.load_labels("north"):
        if label.row == row:
            return label.is_validation, label.fold
    raise LookupError(row)


def test_a_corrected_label_keeps_its_place(open_ledger: Open) -> None:
    ledger = open_ledger()
    for row in ROWS:
        ledger.answer(row, 1, "ann")
    ledger.requests.close(
        RUN,
        STEP,
        lambda labels: [label._replace(is_validation=label.row == 2) for label in labels],
    )
    before = [place_of(ledger, row) for row in ROWS]
    assert place_of(ledger, 2)[0]
    ledger.answer(2, 0, "ann")
    ledger.answer(9, 2, "ann")
    ledger.requests.close(RUN, "1/query", lambda labels: labels)
    assert [place_of(ledger, row) for row in ROWS] == before


def test_a_label_that_comes_back_has_its_earlier_place(open_ledger: Open) -> None:
    ledger = open_ledger()
    for row in ROWS:
        ledger.answer(row, 1, "ann")
    ledger.requests.close(
        RUN, STEP, lambda labels: [label._replace(is_validation=True) for label in labels]
    )
    before = place_of(ledger, 2)
    ledger.answer(2, None, "ann")
    ledger.requests.close(RUN, "1/query", lambda labels: labels)
    with pytest.raises(LookupError):
        place_of(ledger, 2)
    ledger.answer(2, 0, "ann")
    ledger.requests.close(RUN, "2/query", lambda labels: labels)
    assert place_of(ledger, 2) == before


def test_labels_have_the_same_folds_in_later_runs(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    ledger.store.write("north", [Label(row, float(row % 2), 0) for row in range(9)])
    before = [label.fold for label in ledger.store.load_labels("north")]
    ledger.store.carry_labels_over()
    assert [label.fold for label in ledger.store.load_labels("north")] == before


@pytest.mark.parametrize(
    "sql",
    ["UPDATE place SET fold = 1 - fold", "DELETE FROM place", "UPDATE place SET row = 8"],
)
def test_the_database_refuses_another_place(tmp_path: Path, sql: str) -> None:
    ledger = make_ledger(tmp_path)
    ledger.store.write("north", [Label(3, 1.0, 0)])
    with pytest.raises(
        sqlite3.IntegrityError, match="the place of a label is decided once"
    ):
        by_hand(ledger, sql)


def test_a_label_without_its_place_is_noticed(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    ledger.store.write("north", [Label(3, 1.0, 0)])
    by_hand(ledger, "DROP TRIGGER place_stays")
    by_hand(ledger, "DELETE FROM place")
    with pytest.raises(StorageError, match="the label of row 3 was changed"):
        ledger.store.load_labels("north")


def test_a_group_keeps_its_fold_when_all_of_its_labels_are_gone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", "north", 3, None, groups=[0, 0, 1])
    ledger.store.write("north", [Label(0, 1.0, 0)])
    _, fold = place_of(ledger, 0)
    ledger.store.erase(0)
    ledger.store.write("north", [Label(2, 1.0, 0, fold=fold)])  # other folds have fewer
    ledger.store.write("north", [Label(1, 1.0, 0)])
    assert place_of(ledger, 1) == (False, fold)
    ledger.close()
