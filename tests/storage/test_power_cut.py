"""Effects of a power failure on the files of sites and coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.deployment.coordinator.program import open_event_log
from tests.deployment.hosts import agreement, folder

FULL = 2  # a committed transaction is on disk


@pytest.fixture
def no_wait_for_the_disk() -> None:
    """Wait for the disk here."""


def test_what_people_answered_survives_a_power_cut(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    ledger = folder(tmp_path).open_ledger()
    assert ledger._tables.read("PRAGMA synchronous") == [(FULL,)]
    assert ledger._tables.read("PRAGMA journal_mode") == [("wal",)]
    ledger.close()


def test_what_sites_answered_survives_a_power_cut_at_the_coordinator(
    tmp_path: Path,
) -> None:
    with open_event_log(tmp_path / "run", agreement("strategy=entropy")) as event_log:
        assert event_log._file.read("PRAGMA synchronous") == [(FULL,)]
