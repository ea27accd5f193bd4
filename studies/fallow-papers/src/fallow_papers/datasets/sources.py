"""Public regression tables: their files, and the columns that are used.

Most tables are those of FALE's Table 1 (Tang et al., 2025).  Columns and the treatment of missing
values are then those of the bmdal_reg benchmark (Holzmüller et al., 2023), whose shapes that table
prints.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from fallow.catalog import PublishedFile

UCI = "https://archive.ics.uci.edu"
OPENML = "https://www.openml.org"
GPML = "https://gaussianprocess.org/gpml/data"
UCI_DATASETS = "https://github.com/treforevans/uci_datasets"
RAW_UCI_DATASETS = (
    "https://raw.githubusercontent.com/treforevans/uci_datasets/"
    "d5061ad458be7be9b2d7c19af525c57e2b3715ef"
)
CC_BY = "CC BY 4.0"


@final
@dataclass(frozen=True, kw_only=True)
class TableSource:
    """Published table: its file, and how its columns are read.

    The suffix of the file that is read determines its format: .arff, .mat, .parquet, otherwise
    separated text.
    """

    file: PublishedFile  # with at most one member
    page: str  # that describes it
    target: str  # the column to predict
    drop: tuple[str, ...] = ()  # columns that are neither features nor target
    texts: tuple[str, ...] = ()  # columns of texts, made one-hot; in .arff the file says so
    levels: tuple[
        tuple[str, tuple[str, ...]], ...
    ] = ()  # texts that become numbers 0, 1, ...
    # columns whose texts become other texts, such as the day of a date
    convert: tuple[tuple[str, Callable[[str], str]], ...] = ()
    site: str = ""  # the column of natural sites
    columns: tuple[str, ...] = ()  # their names, where the file has no header
    separator: str = ","
    matrix: str = ""  # of a .mat
    keeps_all: bool = False  # constant columns, and missing values, which are imputed
    license: str = "none stated"
    citation: str = ""
    note: str = ""  # for the notes of the dataset


def _uci_file(number: int, archive: str, member: str) -> PublishedFile:
    return PublishedFile(
        name=f"{archive}.zip",
        url=f"{UCI}/static/public/{number}/{archive}.zip",
        members=(member,),
    )


def _openml_file(number: int) -> PublishedFile:
    return PublishedFile(
        name=f"openml_{number}.arff", url=f"{OPENML}/api/v1/json/data/{number}"
    )


def _openml(number: int, target: str, drop: tuple[str, ...] = ()) -> TableSource:
    return TableSource(
        file=_openml_file(number),
        page=f"{OPENML}/d/{number}",
        target=target,
        drop=drop,
    )


def _numbered(name: str, n: int) -> tuple[str, ...]:
    """Return ``name1`` to ``name<n>``."""
    return tuple(f"{name}{i}" for i in range(1, n + 1))


def _prepared(name: str, features: int, citation: str) -> TableSource:
    """Return a table of uci_datasets: no header, centered columns, the target last."""
    names = tuple(f"x{c}" for c in range(features))
    return TableSource(
        file=PublishedFile(
            name=f"{name}/data.csv.gz", url=f"{RAW_UCI_DATASETS}/{name}/data.csv.gz"
        ),
        page=UCI_DATASETS,
        target="target",
        columns=(*names, "target"),
        keeps_all=True,
        citation=citation,
    )


def _sarcos(name: str) -> TableSource:
    return TableSource(
        file=PublishedFile(name=f"{name}.mat", url=f"{GPML}/{name}.mat"),
        page=f"{GPML}/",
        target="torque1",
        drop=_numbered("torque", 7)[1:],
        matrix=name,
        columns=(
            *_numbered("position", 7),
            *_numbered("velocity", 7),
            *_numbered("acceleration", 7),
            *_numbered("torque", 7),
        ),
        citation="Vijayakumar, Schaal: Locally weighted projection regression, ICML 2000",
    )


def _read_day(date: str) -> str:
    """Return the day of the month of a date such as 2011-01-31."""
    return date.strip().rpartition("-")[2]


def _take_logarithm(number: str) -> str:
    return repr(math.log(float(number)))


GRADES = (
    ("cut", ("Fair", "Good", "Very Good", "Premium", "Ideal")),
    ("color", tuple("DEFGHIJ")),
    ("clarity", ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")),
)
"""Grades of diamonds, from 0: worst to best for cut and clarity, best to worst for color."""
TORGO = "Torgo: regression datasets"
SOURCES = {
    "protein": TableSource(
        file=_uci_file(
            265, "physicochemical+properties+of+protein+tertiary+structure", "CASP.csv"
        ),
        page=f"{UCI}/dataset/265",
        target="RMSD",
        keeps_all=True,
        license=CC_BY,
        citation="Rana: Physicochemical Properties of Protein Tertiary Structure, 2013 (UCI)",
    ),
    "diamonds": TableSource(
        file=PublishedFile(
            name="diamonds.csv",
            url="https://raw.githubusercontent.com/mwaskom/seaborn-data/master/diamonds.csv",
        ),
        page="https://ggplot2.tidyverse.org/reference/diamonds.html",
        target="price",
        levels=GRADES,
        keeps_all=True,
        license="MIT (ggplot2)",
        citation="Wickham: ggplot2, 2016",
    ),
    "kegg": _prepared(
        "keggundirected", 27, "Naeem, Asghar: KEGG Metabolic Reaction Network, 2011 (UCI)"
    ),
    "kin40k": _prepared(
        "kin40k", 8, "Schwaighofer, Tresp: Transductive and inductive methods, NIPS 2002"
    ),
    "elevators": _prepared("elevators", 18, TORGO),
    "pol": _prepared("pol", 26, TORGO),
    "bike": TableSource(
        file=_uci_file(275, "bike+sharing+dataset", "hour.csv"),
        page=f"{UCI}/dataset/275",
        target="cnt",
        drop=("instant", "casual", "registered"),
        convert=(("dteday", _read_day), ("cnt", _take_logarithm)),
        keeps_all=True,
        license=CC_BY,
        citation="Fanaee-T, Gama: Event labeling combining ensemble detectors, 2014",
    ),
    "sarcos": _sarcos("sarcos_inv_test"),
    "wine_red": TableSource(
        file=_uci_file(186, "wine+quality", "winequality-red.csv"),
        page=f"{UCI}/dataset/186",
        target="quality",
        separator=";",
        keeps_all=True,
        license=CC_BY,
        citation="Cortez et al.: Modeling wine preferences, 2009",
    ),
    "california": TableSource(
        file=PublishedFile(
            name="housing.csv",
            url="https://raw.githubusercontent.com/ageron/data/main/housing/housing.csv",
        ),
        page="https://github.com/ageron/data",
        target="median_house_value",
        site="ocean_proximity",
        keeps_all=True,
        license="public domain as commonly stated",
        citation="Pace, Barry: Sparse Spatial Autoregressions, 1997",
    ),
    "parkinsons": TableSource(
        file=_uci_file(189, "parkinsons+telemonitoring", "parkinsons_updrs.data"),
        page=f"{UCI}/dataset/189",
        target="total_UPDRS",
        drop=("motor_UPDRS",),
        site="subject#",
        keeps_all=True,
        license=CC_BY,
        citation="Tsanas et al.: Accurate telemonitoring of Parkinson's disease, 2010",
    ),
    "ct": TableSource(
        file=_uci_file(
            206,
            "relative+location+of+ct+slices+on+axial+axis",
            "slice_localization_data.csv",
        ),
        page=f"{UCI}/dataset/206",
        target="reference",
        site="patientId",
        license=CC_BY,
        citation="Graf et al.: Relative location of CT slices on axial axis, 2011 (UCI)",
    ),
    "kegg_undirected": TableSource(
        file=_uci_file(
            221,
            "kegg+metabolic+reaction+network+undirected",
            "Reaction Network (Undirected).data",
        ),
        page=f"{UCI}/dataset/221",
        target="c26",
        drop=("c0",),
        columns=tuple(f"c{i}" for i in range(29)),
        license=CC_BY,
        citation="Naeem, Asghar: KEGG Metabolic Reaction Network, 2011 (UCI)",
    ),
    "online_video": TableSource(
        file=_uci_file(
            335,
            "online+video+characteristics+and+transcoding+time+dataset",
            "transcoding_mesurment.tsv",
        ),
        page=f"{UCI}/dataset/335",
        target="utime",
        drop=("id", "umem"),
        texts=("codec", "o_codec"),
        separator="\t",
        license=CC_BY,
        citation="Deneke et al.: Video transcoding time prediction, 2014 (UCI)",
    ),
    "wec_sydney": TableSource(
        file=_uci_file(494, "wave+energy+converters", "Sydney_Data.csv"),
        page=f"{UCI}/dataset/494",
        target="total",
        columns=(
            *_numbered("X", 16),
            *_numbered("Y", 16),
            *_numbered("P", 16),
            "total",
        ),
        license=CC_BY,
        citation="Neshat et al.: Wave Energy Converters, 2018 (UCI)",
    ),
    "sarcos_full": _sarcos("sarcos_inv"),
    "stock": _openml(1200, "company10"),
    "mlr_knn_rng": _openml(42454, "perf.logloss", drop=("perf.mmce",)),
}
SOURCES["diamonds_onehot"] = dataclasses.replace(
    SOURCES["diamonds"],
    texts=tuple(column for column, _ in GRADES),
    note="cut, color and clarity became 23 one-hot columns, of which the 3 for missing values are "
    "all 0; the 29 columns have rank 24, also with an intercept",
)
OTHER_FILES = {
    "protein": (
        _openml_file(42903),
        PublishedFile(name="openml_42903.pq"),
    ),
    "diamonds": (
        _openml_file(42225),
        PublishedFile(name="openml_42225.pq"),
    ),
}
"""Files with the same rows and columns from other publishers."""
OTHER_FILES["diamonds_onehot"] = OTHER_FILES["diamonds"]
