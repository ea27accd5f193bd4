"""Large tables and images are read once for all seeds of a study."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch

from fallow.data import open_dataset
from fallow.data.dataset import Dataset
from fallow.data.reading import note
from fallow.experiment import row_cache
from fallow.experiment.row_cache import AS_JSON, NAMES, PLAIN, DatasetCache
from fallow.experiment.rows import open_data
from fallow.settings.config import ExperimentConfig
from fallow.storage.files import load_tree, save_tree
from tests.data.published import write_fashion_mnist, write_gzip
from tests.experiment.crash import KILLED, WELL, Points, start_child, wait_for_child


def are_equal(one: Dataset, two: Dataset) -> bool:
    for field in fields(Dataset):
        a = getattr(one, field.name)
        b = getattr(two, field.name)
        if isinstance(a, torch.Tensor):
            if not torch.equal(a.nan_to_num(-7), b.nan_to_num(-7)):
                return False
        elif a != b:
            return False
    return True


def test_what_is_kept_is_what_was_read_until_the_file_or_a_setting_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "LARGE", 100)
    path = tmp_path / "t.csv"
    rows = [
        f"{i * 0.7:.1f},{('mild', 'grave', '')[i % 3]},{'ab'[i % 2]},{i // 2 % 2}"
        for i in range(40)
    ]
    rows[4] = f",{rows[4].split(',', 1)[1]}"
    path.write_text("\n".join(["dose,kind,ward,y", *rows]) + "\n")
    config = ExperimentConfig("t", data=str(path), label="y", site="ward")
    folder = tmp_path / "rows"
    read = open_data(config, 0, kept_in=folder)
    (kept,) = folder.glob("*.safetensors")
    assert are_equal(open_data(config, 0, kept_in=folder), read)
    assert are_equal(open_data(config, 0), read)
    # the second call has read this file
    tree = load_tree(kept, folder)
    other = json.dumps([asdict(note("from beside the run"))])
    save_tree(kept, {**tree, "findings": other})
    assert open_data(config, 1, kept_in=folder).notes == ("from beside the run",)
    # different content or settings use another file
    path.write_text(path.read_text() + "3.3,mild,a,1\n")
    assert len(open_data(config, 0, kept_in=folder).x) + 9 >= 40
    open_data(
        ExperimentConfig("t", data=str(path), label="y", drop=("kind",)), 0, kept_in=folder
    )
    assert len(list(folder.glob("*.safetensors"))) == 3


def test_a_copy_has_every_field_of_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow.experiment.row_cache.LARGE", 0)
    path = tmp_path / "t.csv"
    rows = [f"p{i % 9},{1.7e9 + i},{'ab'[i % 2]}" for i in range(40)]
    path.write_text("\n".join(["patient,time,y", *rows]) + "\n")
    config = ExperimentConfig("t", data=str(path), label="y", group="patient")
    read = open_data(config, 0, kept_in=tmp_path / "rows")
    again = open_data(config, 0, kept_in=tmp_path / "rows")
    assert read.offsets and again.groups is not None and again.groups_test is not None
    for field in fields(Dataset):
        first = getattr(read, field.name)
        second = getattr(again, field.name)
        assert repr(first) == repr(second), field.name
    saved = {"x", "x_test", *PLAIN, *NAMES, *AS_JSON}
    assert saved == {field.name for field in fields(Dataset)}


def test_small_tables_and_named_sets_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("dose,y\n" + "\n".join(f"{i * 0.5},{i % 2}" for i in range(20)))
    open_data(
        ExperimentConfig("t", data=str(path), label="y"), 0, kept_in=tmp_path / "rows"
    )
    open_data(ExperimentConfig("iris", data="iris"), 0, kept_in=tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_rows_are_read_once_for_all_seeds_while_they_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = []

    def read_counted(*args: Any, **settings: Any) -> Dataset:
        reads.append(args)
        return open_dataset(*args, **settings)

    monkeypatch.setattr("fallow.data.open_dataset", read_counted)
    cache = DatasetCache()
    config = ExperimentConfig("t", data="iris", rows=60)
    seeds = [open_data(config, seed, cache=cache) for seed in (0, 1)]
    assert len(reads) == 1
    assert not torch.equal(seeds[0].x, seeds[1].x)
    assert torch.equal(seeds[1].x, open_data(config, 1).x)
    open_data(ExperimentConfig("t", data="wine"), 0, cache=cache)
    assert open_data(config, 0, cache=cache).name == "iris"
    assert len(reads) == 4
    monkeypatch.setattr(row_cache, "MOST_HELD", 100)
    large = DatasetCache()
    for seed in (0, 1):
        open_data(config, seed, cache=large)
    assert len(reads) == 6


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_copy_of_rows_is_its_owners_alone_and_drafts_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    monkeypatch.setattr(row_cache, "LARGE", 100)
    path = tmp_path / "t.csv"
    path.write_text("dose,y\n" + "\n".join(f"{i * 0.5},{i % 2}" for i in range(40)))
    path.chmod(0o600)
    before = os.umask(umask)
    try:
        folder = tmp_path / "study"
        folder.mkdir()
        other = folder / "model.safetensors.17.part"
        other.write_text("being written by another process")
        open_data(ExperimentConfig("t", data=str(path), label="y"), 0, kept_in=folder)
    finally:
        os.umask(before)
    rights = {file.name: file.stat().st_mode & 0o777 for file in folder.glob("rows-*")}
    assert len(rights) > 2
    assert set(rights.values()) == {0o600}
    assert other.exists()


PICTURES = ExperimentConfig("t", data="fashion_mnist")


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder with 30 images as Fashion-MNIST, which counts as large."""
    monkeypatch.setattr(row_cache, "LARGE", 100)
    folder = tmp_path / "data"
    folder.mkdir()
    write_fashion_mnist(folder, train=20, test=10)
    return folder


def test_pictures_are_decoded_once_and_mapped_with_the_same_bits(
    pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    plain = open_data(PICTURES, 0, pictures)
    first = open_data(PICTURES, 0, pictures, kept_in=folder)
    kept = sorted(path.name.partition(".")[2] for path in folder.glob("rows-*"))
    assert kept == ["safetensors", "x.npy", "x_test.npy"]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    second = open_data(PICTURES, 1, pictures, kept_in=folder)
    assert are_equal(first, plain)
    assert are_equal(second, plain)
    # a run may change its copy of the examples
    second.x.zero_()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert are_equal(open_data(PICTURES, 0, pictures, kept_in=folder), plain)
    # different images use other files
    labels = pictures / "fashion_mnist" / "train-labels-idx1-ubyte.gz"
    write_gzip(labels, gzip.decompress(labels.read_bytes())[:-1] + b"\1")
    open_data(PICTURES, 0, pictures, kept_in=folder)
    assert len(list(folder.glob("*.x.npy"))) == 2


def drop_the_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change_a_value(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))


def put_a_pickle_there(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def put_a_link_there(path: Path) -> None:
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(aside)


@pytest.mark.parametrize("ending", ["x.npy", "x_test.npy", "safetensors"])
@pytest.mark.parametrize(
    "harm",
    [Path.unlink, drop_the_last_byte, change_a_value, put_a_pickle_there, put_a_link_there],
)
def test_what_was_damaged_or_is_of_somebody_else_is_made_anew(
    harm: Callable[[Path], object], ending: str, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    plain = open_data(PICTURES, 0, pictures)
    open_data(PICTURES, 0, pictures, kept_in=folder)
    (kept,) = folder.glob(f"*.{ending}")
    whole = kept.read_bytes()
    harm(kept)
    (folder / f"{kept.name}.123.part").write_bytes(b"what a killed process left")
    assert are_equal(open_data(PICTURES, 0, pictures, kept_in=folder), plain)
    assert kept.read_bytes() == whole
    assert not kept.is_symlink()
    assert not list(folder.glob("*.part"))


write_array = np.lib.format.write_array


def write_half_and_die(file: IO[bytes], array: np.ndarray[Any, Any], **more: Any) -> None:
    """Write as `numpy.lib.format.write_array` in a process that is killed meanwhile."""
    whole = io.BytesIO()
    write_array(whole, array, allow_pickle=False)
    file.write(whole.getvalue()[: whole.tell() // 2])
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
def test_a_process_that_is_killed_while_it_keeps_rows_leaves_the_same_bits_to_the_next(
    pictures: Path, tmp_path: Path
) -> None:
    plain = open_data(PICTURES, 0, pictures)
    folder = tmp_path / "rows"

    def keep(install: Callable[[pytest.MonkeyPatch], None]) -> int:
        """Return the exit status of a child that caches examples in an empty folder."""

        def act() -> None:
            install(pytest.MonkeyPatch())  # never undone: the process ends with it
            open_data(PICTURES, 0, pictures, kept_in=folder)

        shutil.rmtree(folder, ignore_errors=True)
        return wait_for_child(start_child(act))

    def write_half(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(np.lib.format, "write_array", write_half_and_die)

    def die_at(deadly: int) -> Callable[[pytest.MonkeyPatch], None]:
        """Crash before or after a file is flushed or renamed."""
        points = Points(tmp_path, deadly)

        def install(patch: pytest.MonkeyPatch) -> None:
            patch.setattr(os, "fsync", points.around(os.fsync))
            patch.setattr(os, "replace", points.around(os.replace))

        return install

    def check() -> None:
        assert are_equal(open_data(PICTURES, 0, pictures, kept_in=folder), plain)
        assert not list(folder.glob("*.part"))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole

    open_data(PICTURES, 0, pictures, kept_in=folder)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}

    assert keep(write_half) == KILLED
    assert len(list(folder.glob("*.part"))) == 1
    check()
    deadly = 0
    while keep(die_at(deadly)) == KILLED:
        check()
        deadly += 1
    assert deadly >= 12  # three files, before and after two steps of each
    check()


def test_of_two_processes_at_once_one_reads_and_both_have_the_same_bits(
    pictures: Path, tmp_path: Path
) -> None:
    plain = open_data(PICTURES, 0, pictures)
    folder = tmp_path / "rows"
    reads = tmp_path / "reads"

    def read_slowly(*args: Any, **settings: Any) -> Dataset:
        with reads.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)  # gives the other process time to start
        return open_dataset(*args, **settings)

    def act() -> None:
        pytest.MonkeyPatch().setattr("fallow.data.open_dataset", read_slowly)
        data = open_data(PICTURES, 0, pictures, kept_in=folder)
        assert are_equal(data, plain)

    children = [start_child(act) for _ in range(2)]
    assert [wait_for_child(child) for child in children] == [WELL, WELL]
    assert len(reads.read_text().split()) == 1
