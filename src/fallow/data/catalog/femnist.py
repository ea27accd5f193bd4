"""Handwritten characters by writer (FEMNIST), from the files that LEAF's preprocessing writes."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from fallow.data.catalog.bundled import Reader
from fallow.data.catalog.files import Array
from fallow.data.dataset import Dataset
from fallow.data.partition.holdout import hold_out

FOLDER = "femnist"
SIDE = 28
CLASSES = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)
LETTERS = slice(36, 46)  # a to j, the ten classes of DPFL's comparison
MOST = 4000  # images of a letter


def femnist_reader(name: str, is_letters: bool = False) -> Reader:
    """A reader of the files ``femnist/*.json``; writers are the groups.

    ``letters``: the ten classes a to j and of each at most 4,000 images, the first of the files in
    the order of their names.  Pixels are gray in [0, 1], as LEAF has them; the ink is dark.

    Notes
    -----
    20 % of the distinct images are the test set, where the public generator sets 10 % of each
    site's aside; `fallow.data.ClassWindows` shares out the others as it does.  That generator
    compares the wrong way around where a class is used up and gives many sites the same images, so
    that nearly all test images of one site train others.  Here no image is used twice, and copies
    of one stay on one side.
    """

    def read(folder: Path | None) -> Dataset:
        parts = list(_rows_by_writer(folder, is_letters))
        x = np.concatenate([pixels for pixels, _, _ in parts])
        y = np.concatenate([labels for _, labels, _ in parts])
        writer_of_row = np.concatenate([writer for _, _, writer in parts])
        writers, site = np.unique(writer_of_row, return_inverse=True)
        pixels = torch.from_numpy(x.reshape(-1, 1, SIDE, SIDE))
        classes = CLASSES
        if is_letters:
            classes = CLASSES[LETTERS]
        train, test = hold_out(name, pixels, y)
        return Dataset(
            name=name,
            x=pixels[train],
            y=torch.from_numpy(y[train]),
            x_test=pixels[test],
            y_test=torch.from_numpy(y[test]),
            classes=classes,
            groups=torch.from_numpy(site[train]),
            groups_test=torch.from_numpy(site[test]),
            group_names=tuple(f"writer {writer}" for writer in writers),
        )

    return read


def _rows_by_writer(
    folder: Path | None, is_letters: bool
) -> Iterator[tuple[Array, Array, Array]]:
    """Pixels (n, 784), labels (n,) and writers (n,) of every writer; of letters, no more than
    `MOST` of each."""
    left = np.full(len(CLASSES[LETTERS]), MOST)
    for path in _files(folder):
        for writer, x, y in _writers(path):
            if is_letters:
                y = y - LETTERS.start
                keep = _first(y, left)
                x = x[keep]
                y = y[keep]
            yield x, y, np.full(len(y), writer)


def _first(y: Array, left: Array) -> Array:
    """Which rows are among the first ``left[c]`` of their class; ``left`` is brought up to date."""
    keep = np.zeros(len(y), dtype=bool)
    for c in range(len(left)):
        rows = np.flatnonzero(y == c)[: left[c]]
        keep[rows] = True
        left[c] -= len(rows)
    return keep


def _files(folder: Path | None) -> list[Path]:
    where = "no data folder is given"
    if folder is not None:
        values = sorted((folder / FOLDER).glob("*.json"))
        if values:
            return values
        where = f"{folder / FOLDER} has none"
    raise ValueError(
        f"the .json files of LEAF's FEMNIST (all_data_0.json ...) are needed, and {where}; set "
        f"--data-dir or FALLOW_DATA to the folder that holds {FOLDER}/"
    )


def _writers(path: Path) -> Iterator[tuple[str, Array, Array]]:
    """Writer, pixels (n, 784) and labels (n,) of one file."""
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
            f"{path.name} is not as LEAF writes it ({error}); run its preprocess.sh again"
        ) from error
