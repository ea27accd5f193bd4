"""The event log: writes are atomic, and a changed byte is detected."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from fallow.experiment.event_log import EventLog
from fallow.sites.store import Label
from fallow.storage.errors import StorageError
from tests.keys import key_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "event_log.sqlite"


@pytest.fixture
def event_log(path: Path) -> Iterator[EventLog]:
    made = EventLog(path)
    yield made
    made.close()


def test_an_exchange_is_recalled_under_its_key_and_contents(event_log: EventLog) -> None:
    entry = {"replies": {"a": {"w": torch.arange(3.0), "n": 2}}, "up": 5, "down": 7}
    assert event_log.recall(key_of("0/train/0/0"), "digest") is None
    event_log.record(key_of("0/train/0/0"), "digest", entry)
    recalled = event_log.recall(key_of("0/train/0/0"), "digest")
    assert recalled is not None
    assert torch.equal(recalled["replies"]["a"].pop("w"), torch.arange(3.0))
    assert recalled == {"replies": {"a": {"n": 2}}, "up": 5, "down": 7}


def test_the_same_key_with_other_contents_is_refused(event_log: EventLog) -> None:
    event_log.record(key_of("0/query/0"), "one", {})
    with pytest.raises(
        StorageError, match=r"exchange 0/query/0 of .* was recorded with other contents"
    ):
        event_log.recall(key_of("0/query/0"), "two")


def test_a_finished_step_forgets_its_own_exchanges_and_no_others(
    event_log: EventLog,
) -> None:
    keys = ("1/train/0/0", "1/train/1/0", "11/train/0/0", "1/query/0")
    for key in keys:
        event_log.record(key_of(key), "d", {})
    event_log.finish("1/train", {"seconds": 1.0})
    kept = [key for key in keys if event_log.recall(key_of(key), "d") is not None]
    assert kept == ["11/train/0/0", "1/query/0"]
    assert event_log.exchanges() == [key_of(key) for key in kept]


def test_a_step_gives_what_a_resumed_run_will_read(event_log: EventLog) -> None:
    returned = event_log.finish("0/query", {"memo": {3: (1, 2.5)}})
    assert returned == event_log.load_step("0/query") == {"memo": {"3": [1, 2.5]}}
    assert event_log.load_step("1/query") is None


def test_a_transaction_is_all_or_nothing_and_an_inner_one_joins_it(
    event_log: EventLog,
) -> None:
    with pytest.raises(ZeroDivisionError), event_log.transaction():
        event_log.keep("a", "local", {"w": torch.zeros(2)})
        with event_log.transaction():
            event_log.write("a", [Label(1, 2.0, 0)])
        raise ZeroDivisionError
    assert event_log.load_states("a") == {}
    assert event_log.load_labels("a") == []


def _names_in_file(path: Path) -> list[str]:
    """Return the keys of exchanges and the names of states that another process would read."""
    with closing(sqlite3.connect(path)) as db:
        sql = "SELECT key FROM exchange UNION ALL SELECT name FROM memory ORDER BY 1"
        return [name for (name,) in db.execute(sql)]


def _exchange(event_log: EventLog, turn: int) -> None:
    event_log.keep("a", "local", {"w": torch.full((2,), float(turn))})
    event_log.keep("a", "own/v", {"w": torch.full((2,), float(turn))})
    event_log.record(key_of(f"0/train/{turn}/0"), "d", {})


def test_an_exchange_is_in_the_file_before_the_next_one_without_replaced_models(
    event_log: EventLog, path: Path
) -> None:
    with event_log.transaction():
        _exchange(event_log, turn=0)
    with event_log.transaction(replaces=[("a", "local")]):
        assert _names_in_file(path) == ["0/train/0/0", "own/v"]
        _exchange(event_log, turn=1)
    event_log.finish("0/train", {})
    assert _names_in_file(path) == ["local", "own/v"]
    assert event_log.load_states("a")["local"]["w"].tolist() == [1.0, 1.0]


def test_an_exchange_of_real_sites_is_written_at_once(path: Path) -> None:
    with closing(EventLog(path, is_durable=True)) as event_log:
        with event_log.transaction():
            event_log.record(key_of("0/train/0/0"), "d", {})
        assert _names_in_file(path) == ["0/train/0/0"]


def test_a_failed_exchange_leaves_the_one_before_it(
    event_log: EventLog, path: Path
) -> None:
    with event_log.transaction():
        _exchange(event_log, turn=0)
    with pytest.raises(ZeroDivisionError), event_log.transaction():
        _exchange(event_log, turn=1)
        raise ZeroDivisionError
    event_log.close()
    assert _names_in_file(path) == ["0/train/0/0", "local", "own/v"]


def test_what_sites_keep_and_buy_is_there_after_the_file_is_opened_again(
    path: Path,
) -> None:
    labels = [Label(3, 1.0, 0), Label(5, 0.25, 1, 0.1, 0.2)]
    first = EventLog(path)
    first.write("a", labels)
    first.keep("a", "local", {"w": torch.tensor([0.1, 0.2])})
    first.keep("a", "gone", {"w": torch.zeros(1)})
    first.keep("a", "gone", None)
    assert first.note_once("digest", "one") == "one"
    first.close()
    again = EventLog(path)
    assert again.load_labels("a") == labels
    assert again.load_labels("b") == []
    assert list(again.load_states("a")) == ["local"]
    assert torch.equal(again.load_states("a")["local"]["w"], torch.tensor([0.1, 0.2]))
    assert again.note_once("digest", "two") == "one"
    again.close()


def test_a_row_is_never_labeled_twice(event_log: EventLog) -> None:
    event_log.write("a", [Label(3, 1.0, 0)])
    with pytest.raises(StorageError, match="UNIQUE constraint"):
        event_log.write("a", [Label(3, 2.0, 1)])


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE finished SET result = CAST(X'00' || substr(result, 2) AS BLOB)",
        "UPDATE memory SET state = substr(state, 1, 20)",
        "UPDATE exchange SET entry = CAST(substr(entry, 1, 60) || X'2A' AS BLOB)",
        "UPDATE label SET value = 2.0",
        "UPDATE label SET weight = 0.5",
        "UPDATE label SET is_validation = 1",
    ],
)
def test_a_value_that_was_changed_is_reported_as_damage(path: Path, sql: str) -> None:
    event_log = EventLog(path)
    event_log.record(key_of("1/train/0/0"), "d", {"replies": {}, "up": 1, "down": 2})
    event_log.finish("0/train", {"state": torch.zeros(4)})
    event_log.keep("a", "local", {"w": torch.zeros(4)})
    event_log.write("a", [Label(3, 1.0, 0)])
    event_log.close()
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()
    again = EventLog(path)
    with pytest.raises(
        StorageError, match=r"damaged .*: delete the folder .* run again with --resume"
    ):
        again.recall(key_of("1/train/0/0"), "d")
        again.load_step("0/train")
        again.load_states("a")
        again.load_labels("a")
    again.close()


@pytest.mark.long
def test_bytes_overwritten_anywhere_are_noticed_or_do_not_matter(
    tmp_path: Path, path: Path
) -> None:
    event_log = EventLog(path)
    for step in range(3):
        event_log.finish(f"{step}/train", {"state": torch.full((400,), float(step))})
        event_log.write(
            "a", [Label(row, 1.0, step) for row in range(40 * step, 40 * step + 40)]
        )
    event_log.close()
    whole = path.read_bytes()
    noticed = 0
    for at in range(0, len(whole), 512):
        damaged = tmp_path / f"{at}.sqlite"
        damaged.write_bytes(whole[:at] + b"\xa5" * 64 + whole[at + 64 :])
        try:
            again = EventLog(damaged)
        except StorageError:
            noticed += 1
            continue
        try:
            assert len(again.load_labels("a")) == 120
            for step in range(3):
                values = again.load_step(f"{step}/train")
                assert values is not None
                assert torch.equal(values["state"], torch.full((400,), float(step)))
        except StorageError as error:
            assert "damaged" in str(error) or "cannot be written" in str(error)
            noticed += 1
        finally:
            again.close()
    assert noticed > 5


@pytest.mark.parametrize(
    "content", [b"not a database at all, but a text" * 40, b"\x00" * 5000]
)
def test_a_file_that_is_no_journal_is_reported_as_damage(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"event_log\.sqlite is damaged"):
        EventLog(path)


def test_a_journal_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be written .*: free some space"):
        EventLog(tmp_path / "nowhere" / "event_log.sqlite")


@pytest.mark.parametrize(
    "hidden",
    [
        "CREATE VIEW finished AS WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k FROM n) "
        "SELECT k FROM n",
        "CREATE TRIGGER t AFTER INSERT ON finished BEGIN DELETE FROM memory; END",
    ],
)
def test_a_file_that_would_run_something_is_refused(path: Path, hidden: str) -> None:
    if "TRIGGER" in hidden:
        EventLog(path).close()
    with closing(sqlite3.connect(path)) as received:
        received.execute(hidden)
    with pytest.raises(StorageError, match="which no event log has"):
        EventLog(path)
