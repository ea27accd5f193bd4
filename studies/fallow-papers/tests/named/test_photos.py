"""CIFAR-100 and SVHN from stubs in the published formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fallow.data import load
from fallow.data.partition.partitions import ExactDirichlet
from fallow_papers.datasets.catalog import ENTRIES
from fallow_papers.datasets.photos import CIFAR100_SCALE, SVHN_SCALE

RECORD = 3074


def pixels(n: int, seed: int) -> np.ndarray[Any, Any]:
    """Return (n, 3, 32, 32) bytes."""
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)


def write_cifar100(folder: Path, train: int = 100, test: int = 50) -> None:
    inside = folder / "cifar-100-binary"
    inside.mkdir()
    for name, n, seed in (("train", train, 0), ("test", test, 1)):
        fine = (np.arange(n, dtype=np.uint8) % 100)[:, None]
        records = np.concatenate([fine // 5, fine, pixels(n, seed).reshape(n, -1)], axis=1)
        (inside / f"{name}.bin").write_bytes(records.tobytes())


def write_svhn(folder: Path, train: int = 60, test: int = 50) -> None:
    for name, n, seed in (("train", train, 0), ("test", test, 1)):
        digits = (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]  # 1..10
        file = folder / f"{name}_32x32.mat"
        savemat(file, {"X": pixels(n, seed).transpose(2, 3, 1, 0), "y": digits})


def scale_pixels(raw: np.ndarray[Any, Any], scale: Any) -> torch.Tensor:
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in scale)
    return (torch.from_numpy(raw).float() / 255 - mean) / std


def test_cifar100_has_its_pixels_by_channel_and_its_fine_classes(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    d = load("cifar100", tmp_path)
    torch.testing.assert_close(d.x, scale_pixels(pixels(100, 0), CIFAR100_SCALE))
    torch.testing.assert_close(d.x_test, scale_pixels(pixels(50, 1), CIFAR100_SCALE))
    assert d.y.tolist() == list(range(100)) and d.y_test.tolist() == list(range(50))
    assert d.n_classes == 100 and d.classes[:2] == ("0", "1")


def test_cifar100_takes_the_names_of_classes_that_lie_beside_it(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    names = tmp_path / "cifar-100-binary" / "fine_label_names.txt"
    names.write_text("\n".join(f"thing_{c}" for c in range(100)) + "\n\n")
    assert load("cifar100", tmp_path).classes[99] == "thing_99"
    names.write_text("apple\n")
    with pytest.raises(ValueError, match="has 1 class names instead of 100"):
        load("cifar100", tmp_path)


def test_a_cifar100_file_that_is_cut_or_another_one_is_refused(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    file = tmp_path / "cifar-100-binary" / "test.bin"
    whole = file.read_bytes()
    for damaged in (whole[:-1], b""):
        file.write_bytes(damaged)
        with pytest.raises(
            ValueError,
            match=r"test.bin has [\d,]+ bytes, .* 3,074, the size of a record; unpack",
        ):
            load("cifar100", tmp_path)
    file.write_bytes(b"\xff" * RECORD)
    with pytest.raises(ValueError, match=r"label 255, outside of 0\.\.99"):
        load("cifar100", tmp_path)


def test_svhn_has_its_digits_in_order_with_ten_as_zero(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    d = load("svhn", tmp_path)
    torch.testing.assert_close(d.x, scale_pixels(pixels(60, 0), SVHN_SCALE))
    assert d.y[:11].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert d.y_test.dtype == torch.int64 and len(d.x_test) == 50
    assert d.classes == tuple("0123456789")


def test_an_svhn_file_that_is_damaged_or_another_one_is_refused(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    file = tmp_path / "test_32x32.mat"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"no matlab file", b""):
        file.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"test_32x32.mat cannot be read.*download it again"
        ):
            load("svhn", tmp_path)
    savemat(
        file, {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.zeros((4, 1), np.uint8)}
    )
    with pytest.raises(ValueError, match=r"shape \(32, 32, 3, 4\) for 4 digits, not"):
        load("svhn", tmp_path)
    savemat(file, {"Z": np.zeros(3)})
    with pytest.raises(ValueError, match="cannot be read"):
        load("svhn", tmp_path)


@pytest.mark.parametrize("name", ["cifar100", "svhn"])
def test_a_test_image_that_is_also_a_training_image_is_left_out(
    name: str, tmp_path: Path
) -> None:
    write = {"cifar100": write_cifar100, "svhn": write_svhn}[name]
    write(tmp_path)
    files = ENTRIES[name].files
    names = files[0].members or [file.name for file in files]
    train, test = (tmp_path / file for file in names)
    test.write_bytes(train.read_bytes())
    d = load(name, tmp_path)
    assert (
        len(d.x_test) == 0 and "that are also training examples were left out" in d.notes[0]
    )


@pytest.mark.parametrize("name", ["cifar100", "svhn"])
def test_a_missing_file_is_named_with_the_way_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=f"{ENTRIES[name].files[0].name} is needed, .*--data-dir"
    ):
        load(name, tmp_path)


def test_a_stub_can_be_spread_over_sites(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    d = load("cifar100", tmp_path)
    parts = ExactDirichlet(0.5).split(d.y.numpy(), 4, np.random.default_rng(0))
    assert [len(part) for part in parts] == [25] * 4
    assert ENTRIES["cifar100"].shape == tuple(d.x.shape[1:])
