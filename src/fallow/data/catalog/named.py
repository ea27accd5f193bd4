"""Reading of named datasets."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from fallow.catalog import (
    CatalogEntry,
    DataFiles,
    data_folder,
    find_entry,
    find_files,
    list_entries,
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
    for entry in list_entries():
        folder = _find_base(entry, path) if len(entry.shape) == 3 else None
        if folder is not None:
            return _load_entry(entry, folder)
    return None


def _find_base(entry: CatalogEntry, path: Path) -> Path | None:
    """Return the data folder in which ``path`` is a file or folder of a whole edition."""
    whole = path.absolute()
    for edition in entry.editions:
        names = [file.name for file in edition.files]
        names += [member for file in edition.files for member in file.members]
        names += [str(PurePosixPath(name).parent) for name in names]
        for name in names:
            parts = PurePosixPath(name).parts
            if not parts or whole.parts[-len(parts) :] != parts:
                continue
            base = whole.parents[len(parts) - 1]
            if _is_whole(entry, base):
                return base
    return None


def _is_whole(entry: CatalogEntry, folder: Path) -> bool:
    try:
        find_files(entry, folder)
    except ValueError:
        return False
    return True


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
