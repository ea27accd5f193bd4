"""Cached features: stored, checked, resumed after a kill, extended."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.storage import features
from fallow.storage.errors import DamagedFileError, StorageError, UnwritableFileError
from fallow.storage.features import (
    BLOCK,
    DATA,
    JOURNAL,
    SLOW_BLOCK,
    FeatureFile,
    FeatureStore,
)
from tests.experiment.crash import KILLED, start_child, wait_for_child

KEY = "e" * 32


class Doubled:
    """An encoder of rows (n, 3) that counts what it does."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        return torch.cat([2 * x, x[:, :1]], 1)


def rows(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


def store(folder: Path, **more: Any) -> FeatureStore:
    return FeatureStore(folder, **{"memory": 0, **more})


def place_of(folder: Path) -> Path:
    (result,) = [path for path in folder.iterdir() if path.is_dir()]
    return result


def test_features_in_a_file_are_those_of_the_encoder(tmp_path: Path) -> None:
    x = rows(2 * BLOCK + 5)
    encode = Doubled()
    result = store(tmp_path).features(KEY, x, 4, encode)
    assert isinstance(result, FeatureFile)
    assert encode.rows == [BLOCK, BLOCK, 5]
    at = torch.tensor([2 * BLOCK + 4, 0, BLOCK, 0])
    assert torch.equal(result.take(at), Doubled()(x[at]))
    assert torch.equal(result.whole(), Doubled()(x))
    assert result.take(at[:0]).shape == (0, 4)


def test_what_is_kept_is_not_computed_again(tmp_path: Path) -> None:
    x = rows(BLOCK + 7)
    again = Doubled()
    store(tmp_path).features(KEY, x, 4, Doubled())
    result = store(tmp_path).features(KEY, x, 4, again)
    assert again.rows == []
    assert len(result) == BLOCK + 7


def test_other_rows_and_other_encoders_have_files_of_their_own(tmp_path: Path) -> None:
    for x, key in ((rows(9), KEY), (rows(9, seed=1), KEY), (rows(9), "f" * 32)):
        encode = Doubled()
        store(tmp_path).features(key, x, 4, encode)
        assert encode.rows == [9]
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 3


def test_few_features_stay_in_memory_and_are_computed_once(tmp_path: Path) -> None:
    x = rows(50)
    encode = Doubled()
    kept = FeatureStore(tmp_path)
    first = kept.features(KEY, x, 4, encode)
    assert kept.features(KEY, x.clone(), 4, encode) is first
    assert encode.rows == [50]
    assert list(tmp_path.iterdir()) == []


def test_a_site_keeps_few_features_in_a_file_too(tmp_path: Path) -> None:
    x = rows(50)
    again = Doubled()
    FeatureStore(tmp_path, always=True).features(KEY, x, 4, Doubled())
    result = FeatureStore(tmp_path, always=True).features(KEY, x, 4, again)
    assert isinstance(result, Tensor)
    assert torch.equal(result, Doubled()(x))
    assert again.rows == []


def test_features_of_a_network_are_shared_by_processes_and_reported_in_small_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SLOW", -1.0)
    x = rows(2 * SLOW_BLOCK + 5)
    encode = Doubled()
    again = Doubled()
    events: list[Any] = []
    for folder in (None, tmp_path):
        encode.rows.clear()
        kept = FeatureStore(folder, notify=events.append)
        kept.features(KEY, x, 4, encode, is_slow=True)
        assert encode.rows == [SLOW_BLOCK, SLOW_BLOCK, 5]
        assert [event["done"] for event in events[-3:]] == [512, 1024, 1029]
    result = FeatureStore(tmp_path).features(KEY, x, 4, again, is_slow=True)
    assert isinstance(result, Tensor)
    assert torch.equal(result, Doubled()(x))
    assert again.rows == []


def test_half_features_take_half_the_space(tmp_path: Path) -> None:
    x = rows(100).half().float()
    result = store(tmp_path).features(KEY, x, 4, Doubled(), is_half=True)
    assert isinstance(result, FeatureFile)
    assert result.path.stat().st_size == 100 * 4 * 2
    assert torch.equal(result.whole(), Doubled()(x))


@pytest.mark.parametrize("block", [0, 1])
def test_a_damaged_block_is_made_again_with_what_follows(
    tmp_path: Path, block: int
) -> None:
    x = rows(2 * BLOCK)
    again = Doubled()
    store(tmp_path).features(KEY, x, 4, Doubled())
    data = place_of(tmp_path) / DATA
    content = bytearray(data.read_bytes())
    content[block * BLOCK * 16 + 3] ^= 1
    data.write_bytes(bytes(content))
    result = store(tmp_path).features(KEY, x, 4, again)
    assert again.rows == [BLOCK] * (2 - block)
    assert isinstance(result, FeatureFile)
    assert torch.equal(result.whole(), Doubled()(x))


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: text[:-5],  # the last line is incomplete
        lambda text: text + '[16384, 999999, "00"',
        lambda text: text.replace("float32", "float99"),
        lambda text: "",
        lambda text: "no journal\n",
    ],
)
def test_a_damaged_journal_costs_time_and_no_bit(tmp_path: Path, harm: Any) -> None:
    x = rows(2 * BLOCK)
    store(tmp_path).features(KEY, x, 4, Doubled())
    journal = place_of(tmp_path) / JOURNAL
    whole = journal.read_text()
    journal.write_text(harm(whole))
    result = store(tmp_path).features(KEY, x, 4, Doubled())
    assert isinstance(result, FeatureFile)
    assert torch.equal(result.whole(), Doubled()(x))
    assert journal.read_text() == whole


def test_rows_that_were_added_behind_others_are_added_to_their_file(tmp_path: Path) -> None:
    x = rows(BLOCK + 50)
    more = Doubled()
    again = Doubled()
    store(tmp_path, grows=True).features(KEY, x[: BLOCK + 10], 4, Doubled())
    features = store(tmp_path, grows=True).features(KEY, x, 4, more)
    assert more.rows == [40]
    assert isinstance(features, FeatureFile)
    assert torch.equal(features.whole(), Doubled()(x))
    place_of(tmp_path)  # there is one file
    store(tmp_path, grows=True).features(KEY, x, 4, again)
    assert again.rows == []


def test_rows_that_were_changed_are_not_taken_for_added_ones(tmp_path: Path) -> None:
    x = rows(60)
    again = Doubled()
    store(tmp_path, grows=True).features(KEY, x[:40], 4, Doubled())
    x[3, 0] += 1
    store(tmp_path, grows=True).features(KEY, x, 4, again)
    assert again.rows == [60]


def test_a_file_that_was_cut_while_it_was_in_use_is_no_row_of_zeros(
    tmp_path: Path,
) -> None:
    result = store(tmp_path).features(KEY, rows(40), 4, Doubled())
    assert isinstance(result, FeatureFile)
    os.truncate(result.path, 39 * 16)
    assert torch.equal(result.take(torch.tensor([38])), Doubled()(rows(40)[38:39]))
    with pytest.raises(DamagedFileError, match="ends before example 39"):
        result.take(torch.tensor([3, 39]))


def test_files_in_a_private_folder_are_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    store(tmp_path / "features").features(KEY, rows(30), 4, Doubled())
    for path in (tmp_path / "features").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


@pytest.mark.parametrize("name", [DATA, JOURNAL])
def test_a_link_in_the_place_of_a_file_leads_to_no_other_file(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "features"
    store(folder).features(KEY, rows(3), 4, Doubled())
    precious = tmp_path / "precious"
    precious.write_text("labels of a year")
    (place_of(folder) / name).unlink()
    (place_of(folder) / name).symlink_to(precious)
    with pytest.raises(StorageError, match="is a link, so it is not used") as refused:
        store(folder).features(KEY, rows(3), 4, Doubled())
    assert str(place_of(folder)) in str(refused.value)
    assert precious.read_text() == "labels of a year"


def test_a_link_that_is_put_there_after_the_check_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("labels of a year")
    (tmp_path / DATA).symlink_to(precious)
    with pytest.raises(OSError), features._open_for_writing(tmp_path / DATA) as file:
        os.ftruncate(file, 0)
    assert precious.read_text() == "labels of a year"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_owner_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    store(folder).features(KEY, rows(3), 4, Doubled())
    os.chown(place_of(folder) / DATA, 12345, 12345)
    with pytest.raises(StorageError, match="belongs to another owner"):
        store(folder).features(KEY, rows(3), 4, Doubled())


def test_a_folder_of_features_that_is_a_link_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "features").symlink_to(elsewhere)
    with pytest.raises(StorageError, match="is a link"):
        store(tmp_path / "features").features(KEY, rows(3), 4, Doubled())
    assert [path.name for path in elsewhere.iterdir()] in ([], ["features.lock"])


def test_a_file_that_becomes_a_link_while_it_is_in_use_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    file = store(folder, memory=1).features(KEY, rows(3), 4, Doubled())
    assert isinstance(file, FeatureFile)
    moved = file.path.with_name("moved")
    file.path.rename(moved)
    file.path.symlink_to(moved)
    with pytest.raises(OSError, match=r"symbolic|links|loop"):
        file.whole()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "features").write_text("in the way")
    with pytest.raises(UnwritableFileError, match="cannot be written"):
        store(tmp_path / "features").features(KEY, rows(3), 4, Doubled())


def test_progress_is_said_where_it_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[dict[str, Any]] = []
    x = rows(3 * BLOCK)
    store(tmp_path, notify=events.append).features(KEY, x, 4, Doubled())
    assert events == []
    monkeypatch.setattr(features, "SLOW", -1.0)
    store(tmp_path / "b", notify=events.append).features(KEY, x, 4, Doubled())
    assert events[-1] == {"event": "encoding", "done": 3 * BLOCK, "rows": 3 * BLOCK}


@pytest.mark.parametrize("after", [1, 2, 4])
def test_after_a_kill_the_work_goes_on_at_the_last_whole_block(
    tmp_path: Path, after: int
) -> None:
    n = 5 * BLOCK - 3

    class Killed(Doubled):
        def __call__(self, x: Tensor) -> Tensor:
            if len(self.rows) == after:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(x)

    child = start_child(lambda: store(tmp_path).features(KEY, rows(n), 4, Killed()))
    assert wait_for_child(child) == KILLED
    lines = (place_of(tmp_path) / JOURNAL).read_text().splitlines()
    assert len(lines[1:]) == after
    again = Doubled()
    features = store(tmp_path).features(KEY, rows(n), 4, again)
    assert len(again.rows) == 5 - after
    assert isinstance(features, FeatureFile)
    assert torch.equal(features.whole(), Doubled()(rows(n)))
