"""Names and metadata of the datasets, which the entry points of this distribution list."""

from __future__ import annotations

from functools import partial

from fallow.data.catalog.files import Reader
from fallow.data.catalog.named import CatalogEntry
from fallow_papers.datasets import photos
from fallow_papers.datasets.cinic import read_cinic10
from fallow_papers.datasets.digit_angle import read_digit_angle
from fallow_papers.datasets.femnist import femnist_reader
from fallow_papers.datasets.fetch import fetch_file
from fallow_papers.datasets.published import (
    published_reader,
    read_diamonds_onehot,
    table_reader,
)
from fallow_papers.datasets.sources import SOURCES


def _images(
    name: str,
    *files: str,
    rows: int,
    shape: tuple[int, ...],
    classes: int,
    read: Reader,
    sites: str = "",
    optional_files: tuple[str, ...] = (),
) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        task="classification",
        rows=rows,
        shape=shape,
        classes=classes,
        sites=sites,
        files=files,
        optional_files=optional_files,
        read=read,
    )


def _table(
    name: str,
    file: str,
    *,
    rows: int,
    columns: int,
    site: str = "",
    read: Reader | None = None,
) -> CatalogEntry:
    """Return an entry for a regression table in one file."""
    return CatalogEntry(
        name=name,
        task="regression",
        rows=rows,
        shape=(columns,),
        sites=site,
        files=(file,),
        read=read or table_reader(name, file, site),
    )


def _published(name: str, *, rows: int, columns: int, site: str = "") -> CatalogEntry:
    """Return an entry for a published table, with the number of rows and columns in FALE's
    Table 1.
    """
    source = SOURCES[name]
    return CatalogEntry(
        name=name,
        task="regression",
        rows=rows,
        shape=(columns,),
        sites=site,
        files=(source.file,),
        page=source.page,
        read=published_reader(name, rows, columns, site),
        fetch=partial(fetch_file, source),
    )


LIST = (
    CatalogEntry(
        name="digit_angle",
        task="regression",
        rows=1797,
        shape=(1, 8, 8),
        sites="digit",
        source="bundled",
        read=read_digit_angle,
    ),
    _images(
        "cifar100",
        "cifar-100-binary/train.bin",
        "cifar-100-binary/test.bin",
        rows=60_000,
        shape=(3, 32, 32),
        classes=100,
        read=photos.read_cifar100,
        optional_files=("cifar-100-binary/fine_label_names.txt",),
    ),
    _images(
        "cinic10",
        "cinic-10",
        rows=270_000,
        shape=(3, 32, 32),
        classes=10,
        read=read_cinic10,
    ),
    _images(
        "svhn",
        "train_32x32.mat",
        "test_32x32.mat",
        rows=99_289,
        shape=(3, 32, 32),
        classes=10,
        read=photos.read_svhn,
    ),
    _images(
        "femnist",
        "femnist/all_data_0.json",
        rows=805_263,
        shape=(1, 28, 28),
        classes=62,
        sites="writer",
        read=femnist_reader("femnist"),
    ),
    _images(
        "femnist_letters",
        "femnist/all_data_0.json",
        rows=40_000,
        shape=(1, 28, 28),
        classes=10,
        sites="writer",
        read=femnist_reader("femnist_letters", is_letters=True),
    ),
    _table("protein", "tab_protein.npz", rows=45_730, columns=9),
    _table("kegg", "tab_keggundirected.npz", rows=63_608, columns=27),
    _table("diamonds", "tab_diamonds.npz", rows=53_940, columns=9),
    _table(
        "diamonds_onehot",
        "tab_diamonds.npz",
        rows=53_940,
        columns=29,
        read=read_diamonds_onehot,
    ),
    _table("kin40k", "tab_kin40k.npz", rows=40_000, columns=8),
    _table("bike", "tab_bike.npz", rows=17_379, columns=13),
    _table("elevators", "tab_elevators.npz", rows=16_599, columns=18),
    _table("pol", "tab_pol.npz", rows=15_000, columns=26),
    _table("sarcos", "tab_sarcos4449.npz", rows=4_449, columns=21),
    _table("wine_red", "tab_wine_red.npz", rows=1_599, columns=11),
    _table(
        "california",
        "tab_california_housing.npz",
        rows=20_640,
        columns=9,
        site="coast zone",
    ),
    _table("parkinsons", "tab_parkinsons.npz", rows=5_875, columns=19, site="patient"),
    _table("school", "school.npz", rows=15_362, columns=28, site="school"),
    _published("ct", rows=53_500, columns=379, site="patient"),
    _published("kegg_undirected", rows=64_608, columns=27),
    _published("online_video", rows=68_784, columns=26),
    _published("wec_sydney", rows=72_000, columns=48),
    _published("sarcos_full", rows=44_484, columns=21),
    _published("stock", rows=59_049, columns=9),
    _published("mlr_knn_rng", rows=111_753, columns=132),
)
ENTRIES = {entry.name: entry for entry in LIST}
