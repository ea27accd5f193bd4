"""The named data sets: a catalogue, and ``load``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, final

from fallow.core.build import nearest
from fallow.data.catalogue import files, photos
from fallow.data.catalogue.bundled import Reader, bundled_reader
from fallow.data.catalogue.cinic import read_cinic10
from fallow.data.catalogue.diamonds import read_diamonds_onehot
from fallow.data.catalogue.digit_angle import read_digit_angle
from fallow.data.catalogue.femnist import femnist_reader
from fallow.data.catalogue.published import published_reader
from fallow.data.catalogue.sources import SOURCES, TableSource
from fallow.data.dataset import Dataset, Task


@final
@dataclass(frozen=True)
class Entry:
    """What is known about a named data set before it is read."""

    name: str
    task: Task
    rows: int  # training and test together, in the source
    shape: tuple[int, ...]  # of one row, as loaded
    classes: int  # 0 for regression
    groups: str  # what the natural sites are, or ""
    source: Literal["bundled", "file"]
    files: tuple[str, ...] = ()
    optional_files: tuple[str, ...] = ()  # read when there
    published: TableSource | None = None  # where `fetch` finds the file
    read: Reader = field(kw_only=True, repr=False)


def _bundled_entry(name: str, rows: int, shape: tuple[int, ...], classes: int) -> Entry:
    task: Task = "classification" if classes else "regression"
    return Entry(name, task, rows, shape, classes, "", "bundled", read=bundled_reader(name))


def _class_entry(
    name: str,
    rows: int,
    shape: tuple[int, ...],
    classes: int,
    groups: str,
    read: Reader,
    *needed: str,
    optional: tuple[str, ...] = (),
) -> Entry:
    return Entry(
        name,
        "classification",
        rows,
        shape,
        classes,
        groups,
        "file",
        needed,
        optional,
        read=read,
    )


def _table_entry(
    name: str,
    file: str,
    rows: int,
    columns: int,
    group: str = "",
    read: Reader | None = None,
) -> Entry:
    return Entry(
        name,
        "regression",
        rows,
        (columns,),
        0,
        group,
        "file",
        (file,),
        read=read or files.table_reader(name, file, group),
    )


def _published_entry(name: str, rows: int, columns: int, group: str = "") -> Entry:
    """A table that its source publishes; rows and columns as FALE's Table 1 prints them."""
    file = SOURCES[name].file
    table = _table_entry(
        name, file, rows, columns, group, published_reader(name, rows, columns, group)
    )
    return replace(table, published=SOURCES[name])


CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _bundled_entry("digits", 1797, (1, 8, 8), 10),
        _bundled_entry("breast_cancer", 569, (30,), 2),
        _bundled_entry("wine", 178, (13,), 3),
        _bundled_entry("iris", 150, (4,), 3),
        _bundled_entry("diabetes", 442, (10,), 0),
        Entry(
            "digit_angle",
            "regression",
            1797,
            (1, 8, 8),
            0,
            "digit",
            "bundled",
            read=read_digit_angle,
        ),
        _class_entry(
            "mnist", 70_000, (1, 28, 28), 10, "writer", files.read_mnist, "mnist.npz"
        ),
        _class_entry(
            "fashion_mnist",
            70_000,
            (1, 28, 28),
            10,
            "",
            files.read_fashion_mnist,
            "fashion_mnist_images.npy.xz",
            "fashion_mnist_labels.npz",
        ),
        _class_entry(
            "cifar10",
            60_000,
            (3, 32, 32),
            10,
            "",
            files.read_cifar10,
            "cifar10_train_a.npy.xz",
            "cifar10_test.npy.xz",
            "cifar10_labels.npz",
            optional=("cifar10_train_b.npy.xz",),
        ),
        _class_entry(
            "cifar100",
            60_000,
            (3, 32, 32),
            100,
            "",
            photos.read_cifar100,
            "cifar-100-binary/train.bin",
            "cifar-100-binary/test.bin",
            optional=("cifar-100-binary/fine_label_names.txt",),
        ),
        _class_entry("cinic10", 270_000, (3, 32, 32), 10, "", read_cinic10, "cinic-10"),
        _class_entry(
            "svhn",
            99_289,
            (3, 32, 32),
            10,
            "",
            photos.read_svhn,
            "train_32x32.mat",
            "test_32x32.mat",
        ),
        _class_entry(
            "femnist",
            805_263,
            (1, 28, 28),
            62,
            "writer",
            femnist_reader("femnist"),
            "femnist/all_data_0.json",
        ),
        _class_entry(
            "femnist_letters",
            40_000,
            (1, 28, 28),
            10,
            "writer",
            femnist_reader("femnist_letters", letters=True),
            "femnist/all_data_0.json",
        ),
        _class_entry("har", 10_299, (90,), 6, "person", files.read_har, "har_features.npz"),
        _class_entry(
            "heart", 920, (23,), 2, "hospital", files.read_heart, "heart_disease.npz"
        ),
        _table_entry("protein", "tab_protein.npz", 45_730, 9),
        _table_entry("kegg", "tab_keggundirected.npz", 63_608, 27),
        _table_entry("diamonds", "tab_diamonds.npz", 53_940, 9),
        _table_entry(
            "diamonds_onehot", "tab_diamonds.npz", 53_940, 29, read=read_diamonds_onehot
        ),
        _table_entry("kin40k", "tab_kin40k.npz", 40_000, 8),
        _table_entry("bike", "tab_bike.npz", 17_379, 13),
        _table_entry("elevators", "tab_elevators.npz", 16_599, 18),
        _table_entry("pol", "tab_pol.npz", 15_000, 26),
        _table_entry("sarcos", "tab_sarcos4449.npz", 4_449, 21),
        _table_entry("wine_red", "tab_wine_red.npz", 1_599, 11),
        _table_entry("california", "tab_california_housing.npz", 20_640, 9, "coast zone"),
        _table_entry("parkinsons", "tab_parkinsons.npz", 5_875, 19, "patient"),
        _table_entry("school", "school.npz", 15_362, 28, "school"),
        _published_entry("ct", 53_500, 379, "patient"),
        _published_entry("kegg_undirected", 64_608, 27),
        _published_entry("online_video", 68_784, 26),
        _published_entry("wec_sydney", 72_000, 48),
        _published_entry("sarcos_full", 44_484, 21),
        _published_entry("stock", 59_049, 9),
        _published_entry("mlr_knn_rng", 111_753, 132),
    )
}


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """The named data set, from files in ``data_dir`` or else in the folder FALLOW_DATA names.

    Images are normalised by published constants.  Classification tables are standardised,
    regression tables are raw except that missing values are filled and marked by a column, or
    their rows left out; ``notes`` says what changed.
    Sets without official test rows have 20 % set aside, fixed by the name.
    Raises ValueError when the name is unknown or a file is missing.

    >>> load("wine").x_test.shape
    torch.Size([36, 13])
    """
    if name not in CATALOGUE:
        raise ValueError(
            f"{name!r} is not a known data set{nearest(name, list(CATALOGUE))}"
        )
    folder = data_dir or os.environ.get("FALLOW_DATA")
    try:
        return CATALOGUE[name].read(Path(folder) if folder else None)
    except ValueError as error:
        raise ValueError(f"data set {name!r}: {error}") from error
