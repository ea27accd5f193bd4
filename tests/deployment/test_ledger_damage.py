"""Test ledger files that were damaged, changed or restored from a copy."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from fallow.deployment.ledger import Ledger
from fallow.sites.store import Label
from fallow.storage.errors import StorageError
from tests.deployment.test_ledger_file import by_hand, make_ledger


def test_a_file_with_a_damaged_page_is_refused_with_the_way_out(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, rows=2)
    ledger.answer(0, 1, "ann")
    ledger.backup()
    by_hand(ledger, "PRAGMA wal_checkpoint(TRUNCATE)")
    ledger.close()
    file = tmp_path / "ledger.sqlite"
    content = bytearray(file.read_bytes())
    content[-4096:-2048] = bytes(2048)
    file.write_bytes(content)
    for leftover in ("-wal", "-shm"):
        (tmp_path / f"ledger.sqlite{leftover}").unlink(missing_ok=True)
    with pytest.raises(StorageError, match=r"damaged .* copy ledger-backup.sqlite"):
        make_ledger(tmp_path)
    os.replace(tmp_path / "ledger-backup.sqlite", file)
    restored = make_ledger(tmp_path)
    assert restored.history(0)[0].value == 1.0
    restored.close()


def test_a_copy_in_the_place_of_a_file_whose_log_is_left_is_the_copy_alone(
    tmp_path: Path,
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    ledger = make_ledger(before, rows=2)
    ledger.answer(0, 1, "ann")
    ledger.backup()
    ledger.answer(1, 2, "ann")
    shutil.copytree(
        before, after
    )  # as after a power failure: the newest data is in the log
    ledger.close()
    assert (after / "ledger.sqlite-wal").stat().st_size > 0
    shutil.copy(after / "ledger-backup.sqlite", after / "ledger.sqlite")
    restored = make_ledger(after)
    assert [len(restored.history(row)) for row in (0, 1)] == [1, 0]
    assert restored.store.find_copy_time() is not None
    restored.close()
    assert (after / "ledger.sqlite-wal-of-another").exists()


def test_a_copy_that_is_made_twice_at_once_is_whole(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, rows=1)
    ledger.answer(0, 1, "ann")
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(ledger.backup) for _ in range(12)]:
            done.result()
    ledger.close()
    os.replace(tmp_path / "ledger-backup.sqlite", tmp_path / "ledger.sqlite")
    copy = make_ledger(tmp_path)
    assert len(copy.history(0)) == 1
    copy.close()


def test_what_a_log_holds_of_its_own_file_is_kept(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    ledger = make_ledger(before, rows=2)
    ledger.answer(0, 1, "ann")
    shutil.copytree(before, after)
    ledger.close()
    again = make_ledger(after)
    assert len(again.history(0)) == 1
    again.close()


@pytest.mark.parametrize(
    "sql", ["UPDATE label SET value = 2", "UPDATE label SET weight = 2"]
)
def test_a_label_changed_behind_its_back_is_noticed(tmp_path: Path, sql: str) -> None:
    ledger = make_ledger(tmp_path)
    ledger.store.write("north", [Label(3, 1.0, 0)])
    by_hand(ledger, sql)
    with pytest.raises(StorageError, match="the label of row 3 was changed"):
        ledger.store.load_labels("north")


def test_a_kept_model_with_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    ledger.store.keep("north", "local", {"w": torch.ones(3)})
    by_hand(
        ledger,
        "UPDATE memory SET state = CAST(substr(state, 1, length(state) - 1) || x'ff' AS BLOB)",
    )
    with pytest.raises(StorageError, match="the state local has a wrong checksum"):
        ledger.store.load_states("north")


def test_a_ledger_of_another_site_is_refused(tmp_path: Path) -> None:
    make_ledger(tmp_path).close()
    with pytest.raises(StorageError, match=r"another site \(north, not south\)"):
        Ledger(tmp_path / "ledger.sqlite", "south", 3, None)


def test_a_ledger_of_a_later_version_is_refused(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path)
    by_hand(ledger, "PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="another version of Fallow"):
        make_ledger(tmp_path)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be read or written .* free some space"):
        Ledger(tmp_path / "nowhere" / "ledger.sqlite", "north", 3, None)


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path, rows=2)
    pages = ledger._tables.read("PRAGMA page_count")[0][0]
    ledger._tables.read(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="free some space"):
        ledger.store.keep("north", "local", {"w": torch.zeros(100_000)})
    ledger._tables.read("PRAGMA max_page_count = 1000000")
    assert ledger.answer(0, 1, "ann").state == "answered"
