"""Handwritten characters by writer (FEMNIST), from the files of LEAF's preprocessing."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from fallow.catalog import DataFiles
from fallow.data.catalog.files import Array
from fallow.data.dataset import Dataset
from fallow.data.partition.shares import hold_out

SIDE = 28
CLASSES = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)
LETTER_CLASSES = slice(36, 46)  # a to j, the ten classes of DPFL's comparison
MAX_IMAGES = 4000  # images of a letter


def read_femnist(files: DataFiles) -> Dataset:
    """Read all classes of the files ``femnist/*.json``; writers are the sites."""
    return _read(files, is_letters=False)


def read_femnist_letters(files: DataFiles) -> Dataset:
    """Read the letters a to j of the files ``femnist/*.json``; writers are the sites."""
    return _read(files, is_letters=True)


def _read(files: DataFiles, is_letters: bool) -> Dataset:
    """Read the images by writer.

    ``is_letters``: only the ten classes a to j, with at most 4,000 images each, the first ones
    in the order of file names.  Pixels are gray in [0, 1], as in LEAF, and the ink is dark.

    Notes
    -----
    The test set has 20 % of the distinct images, and `fallow.data.ClassWindows` distributes
    the others like the public generator.  The generator holds out 10 % of each site's
    images.  It has an inverted comparison for exhausted classes, so it gives many sites the
    same images, and nearly all test images of one site are training images of others.  Here
    no image is used twice, and duplicates stay together.
    """
    parts = list(_rows_by_writer(files, is_letters))
    x = np.concatenate([pixels for pixels, _, _ in parts])
    y = np.concatenate([labels for _, labels, _ in parts])
    writer_of_row = np.concatenate([writer for _, _, writer in parts])
    writers, site = np.unique(writer_of_row, return_inverse=True)
    pixels = torch.from_numpy(x.reshape(-1, 1, SIDE, SIDE))
    classes = CLASSES
    if is_letters:
        classes = CLASSES[LETTER_CLASSES]
    train, test = hold_out(files.entry.name, pixels, y)
    return Dataset(
        name=files.entry.name,
        x=pixels[train],
        y=torch.from_numpy(y[train]),
        x_test=pixels[test],
        y_test=torch.from_numpy(y[test]),
        classes=classes,
        sites=torch.from_numpy(site[train]),
        sites_test=torch.from_numpy(site[test]),
        site_names=tuple(f"writer {writer}" for writer in writers),
    )


def _rows_by_writer(
    files: DataFiles, is_letters: bool
) -> Iterator[tuple[Array, Array, Array]]:
    """Return pixels (n, 784), labels (n,) and writers (n,) of every writer.

    For letters, at most `MAX_IMAGES` images of each class are returned.
    """
    first = files.find(files.edition.files[0])
    left = np.full(len(CLASSES[LETTER_CLASSES]), MAX_IMAGES)
    for path in sorted(first.parent.glob("*.json")):
        for writer, x, y in _writers(path):
            if is_letters:
                y = y - LETTER_CLASSES.start
                keep = _first(y, left)
                x = x[keep]
                y = y[keep]
            yield x, y, np.full(len(y), writer)


def _first(y: Array, left: Array) -> Array:
    """Return which examples are among the first ``left[c]`` of their class, and update
    ``left``.
    """
    keep = np.zeros(len(y), dtype=bool)
    for c in range(len(left)):
        rows = np.flatnonzero(y == c)[: left[c]]
        keep[rows] = True
        left[c] -= len(rows)
    return keep


def _writers(path: Path) -> Iterator[tuple[str, Array, Array]]:
    """Return writer, pixels (n, 784) and labels (n,) of one file."""
    try:
        written = json.loads(path.read_bytes())["user_data"]
        for writer, rows in written.items():
            x = np.asarray(rows["x"], dtype=np.float32).reshape(-1, SIDE * SIDE)
            y = np.asarray(rows["y"], dtype=np.int64)
            is_class = (y >= 0) & (y < len(CLASSES))
            if len(x) != len(y) or not is_class.all():
                raise ValueError(f"{len(x)} images and {len(y)} labels of writer {writer}")
            yield str(writer), x, y
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path.name} is not in LEAF's format ({error}); run its preprocess.sh again"
        ) from error
