"""Reading a CSV or Parquet table into features, labels, sites and row names."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fallow.core.build import nearest
from fallow.data.optional import import_optional

MOST_LEVELS = 50  # texts of one column; more than this is a column of names
EMPTY = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "?"}
)  # of a feature, in lower case

Columns = dict[str, list[str]]


@final
@dataclass(frozen=True)
class Table:
    """A table as arrays.  ``rows`` of the first file come first, then those of the test file."""

    x: npt.NDArray[np.float32]  # (rows + test rows, features)
    columns: tuple[str, ...]
    label: npt.NDArray[np.str_]  # "" = unlabelled
    site: npt.NDArray[np.str_] | None
    ids: tuple[str, ...] | None
    rows: int
    notes: tuple[str, ...]


def read_table(
    path: Path,
    test: Path | None,
    label: str,
    site: str | None,
    ids: str,
    drop_rows: bool = False,
) -> Table:
    """Both files as one table, so that texts become the same columns in both."""
    cells = read_cells(path)
    rows = len(cells[next(iter(cells))])
    for column in (label, *([site] if site else [])):
        if column not in cells:
            raise ValueError(
                f"{path.name} has no column {column!r}{nearest(column, list(cells))}"
            )
    if site == label:
        raise ValueError(f"column {label!r} is both label and site; name two columns")
    if test is not None:
        cells = _joined(cells, read_cells(test), path, test)
    if site is not None and (empty := sum(not cell for cell in cells[site])):
        raise ValueError(
            f"{path.name}: {empty} rows have no site in column {site!r}; fill them in"
        )
    has_ids = ids in cells and ids not in (label, site)
    used = {label, site} | ({ids} if has_ids else set())
    features = [column for column in cells if column not in used]
    left_out = 0
    if drop_rows:
        cells, rows, left_out = _whole(cells, features, rows)
    x, columns, notes = _encoded({column: cells[column] for column in features}, path)
    if has_ids:
        notes = (*notes, f"column {ids!r} names the rows and is no feature")
    if left_out:
        notes = (*notes, f"rows with missing or infinite features left out: {left_out}")
    return Table(
        x,
        columns,
        np.array(cells[label], dtype=np.str_),
        np.array(cells[site], dtype=np.str_) if site else None,
        tuple(cells[ids]) if has_ids else None,
        rows,
        notes,
    )


def _whole(cells: Columns, features: list[str], rows: int) -> tuple[Columns, int, int]:
    """The rows that lack no feature, how many of them are of the first file, and how many went."""
    total = len(next(iter(cells.values())))
    keep = [
        all(_is_given(cells[column][row]) for column in features) for row in range(total)
    ]
    kept = {column: list(compress(values, keep)) for column, values in cells.items()}
    return kept, sum(keep[:rows]), total - sum(keep)


def _is_given(cell: str) -> bool:
    """Whether a cell of a feature holds something: a text or a finite number."""
    if cell.lower() in EMPTY:
        return False
    number = _numbers([cell])
    return number is None or bool(np.isfinite(number[0]))


def read_cells(path: Path) -> Columns:
    """Every column of a CSV or Parquet file as texts."""
    cells = _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)
    if not cells or not next(iter(cells.values())):
        raise ValueError(f"{path.name} has no rows; give a header and at least one row")
    return cells


def _read_csv(path: Path) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file, strict=True)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path.name} is not a CSV file in UTF-8: {error}") from error
    names = [name.strip() for name in header]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise ValueError(f"{path.name} has more than one column {double[0]!r}; rename one")
    rows = [row for row in rows if row]  # blank lines are no rows
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ValueError(
                f"{path.name}: row {number} has {len(row)} cells and the header "
                f"{len(names)}; correct that row (is the separator a comma?)"
            )
    return {name: [row[c].strip() for row in rows] for c, name in enumerate(names)}


def _read_parquet(path: Path) -> Columns:
    parquet = import_optional("pyarrow.parquet", "pyarrow", "reading a Parquet file")
    arrow = import_optional("pyarrow", "pyarrow", "reading a Parquet file")
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path.name} could not be read as Parquet: {error}") from error
    return {
        name: [_cell(value) for value in table.column(name).to_pylist()]
        for name in table.column_names
    }


def _cell(value: Any) -> str:
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if is_missing else str(value).strip()


def _joined(cells: Columns, more: Columns, path: Path, test: Path) -> Columns:
    for column in cells:
        if column not in more:
            raise ValueError(
                f"{test.name} has no column {column!r} of {path.name}{nearest(column, list(more))}"
            )
    for column in more:
        if column not in cells:
            raise ValueError(
                f"{test.name} has a column {column!r} that is not in {path.name}; remove it"
            )
    return {column: values + more[column] for column, values in cells.items()}


def _encoded(
    cells: Columns,
    path: Path,
) -> tuple[npt.NDArray[np.float32], tuple[str, ...], tuple[str, ...]]:
    """Numbers as they are, texts one-hot: (features, their names, notes)."""
    if not cells:
        raise ValueError(f"{path.name} has no column of features; add one")
    blocks: list[npt.NDArray[np.float32]] = []
    names: list[str] = []
    notes: list[str] = []
    for column, values in cells.items():
        missing = sum(value.lower() in EMPTY for value in values)
        if missing:
            raise ValueError(
                f"{path.name}: column {column!r} has {missing} missing values; fill "
                "them in, leave the column out, or leave out such rows with drop_rows"
            )
        numbers = _numbers(values)
        if numbers is not None:
            infinite = int(np.isinf(numbers).sum())
            if infinite:
                raise ValueError(
                    f"{path.name}: column {column!r} has {infinite} infinite values "
                    "(beyond 3.4e38 counts); correct them, leave the column out, or leave out "
                    "such rows with drop_rows"
                )
            blocks.append(numbers[:, None])
            names.append(column)
            continue
        levels = sorted(set(values))
        if len(levels) > MOST_LEVELS:
            raise ValueError(
                f"{path.name}: column {column!r} holds {len(levels)} different texts, "
                f"more than {MOST_LEVELS}; leave it out, or call it 'id'"
            )
        blocks.append((np.array(values)[:, None] == np.array(levels)).astype(np.float32))
        names += [f"{column}={level}" for level in levels]
        notes.append(
            f"column {column!r} holds texts and became {len(levels)} columns of 0 and 1"
        )
    return np.hstack(blocks), tuple(names), tuple(notes)


def _numbers(values: list[str]) -> npt.NDArray[np.float32] | None:
    try:
        wide = np.array([float(value) for value in values])
    except ValueError:
        return None
    with np.errstate(over="ignore"):
        return wide.astype(np.float32)
