"""Named datasets: the catalog, and ``load``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from fallow.core.extensions import find_extension, list_extensions, require_extension
from fallow.core.names import OWN, ClassKind, load_class
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import require_known
from fallow.data.catalog import files
from fallow.data.catalog.files import Reader, bundled_reader
from fallow.data.dataset import Dataset, Task

GROUP = "fallow.datasets"
"""Entry points ``name = "module:ENTRIES"``, a mapping of names to `CatalogEntry`."""
DATASET = ClassKind("dataset", group=GROUP)
Outline = Callable[[Path | None, int], Dataset]
"""Reader of a dataset in which the first images are repeated in place of all, which is
fast.
"""


@final
@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """Metadata of a named dataset, available before it is read."""

    name: str
    task: Task
    rows: int  # training and test examples, in the source
    shape: tuple[int, ...]  # of one example, as loaded
    classes: int = 0  # 0 for regression
    sites: str = ""  # description of the natural sites
    source: Literal["bundled", "file"] = "file"
    files: tuple[str, ...] = ()
    optional_files: tuple[str, ...] = ()  # files that are read if present
    page: str | None = None  # web page of a file that `fetch` downloads
    read: Reader = field(repr=False)
    outline: Outline | None = field(default=None, repr=False)
    fetch: Callable[[Path], Path] | None = field(default=None, repr=False)


def _bundled_entry(
    name: str, *, rows: int, shape: tuple[int, ...], classes: int
) -> CatalogEntry:
    """Return a dataset of scikit-learn; ``classes`` is 0 for regression."""
    task: Task = "regression"
    if classes:
        task = "classification"
    return CatalogEntry(
        name=name,
        task=task,
        rows=rows,
        shape=shape,
        classes=classes,
        source="bundled",
        read=bundled_reader(name),
    )


ENTRIES = (
    _bundled_entry("digits", rows=1797, shape=(1, 8, 8), classes=10),
    _bundled_entry("breast_cancer", rows=569, shape=(30,), classes=2),
    _bundled_entry("wine", rows=178, shape=(13,), classes=3),
    _bundled_entry("iris", rows=150, shape=(4,), classes=3),
    _bundled_entry("diabetes", rows=442, shape=(10,), classes=0),
    CatalogEntry(
        name="mnist",
        task="classification",
        rows=70_000,
        shape=(1, 28, 28),
        classes=10,
        sites="writer",
        files=("mnist.npz",),
        read=files.read_mnist,
    ),
    CatalogEntry(
        name="fashion_mnist",
        task="classification",
        rows=70_000,
        shape=(1, 28, 28),
        classes=10,
        files=("fashion_mnist_images.npy.xz", "fashion_mnist_labels.npz"),
        read=files.read_fashion_mnist,
        outline=files.read_fashion_mnist,
    ),
    CatalogEntry(
        name="cifar10",
        task="classification",
        rows=60_000,
        shape=(3, 32, 32),
        classes=10,
        files=("cifar10_train_a.npy.xz", "cifar10_test.npy.xz", "cifar10_labels.npz"),
        optional_files=("cifar10_train_b.npy.xz",),
        read=files.read_cifar10,
        outline=files.read_cifar10,
    ),
    CatalogEntry(
        name="cifar10_small",
        task="classification",
        rows=sum(files.SMALL),
        shape=(3, 32, 32),
        classes=10,
        files=("cifar10_train_a.npy.xz", "cifar10_test.npy.xz", "cifar10_labels.npz"),
        read=files.read_cifar10_small,
    ),
    CatalogEntry(
        name="har",
        task="classification",
        rows=10_299,
        shape=(90,),
        classes=6,
        sites="person",
        files=("har_features.npz",),
        read=files.read_har,
    ),
    CatalogEntry(
        name="heart",
        task="classification",
        rows=920,
        shape=(23,),
        classes=2,
        sites="hospital",
        files=("heart_disease.npz",),
        read=files.read_heart,
    ),
)
OWN_ENTRIES = {entry.name: entry for entry in ENTRIES}


def is_named(name: str) -> bool:
    """Return whether a dataset has this name, also in a distribution that is not installed.

    >>> is_named("digits"), is_named("femnist"), is_named("rows.csv")
    (True, True, False)
    """
    return name in OWN_ENTRIES or name in list_extensions(GROUP)


def find_entry(name: str) -> CatalogEntry:
    """Return the entry of a named dataset; ValueError with the nearest name for any other."""
    if name in OWN_ENTRIES:
        return OWN_ENTRIES[name]
    extensions = list_extensions(GROUP)
    require_known(name, {*OWN_ENTRIES, *extensions}, f"{name!r} is not a known dataset")
    entry: CatalogEntry = load_class(require_extension(DATASET, name), OWN, None)[name]
    return entry


def list_entries() -> list[CatalogEntry]:
    """Return all named datasets: Fallow's, then those of installed distributions."""
    extensions = list_extensions(GROUP)
    installed = [name for name in extensions if find_extension(DATASET, name)]
    return [*ENTRIES, *(find_entry(name) for name in installed)]


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
    entry = find_entry(name)
    with explain_errors(f"data set {name!r}: "):
        return entry.read(_folder(data_dir))


def load_outline(name: str, data_dir: str | Path | None = None, first: int = 1) -> Dataset:
    """Load the labels, counts and shapes of a named dataset.

    If decompressing all images is slow, the ``first`` ones are repeated in place of all.
    Other datasets are loaded completely. Raises ValueError like `load`.
    """
    entry = find_entry(name)
    if entry.outline is None:
        return load(name, data_dir)
    with explain_errors(f"data set {name!r}: "):
        return entry.outline(_folder(data_dir), first)


def source_files(name: str, data_dir: str | Path | None = None) -> list[Path]:
    """Return the files of a named dataset; for a folder of images, all of them.

    Return none if the dataset is bundled, or if its files are missing.

    >>> source_files("digits"), source_files("no such set")
    ([], [])
    """
    folder = _folder(data_dir)
    if folder is None or not is_named(name):
        return []
    entry = find_entry(name)
    values: set[Path] = set()
    for file in entry.files:
        path = folder / file
        if path.is_dir():
            values.update(path.rglob("*.png"))
            continue
        if not path.is_file():
            return []
        values.add(path)
        if path.parent != folder:  # some readers use all files of a folder
            values.update(path.parent.glob(f"*{path.suffix}"))
    for file in entry.optional_files:
        if (folder / file).is_file():
            values.add(folder / file)
    return sorted(values)


def missing_files(name: str, data_dir: str | Path | None = None) -> list[str]:
    """Return the files of a named dataset that are missing in the folder, optional ones
    included.

    >>> missing_files("cifar10", "/nowhere")[-1]
    'cifar10_train_b.npy.xz'
    """
    entry = find_entry(name)
    wanted = [*entry.files, *entry.optional_files]
    folder = _folder(data_dir)
    if folder is None:
        return wanted
    return [file for file in wanted if not (folder / file).exists()]


def fetch(name: str, data_dir: str | Path | None = None) -> Path:
    """Download the file of a named dataset to ``data_dir`` or FALLOW_DATA; return its path.

    Raises ValueError for a dataset without a published file, without a folder, and for a
    file that changed since its download, and OSError if the download fails.
    """
    entry = find_entry(name)
    if entry.fetch is None:
        reason = "put its files there by hand"
        if entry.source == "bundled":
            reason = "it comes with Fallow"
        known = ", ".join(other.name for other in list_entries() if other.fetch)
        raise ValueError(f"{name} cannot be downloaded: {reason}; available: {known}")
    folder = _folder(data_dir)
    if folder is None:
        raise ValueError("no data folder is set; set --data-dir or FALLOW_DATA to one")
    return entry.fetch(folder)


def _folder(data_dir: str | Path | None) -> Path | None:
    folder = data_dir or os.environ.get("FALLOW_DATA")
    if not folder:
        return None
    return Path(folder)
