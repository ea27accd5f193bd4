"""File writes are atomic, also after a power failure."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fallow.storage.errors import StorageError
from fallow.storage.files import load_tree, only_one, save_tree, write_whole

DiskCalls = list[tuple[str, str]]


@pytest.fixture
def disk_calls(monkeypatch: pytest.MonkeyPatch) -> DiskCalls:
    """Record file operations in order; each fsync and rename is executed."""
    seen: DiskCalls = []
    fsync: Callable[[int], None] = os.fsync
    replace = os.replace

    def watch_fsync(file: int) -> None:
        status = os.fstat(file)
        kind = "file"
        if stat.S_ISDIR(status.st_mode):
            kind = "folder"
        seen.append((f"fsync {kind}", str(status.st_ino)))
        fsync(file)

    def watch_replace(old: Path, new: Path) -> None:
        replace(old, new)
        seen.append(("rename", str(os.stat(new).st_ino)))

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "replace", watch_replace)
    return seen


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_anything_else(
    tmp_path: Path, disk_calls: DiskCalls
) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"whole")
    file = str(path.stat().st_ino)
    folder = str(tmp_path.stat().st_ino)
    assert disk_calls == [("fsync file", file), ("rename", file), ("fsync folder", folder)]


def test_a_checkpoint_is_on_the_disk_when_it_is_written(
    tmp_path: Path, disk_calls: DiskCalls
) -> None:
    path = tmp_path / "checkpoints" / "cycle-0.safetensors"
    saved = save_tree(path, {"w": torch.ones(3)})
    file = str(path.stat().st_ino)
    folder = str(path.parent.stat().st_ino)
    assert disk_calls == [("fsync file", file), ("rename", file), ("fsync folder", folder)]
    assert torch.equal(load_tree(path, tmp_path, saved)["w"], torch.ones(3))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_link_in_the_place_of_a_draft_leads_to_no_other_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / f"a.html.{os.getpid()}.part").symlink_to(other)
    write_whole(tmp_path / "a.html", b"a page")
    assert other.read_text() == "of somebody else"
    assert (tmp_path / "a.html").read_text() == "a page"
    assert not (tmp_path / "a.html").is_symlink()


def test_a_file_that_cannot_be_renamed_leaves_the_old_one_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")

    def refuse(old: Path, new: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(Exception, match="free some space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_a_link_in_the_place_of_a_lock_makes_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "study.lock").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(StorageError, match="cannot be written"),
        only_one(tmp_path / "study.lock"),
    ):
        pass
    assert not (tmp_path / "elsewhere").exists()
