"""Outlines of named image data sets for dry runs: counts, labels, shapes, few images."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.data import Dataset, load, load_outline, take_rows
from fallow.data.catalog import files
from fallow.data.catalog.files import read_first
from fallow.experiment.rows import open_data, split_rows
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

TRAIN = 90
TEST = 30


def write_packed(path: Path, array: np.ndarray[Any, Any], packed: slice) -> None:
    with lzma.open(path.with_suffix(".whole"), "wb") as stream:
        np.lib.format.write_array(stream, array, allow_pickle=False)
    path.write_bytes(path.with_suffix(".whole").read_bytes()[packed])


def write_cifar10(folder: Path, packed: slice = slice(None)) -> Path:
    """Write a small CIFAR-10; ``packed`` selects the bytes present in its image files."""
    draw = np.random.default_rng(0)
    for name, n in (("train_a", TRAIN - 40), ("train_b", 40), ("test", TEST)):
        pixels = draw.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        write_packed(folder / f"cifar10_{name}.npy.xz", pixels, packed)
    np.savez(
        folder / "cifar10_labels.npz",
        y_train=np.arange(TRAIN) % 10,
        y_test=np.arange(TEST) % 10,
        class_names=np.array(list("abcdefghij")),
    )
    return folder


def write_fashion_mnist(folder: Path) -> Path:
    pixels = np.random.default_rng(0).integers(
        0, 256, (TRAIN + TEST, 28, 28), dtype=np.uint8
    )
    write_packed(folder / "fashion_mnist_images.npy.xz", pixels, slice(None))
    np.savez(
        folder / "fashion_mnist_labels.npz",
        y_train=np.arange(TRAIN) % 10,
        y_test=np.arange(TEST) % 10,
        class_names=np.array(list("abcdefghij")),
    )
    return folder


WRITERS = {"cifar10": write_cifar10, "fashion_mnist": write_fashion_mnist}


@pytest.mark.parametrize("name", WRITERS)
def test_an_outline_has_the_labels_counts_and_shapes_of_the_set(
    tmp_path: Path, name: str
) -> None:
    folder = WRITERS[name](tmp_path)
    whole = load(name, folder)
    outline = load_outline(name, folder)
    assert outline.x.shape == whole.x.shape
    assert outline.x_test.shape == whole.x_test.shape
    assert torch.equal(outline.y, whole.y) and torch.equal(outline.y_test, whole.y_test)
    assert outline.classes == whole.classes and outline.notes == whole.notes
    assert torch.equal(outline.x[TRAIN - 1], whole.x[0])
    assert outline.x.untyped_storage().nbytes() == whole.x[0].numel() * 4


def test_several_pictures_stand_for_all_one_after_the_other(tmp_path: Path) -> None:
    whole = load("cifar10", write_cifar10(tmp_path))
    outline = load_outline("cifar10", tmp_path, first=7)
    assert torch.equal(outline.x, whole.x[torch.arange(TRAIN) % 7])


def test_pictures_behind_the_first_are_not_unpacked(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path, packed=slice(0, 20_000))  # of 30,000 bytes and more
    with pytest.raises(ValueError, match=r"cifar10_train_a.npy.xz .* is incomplete"):
        load("cifar10", folder)
    outline = load_outline("cifar10", folder)
    assert len(outline.x) == TRAIN


def test_a_set_that_is_quick_to_read_is_its_own_outline() -> None:
    assert torch.equal(load_outline("wine").x, load("wine").x)


def test_an_outline_is_asked_for_with_the_words_of_any_other_set(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'cifar11' is not a known dataset"):
        load_outline("cifar11", tmp_path)
    with pytest.raises(ValueError, match="data set 'cifar10': the file"):
        load_outline("cifar10", tmp_path)
    with pytest.raises(ValueError, match="has no column 'sick'"):
        open_data(
            ExperimentConfig("a", data="cifar10", label="sick"), 0, tmp_path, outline=1
        )


def test_sites_have_the_rows_that_they_will_have(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    config = ExperimentConfig("a", data="cifar10", sites=3, rows=60, partition=Spec("iid"))
    outline = open_data(config, 5, folder, outline=1)
    whole = open_data(config, 5, folder)
    assert torch.equal(outline.y, whole.y)
    there = split_rows(config, whole, 5)
    for name, rows in split_rows(config, outline, 5).items():
        assert np.array_equal(rows, there[name])


def test_an_array_of_objects_is_not_read(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "a.npy.xz", "wb") as stream:
        np.lib.format.write_array(stream, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"is damaged: .* the type object"):
        read_first(tmp_path, "a.npy.xz", 1)


@pytest.mark.parametrize("at", [torch.tensor([3, 0]), torch.tensor([True] + [False] * 4)])
def test_rows_are_taken_as_by_an_index(at: torch.Tensor) -> None:
    one = torch.arange(6.0).view(1, 2, 3).expand(5, 2, 3)
    several = torch.arange(30.0).view(5, 2, 3)
    assert torch.equal(take_rows(one, at), one[at])
    assert torch.equal(take_rows(several, at), several[at])


def test_a_bad_pixel_in_the_only_picture_is_found() -> None:
    x = torch.full((1, 1, 2, 2), float("inf")).expand(4, 1, 2, 2)
    y = torch.tensor([0, 1, 0, 1])
    with pytest.raises(ValueError, match="not finite"):
        Dataset("a", x, y, x[:1], y[:1], classes=("a", "b"))


def test_the_small_cifar10_has_the_first_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SMALL", (50, 20))
    whole = load("cifar10", write_cifar10(tmp_path))
    small = load("cifar10_small", tmp_path)
    assert small.name == "cifar10_small"
    assert torch.equal(small.x, whole.x[:50]) and torch.equal(small.y, whole.y[:50])
    assert torch.equal(small.x_test, whole.x_test[:20])
    assert torch.equal(small.y_test, whole.y_test[:20])
