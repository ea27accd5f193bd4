"""A database file is empty or has its tables: nothing in between can be seen."""

from __future__ import annotations

from pathlib import Path

from fallow.storage.database import Database, Words, has_no_table


def open_database(path: Path) -> Database:
    return Database(path, Words(RuntimeError, RuntimeError), "FULL")


def test_a_new_file_stays_empty_until_its_tables_are_committed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first = open_database(path)
    second = open_database(path)
    assert path.stat().st_size == 0
    with first.transaction():
        first.create("CREATE TABLE label (row INTEGER) STRICT;")
        assert path.stat().st_size == 0
    assert not has_no_table(path)
    assert second.read("SELECT count(*) FROM label") == [(0,)]
    assert second.read("PRAGMA journal_mode") == [("wal",)]
    second.close()
    first.close()
    again = open_database(path)
    assert again.read("PRAGMA journal_mode") == [("wal",)]
    again.close()
