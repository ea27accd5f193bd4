"""Reading of named datasets."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from fallow.catalog import (
    CatalogEntry,
    DataFiles,
    data_folder,
    find_by_path,
    find_entry,
    find_files,
)
from fallow.core.refusal import explain_errors
from fallow.data.dataset import Dataset

Reader = Callable[[DataFiles], Dataset]
"""Reader of one edition of a dataset."""


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a named dataset from ``data_dir`` or the folder FALLOW_DATA.

    Images are normalized by published constants. Classification tables are standardized.
    Regression tables are unscaled; missing values are imputed and marked by a column, or
    their rows are left out. ``notes`` describes all changes. Datasets without official test
    examples have a 20 % test set, fixed by the name. Raises ValueError if the name is
    unknown or a file is missing.

    >>> load("wine").x_test.shape
    torch.Size([36, 13])
    """
    return _load_entry(find_entry(name), data_folder(data_dir))


def load_outline(name: str, data_dir: str | Path | None = None, first: int = 1) -> Dataset:
    """Return a named dataset in which its first images are repeated in place of all.

    Numbers of examples, labels, shapes and notes agree with `load`, except for a test image
    that is also a training image. Datasets that are quick to read are returned as they are.
    """
    return _load_entry(find_entry(name), data_folder(data_dir), first)


def load_path(path: Path) -> Dataset | None:
    """Load the images of a named dataset by the path of its file or folder.

    Pixels are normalized as by name. Return None for any other path.
    """
    match = find_by_path(path)
    if match is None:
        return None
    return _load_entry(*match)


def _load_entry(
    entry: CatalogEntry, folder: Path | None, first: int | None = None
) -> Dataset:
    with explain_errors(f"data set {entry.name!r}: "):
        files = find_files(entry, folder, first)
        return find_reader(files)(files)


def find_reader(files: DataFiles) -> Reader:
    """Return the reader of an edition; importing it may import torch and other packages."""
    module, _, function = files.edition.read.partition(":")
    reader: Reader = getattr(importlib.import_module(module), function)
    return reader
