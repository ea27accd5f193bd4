"""A large table is read once for all seeds of a study."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.data import open_dataset
from fallow.data.dataset import Dataset
from fallow.experiment import kept_rows
from fallow.experiment.kept_rows import HeldRows
from fallow.experiment.rows import open_data
from fallow.settings.recipe import Recipe
from fallow.storage.files import load_tree, save_tree


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
    monkeypatch.setattr(kept_rows, "LARGE", 100)
    path = tmp_path / "t.csv"
    rows = [
        f"{i * 0.7:.1f},{('mild', 'grave', '')[i % 3]},{'ab'[i % 2]},{i // 2 % 2}"
        for i in range(40)
    ]
    rows[4] = f",{rows[4].split(',', 1)[1]}"
    path.write_text("\n".join(["dose,kind,ward,y", *rows]) + "\n")
    recipe = Recipe("t", data=str(path), label="y", site="ward")
    folder = tmp_path / "rows"
    read = open_data(recipe, 0, kept_in=folder)
    (kept,) = folder.glob("*.safetensors")
    assert are_equal(open_data(recipe, 0, kept_in=folder), read)
    assert are_equal(open_data(recipe, 0), read)
    # it is this file that the second call has read
    tree = load_tree(kept, folder)
    save_tree(kept, {**tree, "notes": ["from beside the run"]})
    assert open_data(recipe, 1, kept_in=folder).notes == ("from beside the run",)
    # another content or another setting is another file
    path.write_text(path.read_text() + "3.3,mild,a,1\n")
    assert len(open_data(recipe, 0, kept_in=folder).x) + 9 >= 40
    open_data(Recipe("t", data=str(path), label="y", drop=("kind",)), 0, kept_in=folder)
    assert len(list(folder.glob("*.safetensors"))) == 3


def test_small_tables_and_named_sets_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("dose,y\n" + "\n".join(f"{i * 0.5},{i % 2}" for i in range(20)))
    open_data(Recipe("t", data=str(path), label="y"), 0, kept_in=tmp_path / "rows")
    open_data(Recipe("iris", data="iris"), 0, kept_in=tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_rows_are_read_once_for_all_seeds_while_they_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = []

    def read_counted(*args: Any, **settings: Any) -> Dataset:
        reads.append(args)
        return open_dataset(*args, **settings)

    monkeypatch.setattr("fallow.data.open_dataset", read_counted)
    held = HeldRows()
    recipe = Recipe("t", data="iris", rows=60)
    seeds = [open_data(recipe, seed, held=held) for seed in (0, 1)]
    assert len(reads) == 1
    assert not torch.equal(seeds[0].x, seeds[1].x)
    assert torch.equal(seeds[1].x, open_data(recipe, 1).x)
    open_data(Recipe("t", data="wine"), 0, held=held)
    assert open_data(recipe, 0, held=held).name == "iris"
    assert len(reads) == 4
    monkeypatch.setattr(kept_rows, "MOST_HELD", 100)
    large = HeldRows()
    for seed in (0, 1):
        open_data(recipe, seed, held=large)
    assert len(reads) == 6
