"""Checkpoints are read back unchanged, and other files are refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from fallow.storage.errors import StorageError
from fallow.storage.files import load_tree, only_one, save_tree, write_whole
from fallow.storage.packing import pack

TREE = {"w": torch.arange(3.0), "round": 2}


def test_a_file_that_cannot_be_written_to_its_end_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_whole(tmp_path / "a", b"older")
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(
            StorageError, match=r"a cannot be written \(No space left on device\)"
        ):
            write_whole(tmp_path / "a", b"newer")
    assert (tmp_path / "a").read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_secret_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_whole(tmp_path / "key", b"secret", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_checkpoint_that_the_journal_does_not_name_is_refused(tmp_path: Path) -> None:
    """Check that an intact checkpoint of another round is refused."""
    file = tmp_path / "model.safetensors"
    newest = save_tree(file, TREE)
    save_tree(file, {**TREE, "round": 1})
    with pytest.raises(StorageError, match="not the file named in the event log"):
        load_tree(file, tmp_path, newest)


def test_a_checkpoint_whose_values_are_not_those_that_were_written_is_refused(
    tmp_path: Path,
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(pack({"tree": TREE, "digest": "0" * 64}))
    with pytest.raises(StorageError, match="wrong checksum"):
        load_tree(file, tmp_path)


def test_a_lock_is_had_once(tmp_path: Path) -> None:
    with (
        only_one(tmp_path / "lock", wait=False),
        pytest.raises(StorageError, match="another process uses"),
        only_one(tmp_path / "lock", wait=False),
    ):
        pass
