"""Outlines of named image data sets for dry runs: counts, labels, shapes, few images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.data import Dataset, load, load_outline, take_rows
from fallow.data.catalog import photos
from fallow.experiment.rows import open_data, split_rows
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.data.published import TRAIN, pack_cifar10, write_cifar10, write_fashion_mnist

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
    file = write_fashion_mnist(tmp_path) / "fashion_mnist" / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:20_000])  # of 70,000
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz .* is incomplete"):
        load("fashion_mnist", tmp_path)
    assert len(load_outline("fashion_mnist", tmp_path).x) == TRAIN


def test_a_set_that_is_quick_to_read_is_its_own_outline() -> None:
    assert torch.equal(load_outline("wine").x, load("wine").x)


def test_an_outline_is_asked_for_with_the_words_of_any_other_set(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'cifar11' is not a known dataset"):
        load_outline("cifar11", tmp_path)
    with pytest.raises(ValueError, match="data set 'cifar10': the file"):
        load_outline("cifar10", tmp_path)
    with pytest.raises(ValueError, match="cifar10 is a named dataset: label='sick' does"):
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
    monkeypatch.setattr(photos, "SMALL", (15, 5))
    whole = load("cifar10", pack_cifar10(write_cifar10(tmp_path)))
    small = load("cifar10_small", tmp_path)
    assert small.name == "cifar10_small"
    assert torch.equal(small.x, whole.x[:15]) and torch.equal(small.y, whole.y[:15])
    assert torch.equal(small.x_test, whole.x_test[:5])
    assert torch.equal(small.y_test, whole.y_test[:5])
