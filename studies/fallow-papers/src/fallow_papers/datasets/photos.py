"""CIFAR-100 and SVHN, from the files that their authors publish; neither is a pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fallow.data.catalog.files import (
    Array,
    find_file,
    normalize_images,
    to_labels,
)
from fallow.data.dataset import Dataset, drop_leaks
from fallow_papers.datasets.formats import read_mat

# mean and standard deviation by channel of pixels / 255
CIFAR100_SCALE = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
SVHN_SCALE = ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
RECORD = 2 + 3 * 32 * 32  # bytes: coarse label, fine label, red, green and blue planes


def read_cifar100(folder: Path | None) -> Dataset:
    """Read CIFAR-100 with its 100 fine classes, from the unpacked ``cifar-100-binary``."""
    x, y = _records(find_file(folder, "cifar-100-binary/train.bin"))
    x_test, y_test = _records(find_file(folder, "cifar-100-binary/test.bin"))
    dataset = Dataset(
        name="cifar100",
        x=normalize_images(x, CIFAR100_SCALE),
        y=to_labels(y),
        x_test=normalize_images(x_test, CIFAR100_SCALE),
        y_test=to_labels(y_test),
        classes=_class_names(folder),
    )
    return drop_leaks(dataset)


def _records(path: Path) -> tuple[Array, Array]:
    """Return pixels (n, 32, 32, 3) and fine labels (n,) of a file of records."""
    raw = np.fromfile(path, dtype=np.uint8)
    if len(raw) == 0 or len(raw) % RECORD:
        raise ValueError(
            f"{path.name} has {len(raw)} bytes, which is not a multiple of {RECORD}, the "
            "size of a record; unpack cifar-100-binary.tar.gz again"
        )
    records = raw.reshape(-1, RECORD)
    fine = records[:, 1]
    if fine.max() > 99:
        raise ValueError(
            f"{path.name} has the label {fine.max()}, outside of 0..99, so it is not "
            "CIFAR-100's binary file"
        )
    planes = records[:, 2:].reshape(-1, 3, 32, 32)  # red, green, blue
    return planes.transpose(0, 2, 3, 1), fine


def _class_names(folder: Path | None) -> tuple[str, ...]:
    """Return the names in the file next to the records, or numbers without such a file."""
    numbers = tuple(str(c) for c in range(100))
    if folder is None:
        return numbers
    path = folder / "cifar-100-binary/fine_label_names.txt"
    if not path.is_file():
        return numbers
    names = tuple(path.read_text(encoding="utf-8").split())
    if not names:
        return numbers
    if len(names) != 100:
        raise ValueError(
            f"fine_label_names.txt has {len(names)} class names instead of 100; remove it"
        )
    return names


def read_svhn(folder: Path | None) -> Dataset:
    """Read Street View House Numbers (cropped digits), without the "extra" images."""
    x, y = _digits(find_file(folder, "train_32x32.mat"))
    x_test, y_test = _digits(find_file(folder, "test_32x32.mat"))
    dataset = Dataset(
        name="svhn",
        x=normalize_images(x, SVHN_SCALE),
        y=to_labels(y),
        x_test=normalize_images(x_test, SVHN_SCALE),
        y_test=to_labels(y_test),
        classes=tuple("0123456789"),
    )
    return drop_leaks(dataset)


def _digits(path: Path) -> tuple[Array, Array]:
    """Return pixels (n, 32, 32, 3) and digits (n,) of a MATLAB file, in which the digit 0
    is 10.
    """
    mat = read_mat(path, ("X", "y"), "SVHN's cropped digits")
    pixels = mat["X"]  # (32, 32, 3, n)
    digit = mat["y"].reshape(-1)
    is_digit = np.isin(digit, np.arange(1, 11))
    if pixels.shape != (32, 32, 3, len(digit)) or not is_digit.all():
        raise ValueError(
            f"{path.name} has pixels of shape {pixels.shape} for {len(digit)} digits, not "
            "(32, 32, 3, n) for n digits of 1..10, so it is not SVHN's cropped file"
        )
    return np.moveaxis(pixels, 3, 0), digit % 10
