"""CINIC-10 from a few synthetic images in its folder layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.data import Dataset, load, open_dataset
from fallow.experiment import row_cache
from fallow.experiment.rows import open_data
from fallow.settings.config import ExperimentConfig
from fallow_papers.datasets.catalog import CINIC_CLASSES as CLASSES
from fallow_papers.datasets.catalog import ENTRIES
from fallow_papers.datasets.cinic import CINIC10_SCALE
from tests.experiment.test_row_cache import are_equal

image = pytest.importorskip("PIL.Image")
PARTS = {"train": 2, "valid": 1, "test": 1}


def pixels(part: str, c: int, k: int) -> np.ndarray[Any, Any]:
    """Return (32, 32, 3) bytes."""
    return np.random.default_rng([len(part), c, k]).integers(
        0, 256, (32, 32, 3), dtype=np.uint8
    )


def write(folder: Path) -> Path:
    for part, n in PARTS.items():
        for c, name in enumerate(CLASSES):
            inside = folder / "cinic-10" / part / name
            inside.mkdir(parents=True)
            for k in range(n):
                image.fromarray(pixels(part, c, k)).save(inside / f"cifar10-{part}-{k}.png")
    return folder


def scale_pixels(raw: np.ndarray[Any, Any]) -> torch.Tensor:
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in CINIC10_SCALE)
    return (torch.from_numpy(raw).permute(2, 0, 1).float() / 255 - mean) / std


def test_training_and_validation_parts_are_one_and_the_test_part_stays_apart(
    tmp_path: Path,
) -> None:
    d = load("cinic10", write(tmp_path))
    assert d.y.tolist() == [c for c in range(10) for _ in range(2)] + list(range(10))
    assert d.y_test.tolist() == list(range(10))
    assert d.classes == CLASSES and d.sites is None
    torch.testing.assert_close(d.x[5], scale_pixels(pixels("train", 2, 1)))
    torch.testing.assert_close(d.x[23], scale_pixels(pixels("valid", 3, 0)))
    torch.testing.assert_close(d.x_test[9], scale_pixels(pixels("test", 9, 0)))
    assert tuple(d.x.shape[1:]) == ENTRIES["cinic10"].shape


def test_a_test_image_that_is_also_a_training_image_is_left_out(tmp_path: Path) -> None:
    copy = write(tmp_path) / "cinic-10" / "test" / "cat" / "cifar10-copy.png"
    image.fromarray(pixels("train", 3, 0)).save(copy)
    d = load("cinic10", tmp_path)
    assert len(d.x_test) == 10
    assert "1 test examples" in d.notes[-1]


def test_a_gray_image_has_three_equal_channels(tmp_path: Path) -> None:
    gray = write(tmp_path) / "cinic-10" / "valid" / "ship" / "cifar10-valid-0.png"
    image.fromarray(np.full((32, 32), 51, dtype=np.uint8)).save(gray)
    torch.testing.assert_close(
        load("cinic10", tmp_path).x[28], scale_pixels(np.full((32, 32, 3), 51))
    )


def test_what_is_missing_or_no_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data set 'cinic10'.* --data-dir or FALLOW_DATA"):
        load("cinic10", tmp_path)
    dog = write(tmp_path) / "cinic-10" / "valid" / "dog" / "cifar10-valid-0.png"
    image.fromarray(np.zeros((20, 32, 3), dtype=np.uint8)).save(dog)
    with pytest.raises(ValueError, match=r"valid-0\.png has 32 x 20 pixels, not 32 x 32"):
        load("cinic10", tmp_path)
    dog.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"valid-0\.png could not be read as an image"):
        load("cinic10", tmp_path)
    dog.unlink()
    with pytest.raises(ValueError, match=r"valid/dog has no \.png files"):
        load("cinic10", tmp_path)


def test_a_folder_of_pictures_is_decoded_once_until_one_of_them_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "LARGE", 100)
    monkeypatch.setattr(row_cache, "MANY", 10)
    reads = []

    def read_counted(*args: Any, **settings: Any) -> Dataset:
        reads.append(args)
        return open_dataset(*args, **settings)

    monkeypatch.setattr("fallow.data.open_dataset", read_counted)
    config = ExperimentConfig("t", data="cinic10")
    files = write(tmp_path / "data")
    folder = tmp_path / "rows"
    plain = open_data(config, 0, files)
    for seed in (0, 1):
        assert are_equal(open_data(config, seed, files, kept_in=folder), plain)
    assert len(reads) == 2
    one, two = sorted((files / "cinic-10" / "train" / "cat").iterdir())
    one.write_bytes(two.read_bytes())
    changed = open_data(config, 0, files, kept_in=folder)
    assert len(reads) == 3
    assert not torch.equal(changed.x, plain.x)
