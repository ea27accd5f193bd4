"""Types: the same value gives the same feature from every container."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch

import fallow as fl
from fallow.data import Dataset
from tests.data.kinds import CONTAINERS, load_from, quietly
from tests.each import each_of

N = 24
LABEL = pa.array(["no", "yes"] * (N // 2))
DAY = datetime.datetime(2024, 3, 1)
NUMBERS = [None if row == 3 else row * 0.25 for row in range(N)]
FLAGS = [None if row == 3 else row % 3 == 0 for row in range(N)]
WORDS = [None if row == 3 else ("mild", "grave")[row % 2] for row in range(N)]
TYPES: dict[str, Callable[[], pa.Array]] = {
    "float64": lambda: pa.array(NUMBERS, pa.float64()),
    "float32": lambda: pa.array(NUMBERS, pa.float32()),
    "float16": lambda: pa.array(
        [None if n is None else np.float16(n) for n in NUMBERS], pa.float16()
    ),
    "decimal128": lambda: pa.array(
        [None if n is None else Decimal(str(n)) for n in NUMBERS], pa.decimal128(12, 2)
    ),
    "decimal256": lambda: pa.array(
        [None if n is None else Decimal(str(n)) for n in NUMBERS], pa.decimal256(50, 2)
    ),
}


def features(data: Dataset) -> dict[str, list[float]]:
    """Return the features of all rows, sorted by value; training and test rows are mixed."""
    x = torch.cat([data.x, data.x_test]).nan_to_num(-7.0)
    return {
        name: sorted(x[:, at].round(decimals=4).tolist())
        for at, name in enumerate(data.columns)
    }


def expect(column: list[Any]) -> list[float]:
    return sorted(-7.0 if value is None else round(float(value), 4) for value in column)


@each_of(
    "kind, container",
    [
        (kind, container)
        for kind in TYPES
        for container in CONTAINERS
        # these lack the type
        if not (kind in ("float16", "decimal256") and container in ("polars", "feather"))
    ],
)
def test_numbers_of_every_type_are_the_same_feature(
    kind: str, container: str, tmp_path: Path
) -> None:
    columns = {"c": TYPES[kind](), "label": LABEL}
    data = load_from(container, columns, tmp_path, label="label")
    assert features(data)["c"] == expect(NUMBERS)


@each_of("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_whole_numbers_of_every_type_are_the_same_feature(
    kind: str, tmp_path: Path
) -> None:
    cells = [row % 7 for row in range(N)]
    columns = {"c": pa.array(cells, kind), "label": LABEL}
    for container in CONTAINERS:
        data = load_from(container, columns, tmp_path, label="label")
        assert features(data)["c"] == expect(cells), container


@each_of("container", CONTAINERS)
def test_booleans_are_one_and_zero(container: str, tmp_path: Path) -> None:
    columns = {"c": pa.array(FLAGS), "label": LABEL}
    data = load_from(container, columns, tmp_path, label="label")
    assert features(data)["c"] == expect(FLAGS)


@each_of(
    "convert",
    [
        lambda bins: bins,
        lambda bins: bins.astype(bins.cat.categories.dtype),
        lambda bins: bins.astype(object),
        lambda bins: bins.astype(str),
    ],
)
def test_intervals_have_one_name_in_every_type(convert: Callable[[Any], Any]) -> None:
    bins = pd.cut(pd.Series(np.arange(N, dtype=float)), [-1.0, 10.0, 30.0])
    frame = pd.DataFrame({"c": convert(bins), "label": ["a", "b"] * (N // 2)})
    names = ("(-1.0, 10.0]", "(10.0, 30.0]")
    assert fl.load(frame, label="label").columns == tuple(f"c={name}" for name in names)
    frame = frame.rename(columns={"c": "label", "label": "c"})
    assert fl.load(frame, label="label").classes == names


@each_of("container", CONTAINERS)
def test_a_site_may_be_called_na(container: str, tmp_path: Path) -> None:
    columns = {
        "c": pa.array(range(7, N + 7)),
        "at": pa.array(["NA", "US", "EU"] * (N // 3)),
        "label": LABEL,
    }
    data = load_from(container, columns, tmp_path, label="label", site="at")
    assert data.site_names == ("EU", "NA", "US")


TEXTS: dict[str, Callable[[], pa.Array]] = {
    "string": lambda: pa.array(WORDS, pa.string()),
    "large_string": lambda: pa.array(WORDS, pa.large_string()),
    "dictionary": lambda: pa.array(WORDS).dictionary_encode(),
    "binary": lambda: pa.array(
        [None if word is None else word.encode() for word in WORDS], pa.binary()
    ),
}


@each_of("kind, container", [(kind, name) for kind in TEXTS for name in CONTAINERS])
def test_texts_of_every_type_are_the_same_features(
    kind: str, container: str, tmp_path: Path
) -> None:
    columns = {"c": TEXTS[kind](), "label": LABEL}
    data = load_from(container, columns, tmp_path, label="label")
    wanted = [None if word is None else word == "mild" for word in WORDS]
    assert features(data)["c=mild"] == expect(wanted)
    assert data.columns == ("c=grave", "c=mild", "c_missing")


@each_of("container", CONTAINERS)
def test_numbers_stored_as_text_are_numbers_as_in_csv(
    container: str, tmp_path: Path
) -> None:
    columns = {
        "c": pa.array([None if n is None else f"{n}" for n in NUMBERS]),
        "label": LABEL,
    }
    data = load_from(container, columns, tmp_path, label="label")
    assert features(data)["c"] == expect(NUMBERS)


LEFT_OUT: dict[str, Callable[[], pa.Array]] = {
    "timestamp[s]": lambda: pa.array([DAY] * N, pa.timestamp("s")),
    "timestamp[ns]": lambda: pa.array([DAY] * N, pa.timestamp("ns")),
    "timestamp with a zone": lambda: pa.array(
        [DAY] * N, pa.timestamp("us", "Europe/Zurich")
    ),
    "date32": lambda: pa.array([DAY.date()] * N, pa.date32()),
    "time64": lambda: pa.array([DAY.time()] * N, pa.time64("us")),
    "duration": lambda: pa.array([datetime.timedelta(1)] * N, pa.duration("us")),
    "list": lambda: pa.array([[1.0, 2.0]] * N),
    "ragged list": lambda: pa.array([[1.0] * (row % 3) for row in range(N)]),
    "struct": lambda: pa.array([{"a": 1}] * N),
    "map": lambda: pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
    "null": lambda: pa.nulls(N),
}


@each_of("kind, container", [(kind, name) for kind in LEFT_OUT for name in CONTAINERS])
def test_types_that_are_no_features_are_left_out_with_the_reason(
    kind: str, container: str, tmp_path: Path
) -> None:
    if container == "feather" and kind == "map":
        return  # pandas writes none
    columns = {"c": LEFT_OUT[kind](), "dose": pa.array(range(N)), "label": LABEL}
    data = load_from(container, columns, tmp_path, label="label")
    assert data.columns == ("dose",)
    assert any("column 'c' was left out: it" in note for note in data.notes), data.notes


LABELS: dict[str, Any] = {
    "list": ["benign", "malign"] * 12,
    "tuple": ("benign", "malign") * 12,
    "str array": np.array(["benign", "malign"] * 12),
    "object array": np.array(["benign", "malign"] * 12, dtype=object),
    "bytes array": np.array([b"benign", b"malign"] * 12),
    "bytes": [b"benign", b"malign"] * 12,
    "bytes objects": np.array([b"benign", b"malign"] * 12, dtype=object),
    "Series": pd.Series(["benign", "malign"] * 12),
    "categories": pd.Series(["benign", "malign"] * 12, dtype="category"),
    "column": np.array([["benign"], ["malign"]] * 12),
    "polars": pl.Series(["benign", "malign"] * 12),
}


@each_of("kind", LABELS)
def test_labels_have_the_same_names_from_every_container(kind: str) -> None:
    data = fl.from_arrays(np.arange(24.0)[:, None], LABELS[kind])
    assert data.classes == ("benign", "malign")
    sites = fl.from_arrays(np.arange(24.0)[:, None], np.arange(24) % 2, sites=LABELS[kind])
    assert sites.site_names == ("benign", "malign")


TRUTHS: dict[str, Any] = {
    "list": [True, False] * 12,
    "array": np.array([True, False] * 12),
    "objects": np.array([True, False] * 12, dtype=object),
    "boolean": pd.Series([True, False] * 12, dtype="boolean"),
    "texts": ["True", "False"] * 12,
}


@each_of("kind", TRUTHS)
def test_boolean_labels_are_named_false_and_true(kind: str) -> None:
    data = fl.from_arrays(np.arange(24.0)[:, None], TRUTHS[kind])
    assert data.classes == ("False", "True")


WHOLE: dict[str, Any] = {
    "int64": np.arange(24) % 3,
    "uint8": (np.arange(24) % 3).astype(np.uint8),
    "float64": np.arange(24) % 3 * 1.0,
    "float16": (np.arange(24) % 3).astype(np.float16),
    "Int64": pd.Series(np.arange(24) % 3, dtype="Int64"),
    "torch": torch.arange(24) % 3,
    "Decimal": [Decimal(row % 3) for row in range(24)],
    "texts": [f"{row % 3}" for row in range(24)],
    "texts with points": [f"{row % 3}.0" for row in range(24)],
    "numpy scalars": [np.int16(row % 3) for row in range(24)],
}


@each_of("kind", WHOLE)
def test_whole_labels_are_classes_of_the_same_names(kind: str) -> None:
    data = fl.from_arrays(np.arange(24.0)[:, None], WHOLE[kind])
    assert data.classes == ("0", "1", "2")


X = np.arange(48.0).reshape(24, 2)
ARRAYS: dict[str, Any] = {
    "float64": X,
    "float16": X.astype(np.float16),
    "int32": X.astype(np.int32),
    "objects": X.astype(object),
    "Decimal": np.array([[Decimal(str(n)) for n in row] for row in X], dtype=object),
    "lists": X.tolist(),
    "torch": torch.tensor(X),
    "bfloat16": torch.tensor(X).bfloat16(),
    "frame": pd.DataFrame(X),
    "nullable frame": pd.DataFrame(X).convert_dtypes(),
    "arrow frame": pd.DataFrame(X).astype("double[pyarrow]"),
    "polars": pl.DataFrame(X),
    "reversed bytes": X.astype(">f8"),
    "Fortran order": np.asfortranarray(X),
    "matrix without a mask": np.ma.masked_array(X, mask=False),
}


@each_of("kind", ARRAYS)
def test_features_are_the_same_from_every_array(kind: str) -> None:
    data = fl.from_arrays(ARRAYS[kind], np.arange(24) % 2)
    both = torch.cat([data.x, data.x_test])
    assert sorted(both[:, 0].tolist()) == X[:, 0].tolist()


REFUSED: dict[str, tuple[Any, str]] = {
    "csr": (scipy.sparse.csr_array(X), r"sparse matrix.*x\.toarray\(\)"),
    "coo": (scipy.sparse.coo_matrix(X), "sparse matrix"),
    "ragged": ([[1.0], [1.0, 2.0]] * 12, "x is not an array"),
    "texts": (X.astype(str), "give real numbers"),
    "complex": (X + 1j, "give real numbers"),
    "dates": (X.astype("datetime64[s]"), "give real numbers"),
    "objects": (np.array([["a", 1]] * 24, dtype=object), "values that are not numbers"),
    "one dimension": (X[:, 0], r"give \(n, features\)"),
    "NaN": (np.where(X == 3, np.nan, X), "not finite"),
    "None": (pd.DataFrame(X).astype(object).where(X != 3, None), "not finite"),
    "pandas NA": (pd.DataFrame(X).convert_dtypes().replace(3, pd.NA), "not finite"),
    "infinity": (np.where(X == 3, np.inf, X), "not finite"),
}


@each_of("kind", REFUSED)
def test_other_features_are_refused_with_the_way_out(kind: str) -> None:
    x, output = REFUSED[kind]
    with pytest.raises(ValueError, match=output):
        fl.from_arrays(x, np.arange(24) % 2)


def test_dates_as_labels_are_dates_and_not_numbers() -> None:
    days = pd.date_range("2024-01-01", periods=3).to_numpy()
    for y in (np.tile(days, 8), pd.Series(np.tile(days, 8)), list(np.tile(days, 8))):
        with pytest.raises(ValueError, match="3 different dates or times"):
            fl.from_arrays(X, y)


def test_a_frame_with_cells_of_many_types_is_read_cell_by_cell() -> None:
    cells = [1, 2.5, "3", None, float("nan"), np.int64(7), Decimal("8.5"), pd.NA] * 3
    frame = pd.DataFrame({"c": pd.Series(cells, dtype=object), "y": [0, 1] * 12})
    data = quietly(lambda: fl.from_frame(frame, label="y"))
    assert data.columns == ("c", "c_missing")
    assert features(data)["c"][-1] == 8.5 and features(data)["c_missing"].count(1.0) == 9


def test_a_named_index_of_pandas_is_a_column_as_in_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": range(N), "y": ["no", "yes"] * (N // 2)})
    frame["ward"] = ["a", "b", "b"] * (N // 3)
    indexed = frame.set_index("ward")
    indexed.to_parquet(tmp_path / "t.parquet")
    for data in (indexed, tmp_path / "t.parquet"):
        assert set(fl.load(data, label="y").columns) == {"age", "ward=a", "ward=b"}
        assert fl.load(data, label="y", site="ward").site_names == ("a", "b")
    assert fl.load(frame.sort_values("age"), label="y").columns[0] == "age"
    both = frame.set_index(["ward", "age"])
    both["x"] = range(3, N + 3)
    assert fl.load(both, label="y", id="age").site_names == ()
