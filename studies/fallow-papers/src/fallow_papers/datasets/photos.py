"""CIFAR-100 and SVHN, from the files that their authors publish; neither is a pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fallow.catalog import DataFiles
from fallow.catalog.folder import find_path
from fallow.data.catalog.files import Array, build_images, normalize_images
from fallow.data.catalog.photos import read_records
from fallow.data.dataset import Dataset
from fallow.storage.received import decode_text, read_named
from fallow_papers.datasets.formats import read_mat

# mean and standard deviation by channel of pixels / 255
CIFAR100_SCALE = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
SVHN_SCALE = ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))


def read_cifar100(files: DataFiles) -> Dataset:
    """Read CIFAR-100 with its 100 fine classes; a record has a coarse and a fine label."""
    return read_records(
        files, CIFAR100_SCALE, n_labels=2, class_names=_read_class_names(files)
    )


def _read_class_names(files: DataFiles) -> tuple[str, ...]:
    """Return the names in the file next to the records, or numbers without such a file."""
    path = find_path(files.folder, files.edition.files[1])
    names: list[str] = []
    if path is not None:
        names = decode_text(read_named(path)).split()
    if not names:
        return tuple(str(c) for c in range(100))
    if len(names) != 100:
        raise ValueError(
            f"fine_label_names.txt has {len(names)} class names instead of 100; remove it"
        )
    return tuple(names)


def read_svhn(files: DataFiles) -> Dataset:
    """Read Street View House Numbers (cropped digits), without the "extra" images."""
    train, test = (_read_digits(files.find(file)) for file in files.edition.files)
    return build_images(
        files,
        (normalize_images(train[0], SVHN_SCALE), train[1]),
        (normalize_images(test[0], SVHN_SCALE), test[1]),
        SVHN_SCALE,
    )


def _read_digits(path: Path) -> tuple[Array, Array]:
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
