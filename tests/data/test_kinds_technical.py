"""Technical columns: what programs add to number the rows is no feature."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fallow.data.loaders.columns import Setting, recognize_column
from tests.data.kinds import column_of
from tests.each import each_of

rng = np.random.default_rng(1)
N = 120
INDEXES = {
    "in order": np.arange(N),
    "from one": np.arange(N) + 1,
    "filtered": np.flatnonzero(np.arange(2 * N) % 2),
    "sorted by another column": rng.permutation(N),
    "filtered and sorted": rng.permutation(np.flatnonzero(np.arange(3 * N) % 3 == 1)),
    "backwards": np.arange(N)[::-1],
    "in tens": np.arange(N) * 10 + 10,
    "in hundreds, from zero, backwards": np.arange(N)[::-1] * 100,
}


@each_of("name", ["n", "zeile", "counter", "age", "seq"])
def test_numbers_that_count_the_rows_are_left_out_under_any_name(name: str) -> None:
    for how, values in INDEXES.items():
        column = column_of([str(value) for value in values], name)
        assert column.read.kind == "counter", how
        assert column.read.role == "left out" and "it is a counter" in column.read.reason
        assert repr(name) in column.read.fix


SAVED = [
    "Unnamed: 0",  # pandas
    "column 1",  # a header without a name
    "index",  # reset_index, polars
    "level_0",
    "__index_level_0__",  # Arrow
    "row_nr",  # polars
    "rownames",  # R
    "row.names",
    "...1",  # readr
    "_rowid_",  # SQLite
    "rowid",
    "row_number",  # SQL
    "Row ID",
    "id",
    "patient_id",
    "patient",
    "Nr.",
]


@each_of("name", SAVED)
def test_a_saved_index_is_left_out_however_it_was_filtered_and_sorted(name: str) -> None:
    values = rng.permutation(5000)[:40]
    column = column_of([str(value) for value in values], name)
    assert column.read.role == "left out", column.read
    assert "40 different numbers in 40 rows" in column.read.reason


@each_of("name", SAVED)
def test_a_column_of_such_a_name_with_equal_numbers_is_a_feature(name: str) -> None:
    values = rng.integers(0, 9, 40)
    assert column_of([str(value) for value in values], name).read.role == "feature"


@each_of(
    "values",
    [
        rng.integers(0, 30, N),  # ages
        rng.normal(size=N).round(3),
        np.arange(N) / 4,  # a time in quarters
        np.arange(N) * 1000,
        np.arange(N) * 10 + 5,
        np.r_[np.arange(N - 1) * 10, 7],
        np.arange(N) + 2000.5,
        np.r_[0, np.arange(N - 1)],  # a number occurs twice
        np.arange(40),  # too few rows to tell
    ],
)
def test_measurements_stay_features(values: np.ndarray) -> None:
    assert column_of([str(value) for value in values]).read.role == "feature"


LONG = "12345678901234567890"  # more digits than a number keeps


@each_of(
    "cells, role, kind",
    [
        ([LONG] * 30, "left out", "constant"),
        ([f"{LONG[:-1]}{row % 3}" for row in range(30)], "feature", "category"),
        ([f"{LONG[:-2]}{row + 10}" for row in range(30)], "left out", "identifier"),
        ([f"{LONG}{LONG}{row % 2}" for row in range(30)], "feature", "category"),
        ([str(2**53 + row % 2) for row in range(30)], "feature", "category"),
    ],
)
def test_long_numbers_are_compared_by_their_digits(
    cells: list[str], role: str, kind: str
) -> None:
    read = column_of(cells).read
    assert (read.role, read.kind) == (role, kind)


def test_long_numbers_of_a_frame_are_compared_by_their_digits() -> None:
    cells = pa.chunked_array([pa.array([2**53 + row % 2 for row in range(30)])])
    read = recognize_column(cells, Setting("c", "t.csv")).read
    assert read.values == (str(2**53), str(2**53 + 1))


@each_of("name", ["patient_id", "Nr.", "row_nr"])
def test_long_numbers_of_an_identifier_may_be_equal_as_floats(name: str) -> None:
    read = column_of([f"{LONG[:-2]}{row + 10}" for row in range(30)], name).read
    assert (read.role, read.kind) == ("left out", "identifier")


def test_a_counter_that_is_requested_is_a_feature() -> None:
    column = column_of([str(value) for value in range(N)], must=True)
    assert column.read.kind == "number" and column.read.role == "feature"


@each_of(
    "cells, kind",
    [
        (["7"] * 30, "constant"),
        (["a"] * 30, "constant"),
        ([""] * 30, "empty"),
        (["NA"] * 30, "empty"),
        ([f"2024-01-{day:02}" for day in range(1, 29)], "date"),
        ([f"{day}.3.2024" for day in range(1, 29)], "date"),
        ([f"2024-01-01T{hour:02}:30:00Z" for hour in range(24)], "date"),
        ([f"{hour}:15" for hour in range(24)], "date"),
        ([f"{day} days 02:30:00" for day in range(24)], "date"),
        ([f"Anna {row}" for row in range(30)], "identifier"),
        ([f"{row:08x}-{row:04x}" for row in range(30)], "identifier"),
        ([f"remark {row % 60}" for row in range(120)], "text"),
    ],
)
def test_other_columns_without_information_are_left_out_with_the_reason(
    cells: list[str], kind: str
) -> None:
    read = column_of(cells).read
    assert (read.kind, read.role) == (kind, "left out") and read.reason and read.fix
