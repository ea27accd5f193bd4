"""Named datasets: the catalog, and ``load``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, final

from fallow.core.refusal import explain_errors
from fallow.core.suggestions import require_known
from fallow.data.catalog import files, photos
from fallow.data.catalog.bundled import Reader, bundled_reader, read_digit_angle
from fallow.data.catalog.cinic import read_cinic10
from fallow.data.catalog.femnist import femnist_reader
from fallow.data.catalog.published import published_reader, read_diamonds_onehot
from fallow.data.catalog.sources import SOURCES, TableSource
from fallow.data.dataset import Dataset, Task

Outline = Callable[[Path | None, int], Dataset]
"""Reader of a dataset in which the first images are repeated in place of all, which is
fast.
"""


@final
@dataclass(frozen=True)
class CatalogEntry:
    """Metadata of a named dataset, available before it is read."""

    name: str
    task: Task
    rows: int  # training and test examples, in the source
    shape: tuple[int, ...]  # of one example, as loaded
    classes: int  # 0 for regression
    groups: str  # description of the natural sites, or ""
    source: Literal["bundled", "file"]
    files: tuple[str, ...] = ()
    optional_files: tuple[str, ...] = ()  # files that are read if present
    published: TableSource | None = None  # where `fetch` finds the file
    read: Reader = field(kw_only=True, repr=False)
    outline: Outline | None = field(default=None, kw_only=True, repr=False)


def _bundled_entry(
    name: str, *, rows: int, shape: tuple[int, ...], classes: int
) -> CatalogEntry:
    """Return a dataset of scikit-learn; ``classes`` is 0 for regression."""
    task: Task = "regression"
    if classes:
        task = "classification"
    return CatalogEntry(
        name,
        task=task,
        rows=rows,
        shape=shape,
        classes=classes,
        groups="",
        source="bundled",
        read=bundled_reader(name),
    )


def _class_entry(
    name: str,
    *,
    rows: int,
    shape: tuple[int, ...],
    classes: int,
    groups: str = "",
    read: Reader,
    needed: tuple[str, ...],
    optional: tuple[str, ...] = (),
    outline: Outline | None = None,
) -> CatalogEntry:
    """Return an entry for files with classes."""
    return CatalogEntry(
        name,
        task="classification",
        rows=rows,
        shape=shape,
        classes=classes,
        groups=groups,
        source="file",
        files=needed,
        optional_files=optional,
        read=read,
        outline=outline,
    )


def _table_entry(
    name: str,
    file: str,
    *,
    rows: int,
    columns: int,
    group: str = "",
    read: Reader | None = None,
) -> CatalogEntry:
    """Return an entry for a regression table in one file."""
    return CatalogEntry(
        name,
        task="regression",
        rows=rows,
        shape=(columns,),
        classes=0,
        groups=group,
        source="file",
        files=(file,),
        read=read or files.table_reader(name, file, group),
    )


def _published_entry(
    name: str, *, rows: int, columns: int, group: str = ""
) -> CatalogEntry:
    """Return an entry for a published table, with the number of rows and columns in FALE's
    Table 1.
    """
    source = SOURCES[name]
    table = _table_entry(
        name,
        source.file,
        rows=rows,
        columns=columns,
        group=group,
        read=published_reader(name, rows, columns, group),
    )
    return replace(table, published=source)


ENTRIES = (
    _bundled_entry("digits", rows=1797, shape=(1, 8, 8), classes=10),
    _bundled_entry("breast_cancer", rows=569, shape=(30,), classes=2),
    _bundled_entry("wine", rows=178, shape=(13,), classes=3),
    _bundled_entry("iris", rows=150, shape=(4,), classes=3),
    _bundled_entry("diabetes", rows=442, shape=(10,), classes=0),
    CatalogEntry(
        "digit_angle",
        task="regression",
        rows=1797,
        shape=(1, 8, 8),
        classes=0,
        groups="digit",
        source="bundled",
        read=read_digit_angle,
    ),
    _class_entry(
        "mnist",
        rows=70_000,
        shape=(1, 28, 28),
        classes=10,
        groups="writer",
        read=files.read_mnist,
        needed=("mnist.npz",),
    ),
    _class_entry(
        "fashion_mnist",
        rows=70_000,
        shape=(1, 28, 28),
        classes=10,
        read=files.read_fashion_mnist,
        outline=files.outline_fashion_mnist,
        needed=(
            "fashion_mnist_images.npy.xz",
            "fashion_mnist_labels.npz",
        ),
    ),
    _class_entry(
        "cifar10",
        rows=60_000,
        shape=(3, 32, 32),
        classes=10,
        read=files.read_cifar10,
        outline=files.outline_cifar10,
        needed=(
            "cifar10_train_a.npy.xz",
            "cifar10_test.npy.xz",
            "cifar10_labels.npz",
        ),
        optional=("cifar10_train_b.npy.xz",),
    ),
    _class_entry(
        "cifar100",
        rows=60_000,
        shape=(3, 32, 32),
        classes=100,
        read=photos.read_cifar100,
        needed=(
            "cifar-100-binary/train.bin",
            "cifar-100-binary/test.bin",
        ),
        optional=("cifar-100-binary/fine_label_names.txt",),
    ),
    _class_entry(
        "cinic10",
        rows=270_000,
        shape=(3, 32, 32),
        classes=10,
        read=read_cinic10,
        needed=("cinic-10",),
    ),
    _class_entry(
        "svhn",
        rows=99_289,
        shape=(3, 32, 32),
        classes=10,
        read=photos.read_svhn,
        needed=(
            "train_32x32.mat",
            "test_32x32.mat",
        ),
    ),
    _class_entry(
        "femnist",
        rows=805_263,
        shape=(1, 28, 28),
        classes=62,
        groups="writer",
        read=femnist_reader("femnist"),
        needed=("femnist/all_data_0.json",),
    ),
    _class_entry(
        "femnist_letters",
        rows=40_000,
        shape=(1, 28, 28),
        classes=10,
        groups="writer",
        read=femnist_reader("femnist_letters", is_letters=True),
        needed=("femnist/all_data_0.json",),
    ),
    _class_entry(
        "har",
        rows=10_299,
        shape=(90,),
        classes=6,
        groups="person",
        read=files.read_har,
        needed=("har_features.npz",),
    ),
    _class_entry(
        "heart",
        rows=920,
        shape=(23,),
        classes=2,
        groups="hospital",
        read=files.read_heart,
        needed=("heart_disease.npz",),
    ),
    _table_entry("protein", "tab_protein.npz", rows=45_730, columns=9),
    _table_entry("kegg", "tab_keggundirected.npz", rows=63_608, columns=27),
    _table_entry("diamonds", "tab_diamonds.npz", rows=53_940, columns=9),
    _table_entry(
        "diamonds_onehot",
        "tab_diamonds.npz",
        rows=53_940,
        columns=29,
        read=read_diamonds_onehot,
    ),
    _table_entry("kin40k", "tab_kin40k.npz", rows=40_000, columns=8),
    _table_entry("bike", "tab_bike.npz", rows=17_379, columns=13),
    _table_entry("elevators", "tab_elevators.npz", rows=16_599, columns=18),
    _table_entry("pol", "tab_pol.npz", rows=15_000, columns=26),
    _table_entry("sarcos", "tab_sarcos4449.npz", rows=4_449, columns=21),
    _table_entry("wine_red", "tab_wine_red.npz", rows=1_599, columns=11),
    _table_entry(
        "california",
        "tab_california_housing.npz",
        rows=20_640,
        columns=9,
        group="coast zone",
    ),
    _table_entry(
        "parkinsons", "tab_parkinsons.npz", rows=5_875, columns=19, group="patient"
    ),
    _table_entry("school", "school.npz", rows=15_362, columns=28, group="school"),
    _published_entry("ct", rows=53_500, columns=379, group="patient"),
    _published_entry("kegg_undirected", rows=64_608, columns=27),
    _published_entry("online_video", rows=68_784, columns=26),
    _published_entry("wec_sydney", rows=72_000, columns=48),
    _published_entry("sarcos_full", rows=44_484, columns=21),
    _published_entry("stock", rows=59_049, columns=9),
    _published_entry("mlr_knn_rng", rows=111_753, columns=132),
)
CATALOG: dict[str, CatalogEntry] = {entry.name: entry for entry in ENTRIES}


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
    if name not in CATALOG or folder is None:
        return []
    entry = CATALOG[name]
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


def find_entry(name: str) -> CatalogEntry:
    """Return the entry of a named dataset; ValueError with the nearest name for any other."""
    require_known(name, CATALOG, f"{name!r} is not a known dataset")
    return CATALOG[name]


def _folder(data_dir: str | Path | None) -> Path | None:
    folder = data_dir or os.environ.get("FALLOW_DATA")
    if not folder:
        return None
    return Path(folder)
