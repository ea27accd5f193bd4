"""Small tables of one kind of cells, as files and frames of every container."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

import fallow as fl
from fallow.data import Dataset
from fallow.data.example_spec import ExampleSpec
from fallow.data.loaders.columns import Column, Setting, recognize_column
from fallow.data.loaders.marks import Marks

LABELS = ("no", "yes", "yes", "no", "no", "yes")


def column_of(cells: Sequence[str], name: str = "c", **setting: Any) -> Column:
    """Return a column of a text file, recognized."""
    column = pa.chunked_array([pa.array(cells, pa.string())])
    return recognize_column(column, Setting(name, "t.csv", **setting))


def with_decimal_comma(cells: Sequence[str], thousands: str = "") -> Column:
    return column_of(cells, marks=Marks(decimal=",", thousands=thousands))


def sentences(column: Column) -> str:
    return " | ".join(finding.sentence for finding in column.findings)


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def quietly(load: Callable[[], Dataset]) -> Dataset:
    """Load without Python warnings, which the findings repeat."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return load()


CONTAINERS = ("pandas", "objects", "arrow types", "polars", "arrow", "parquet", "feather")


def contain(container: str, columns: dict[str, pa.Array], folder: Path) -> Any:
    """Return a table in one of the CONTAINERS: a frame, or the path of a file."""
    table = pa.table(columns)
    if container == "pandas":
        return table.to_pandas()
    if container == "objects":
        return table.to_pandas().astype(object)
    if container == "arrow types":
        return table.to_pandas(types_mapper=pd.ArrowDtype)
    if container == "polars":
        return pl.DataFrame(pl.from_arrow(table))
    if container == "parquet":
        pyarrow.parquet.write_table(table, folder / "t.parquet")
        return folder / "t.parquet"
    if container == "feather":
        pyarrow.feather.write_feather(table, folder / "t.feather")
        return folder / "t.feather"
    return table


def load_from(
    container: str, columns: dict[str, pa.Array], folder: Path, **roles: Any
) -> Dataset:
    data = contain(container, columns, folder)
    return quietly(lambda: fl.load(data, **roles))


def spec_of(
    shape: Sequence[int],
    columns: Sequence[str] = (),
    marks: Sequence[Sequence[str]] | None = None,
) -> ExampleSpec:
    """Describe examples as a model file does."""
    spec = ExampleSpec(classes=(), columns=columns, shape=shape)
    if marks is not None:
        spec["marks"] = marks
    return spec
