"""Sources of the regression tables in FALE's Table 1, and the columns that they use.

Tang et al., 2025.  Columns and the treatment of missing values are those of the bmdal_reg benchmark
(Holzmüller et al., 2023), whose shapes that table prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

UCI = "https://archive.ics.uci.edu"
OPENML = "https://www.openml.org"


@final
@dataclass(frozen=True)
class TableSource:
    """Published table: its file, and how its columns are read.

    The suffix of ``file`` determines its format: .zip, .arff, .mat, otherwise separated
    text.
    """

    file: str  # in the data folder, under the name it is published with
    page: str  # that describes it
    url: str  # of the file; under OPENML/api of its description
    target: str  # the column to predict
    drop: tuple[str, ...] = ()  # columns that are neither features nor target
    texts: tuple[str, ...] = ()  # columns of texts, made one-hot; in .arff the file says so
    group: str = ""  # the column of natural sites
    member: str = ""  # of a .zip the file inside, of a .mat the matrix
    columns: tuple[str, ...] = ()  # their names, where the file has no header
    separator: str = ","


def _openml(number: int, target: str, drop: tuple[str, ...] = ()) -> TableSource:
    return TableSource(
        file=f"openml_{number}.arff",
        page=f"{OPENML}/d/{number}",
        url=f"{OPENML}/api/v1/json/data/{number}",
        target=target,
        drop=drop,
    )


def _numbered(name: str, n: int) -> tuple[str, ...]:
    """Return ``name1`` to ``name<n>``."""
    return tuple(f"{name}{i}" for i in range(1, n + 1))


SOURCES = {
    "ct": TableSource(
        file="relative+location+of+ct+slices+on+axial+axis.zip",
        page=f"{UCI}/dataset/206",
        url=f"{UCI}/static/public/206/relative+location+of+ct+slices+on+axial+axis.zip",
        target="reference",
        group="patientId",
        member="slice_localization_data.csv",
    ),
    "kegg_undirected": TableSource(
        file="kegg+metabolic+reaction+network+undirected.zip",
        page=f"{UCI}/dataset/221",
        url=f"{UCI}/static/public/221/kegg+metabolic+reaction+network+undirected.zip",
        target="c26",
        drop=("c0",),
        member="Reaction Network (Undirected).data",
        columns=tuple(f"c{i}" for i in range(29)),
    ),
    "online_video": TableSource(
        file="online+video+characteristics+and+transcoding+time+dataset.zip",
        page=f"{UCI}/dataset/335",
        url=f"{UCI}/static/public/335/online+video+characteristics+and+transcoding+time+dataset.zip",
        target="utime",
        drop=("id", "umem"),
        texts=("codec", "o_codec"),
        member="transcoding_mesurment.tsv",
        separator="\t",
    ),
    "wec_sydney": TableSource(
        file="wave+energy+converters.zip",
        page=f"{UCI}/dataset/494",
        url=f"{UCI}/static/public/494/wave+energy+converters.zip",
        target="total",
        member="Sydney_Data.csv",
        columns=(
            *_numbered("X", 16),
            *_numbered("Y", 16),
            *_numbered("P", 16),
            "total",
        ),
    ),
    "sarcos_full": TableSource(
        file="sarcos_inv.mat",
        page="https://gaussianprocess.org/gpml/data/",
        url="https://gaussianprocess.org/gpml/data/sarcos_inv.mat",
        target="torque1",
        drop=_numbered("torque", 7)[1:],
        member="sarcos_inv",
        columns=(
            *_numbered("position", 7),
            *_numbered("velocity", 7),
            *_numbered("acceleration", 7),
            *_numbered("torque", 7),
        ),
    ),
    "stock": _openml(1200, "company10"),
    "mlr_knn_rng": _openml(42454, "perf.logloss", drop=("perf.mmce",)),
}
