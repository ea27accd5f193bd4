"""The user's table as features, labels, sites and example names, with notes on the
conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.core.missing import Missing
from fallow.core.suggestions import nearest_column, require_known
from fallow.data.loaders.columns import (
    MOST_LEVELS,
    RecognizedColumn,
    describe_columns,
    encode_columns,
    explain,
    keep_at_least_one,
    names_rows,
    recognize_column,
)
from fallow.data.loaders.dialect import Dialect
from fallow.data.loaders.table_files import (
    EMPTY,
    ColumnCells,
    IsText,
    Numbers,
    ReadTable,
    number_in,
    read_file,
)
from fallow.data.reading import ColumnRead, Reading, count_at

__all__ = [
    "EMPTY",
    "MOST_LEVELS",
    "Columns",
    "TableArrays",
    "Wanted",
    "assemble",
    "read_all_cells",
    "read_cells",
    "read_table",
]

Columns = dict[str, list[str]]
LACKING = "rows with missing or infinite features left out"


@final
@dataclass(frozen=True)
class Wanted:
    """Roles of the columns of a table.

    id: the column of example names; None: the one called "id", if there is one. drop:
    columns that are left out. only: the columns that are features; (): all suitable ones.
    drop_rows: rows with a missing or infinite feature are left out; otherwise sites impute
    them.
    """

    label: str
    site: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    drop_rows: bool = False

    def is_text(self, name: str) -> bool:
        """Return whether a column is read unchanged: labels, sites and example names."""
        return name in (self.label, self.site, self.id) or names_rows(name)


@final
@dataclass(frozen=True, eq=False)
class TableArrays:
    """A table as arrays. ``rows`` of the first file come first, then those of the test
    file.

    missing: imputation of empty cells; None if x has none.
    """

    x: Numbers  # (rows + test rows, features), NaN for an empty cell
    columns: tuple[str, ...]
    kept: npt.NDArray[np.bool_]  # (all rows read,) whether they are in x
    ids: tuple[str, ...] | None
    rows: int
    notes: tuple[str, ...]
    reading: Reading
    missing: Missing | None = None


@final
@dataclass(frozen=True)
class Source:
    """A table that can be read, from a file or a frame.

    read: function that reads it; its argument returns the columns to keep as text.
    """

    name: str
    read: Callable[[IsText], ReadTable]


def read_table(
    sources: Sequence[Source], wanted: Wanted
) -> tuple[TableArrays, Sequence[str], npt.NDArray[np.str_] | None]:
    """Return the table, and the test table if any, as one, with labels and sites as texts.

    Labels are "" for unlabeled examples. Texts become the same columns in both tables. Raises
    ValueError with the file, the column, and the row of an error.
    """
    parts = _read_all(sources, wanted)
    name = sources[0].name
    rows = parts[0].rows
    dialect = parts[0].dialect
    notes: list[str] = []
    for part in parts:
        notes += part.notes
    cells = _join_tables(parts)
    parts.clear()  # columns are dropped as soon as they are features

    labels = cells[wanted.label].texts
    assert labels is not None  # noqa: S101 - it was asked for as texts
    sites = None
    if wanted.site is not None:
        site_texts = cells[wanted.site].texts
        assert site_texts is not None  # noqa: S101 - it was asked for as texts
        empty = sum(not site for site in site_texts)
        if empty:
            raise ValueError(
                f"{name}: {empty} rows have no site in column {wanted.site!r}; fill them in"
            )
        sites = np.array(site_texts, dtype=np.str_)

    table = assemble(cells, wanted, name, rows, sites, dialect)
    table = replace(table, notes=(*notes, *table.notes))
    if sites is not None:
        sites = sites[table.kept]
    return table, list(compress(labels, table.kept)), sites


def _read_all(sources: Sequence[Source], wanted: Wanted) -> list[ReadTable]:
    """Read the table, and the test table if any; a column that is text in one is text in
    both.
    """
    parts = [_read_checked(source, wanted, wanted.is_text) for source in sources]
    if len(parts) == 1:
        return parts
    first, second = parts
    _check_same_columns(first, second, *sources)
    mixed = _find_mixed_columns(first, second)
    if not mixed:
        return parts

    def is_text(name: str) -> bool:
        return name in mixed or wanted.is_text(name)

    parts.clear()
    del first, second  # a large table must not be in memory twice
    return [_read_checked(source, wanted, is_text) for source in sources]


def read_cells(path: Path) -> Columns:
    """Return every column of a table as texts, numbers in Python's format."""
    return read_all_cells(path)[0]


def read_all_cells(path: Path) -> tuple[Columns, tuple[str, ...]]:
    """Return `read_cells`, and notes on an unusual format of the file."""
    read = read_file(path, lambda name: True)
    cells = {
        name: _plain_texts(column_cells, read.dialect)
        for name, column_cells in read.columns.items()
    }
    return cells, read.notes


def _plain_texts(cells: ColumnCells, dialect: Dialect) -> list[str]:
    """Return the cells as texts; those of a column of numbers in Python's format."""
    texts = list(cells.texts or ())
    if dialect.is_plain:
        return texts
    plain = [dialect.number(text) for text in texts]
    value = [text for text in plain if text.lower() not in EMPTY]
    if all(number_in(text) is not None for text in value):
        return plain
    return texts


def _read_checked(source: Source, wanted: Wanted, is_text: IsText) -> ReadTable:
    read = source.read(is_text)
    names = list(read.columns)
    for column in (wanted.label, wanted.site, wanted.id, *wanted.drop, *wanted.only):
        if column is not None and column not in read.columns:
            raise ValueError(
                f"{source.name} has no column {column!r}{nearest_column(column, names)}"
            )
    used = [c for c in (wanted.label, wanted.site, wanted.id) if c is not None]
    words = {wanted.label: "label", wanted.site: "site", wanted.id: "id"}
    for column in used:
        if used.count(column) > 1:
            raise ValueError(
                f"column {column!r} is both label and {words[column]}; give two columns"
            )
        if column in wanted.drop:
            raise ValueError(
                f"column {column!r} is the {words[column]} and is also dropped; choose one"
            )
    return read


def _check_same_columns(
    first: ReadTable, second: ReadTable, source: Source, test: Source
) -> None:
    for column in first.columns:
        require_known(
            column, second.columns, f"{test.name} has no column {column!r} of {source.name}"
        )
    for column in second.columns:
        if column not in first.columns:
            raise ValueError(
                f"{test.name} has a column {column!r} that is not in {source.name}; remove it"
            )


def _find_mixed_columns(first: ReadTable, second: ReadTable) -> set[str]:
    """Return columns that are numbers in one file and text in the other."""
    return {
        name
        for name, cells in first.columns.items()
        if (cells.numbers is None) != (second.columns[name].numbers is None)
    }


def _join_tables(parts: list[ReadTable]) -> dict[str, ColumnCells]:
    if len(parts) == 1:
        return dict(parts[0].columns)
    first, second = parts
    joined: dict[str, ColumnCells] = {}
    for name, cells in first.columns.items():
        more = second.columns[name]
        if cells.numbers is not None and more.numbers is not None:
            joined[name] = ColumnCells(np.concatenate([cells.numbers, more.numbers]))
        else:
            texts = [*(cells.texts or ()), *(more.texts or ())]
            joined[name] = replace(cells, texts=texts)
    return joined


def assemble(
    cells: dict[str, ColumnCells],
    wanted: Wanted,
    name: str,
    rows: int,
    sites: npt.NDArray[np.str_] | None,
    dialect: Dialect | None = None,
) -> TableArrays:
    """Return the features among the recognized columns; ``cells`` is emptied in the
    process.

    rows: of the first file. sites: (n,) of all rows. Raises ValueError if no column is
    left, a number is infinite, or a requested column cannot be used.
    """
    n = len(next(iter(cells.values())))
    row_names, id_column = _find_row_names(cells, wanted)
    used = [c for c in (wanted.label, wanted.site, id_column) if c is not None]
    columns, dropped = _recognize_columns(cells, used, wanted, name, dialect)
    reads = [*(column.read for column in columns), *dropped]
    columns = [column for column in columns if column.is_used]
    if not columns:
        reasons = "; ".join(f"{read.name!r}: {explain(read)}" for read in reads)
        because = ""
        if reasons:
            because = f" ({reasons})"
        raise ValueError(f"{name} has no feature column{because}; add one")

    reading = Reading(name, count_at(sites, np.ones(n, dtype=np.bool_)))
    keep = np.ones(n, dtype=np.bool_)
    if wanted.drop_rows:
        keep = ~_find_lacking_rows(columns)
        reading = reading.without(
            "a feature is missing or infinite", count_at(sites, ~keep)
        )
        columns = [_keep_rows(column, keep) for column in columns]
        if sites is not None:
            sites = sites[keep]
    else:
        _check_infinite(columns, name)
    reads = [_count_missing_at_sites(read, columns, sites) for read in reads]
    has_holes = any(column.read.missing for column in columns)
    features = encode_columns(columns)

    described = reads
    if wanted.drop_rows:  # rows with an empty cell were removed
        described = [replace(read, missing=0) for read in reads]
    notes = describe_columns(described)
    if id_column is not None:
        notes.append(f"column {id_column!r} has the names of examples and is not a feature")
    left_out = int(n - keep.sum())
    if left_out:
        notes.append(f"{LACKING}: {left_out}")
    if row_names is not None:
        row_names = tuple(compress(row_names, keep))
    missing = None
    if has_holes:
        missing = Missing(features.levels, features.marks)
        notes.append(
            "the sites impute empty cells together, by the mean of a number and the most "
            "frequent text, from aggregates over their training examples; "
            f"{len(features.marks)} indicator columns were added (drop_rows=true omits "
            "such rows instead)"
        )
    return TableArrays(
        x=features.x,
        columns=features.names,
        kept=keep,
        ids=row_names,
        rows=int(keep[:rows].sum()),
        notes=tuple(notes),
        reading=replace(reading, columns=tuple(reads)),
        missing=missing,
    )


def _recognize_columns(
    cells: dict[str, ColumnCells],
    used: Sequence[str],
    wanted: Wanted,
    file: str,
    dialect: Dialect | None,
) -> tuple[list[RecognizedColumn], list[ColumnRead]]:
    """Recognize each column except those in ``used``; also return the dropped ones.

    ``cells`` is emptied in the process, so that a large table is not in memory twice.
    """
    columns: list[RecognizedColumn] = []
    dropped: list[ColumnRead] = []
    for name in list(cells):
        column_cells = cells.pop(name)
        if name in used:
            continue
        if name in wanted.drop:
            dropped.append(ColumnRead(name, "text", "left out", reason="you dropped it"))
            continue
        if wanted.only and name not in wanted.only:
            dropped.append(
                ColumnRead(
                    name, "text", "left out", reason="it is not among the requested columns"
                )
            )
            continue
        must = name in wanted.only
        columns.append(
            recognize_column(name, column_cells, file, must=must, dialect=dialect)
        )
    return keep_at_least_one(columns), dropped


def _find_row_names(
    cells: Mapping[str, ColumnCells], wanted: Wanted
) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the names of examples, and their column."""
    column = wanted.id
    if column is None and "id" in cells and "id" not in (wanted.label, wanted.site):
        column = "id"
    if column is None or (wanted.id is None and column in (*wanted.only, *wanted.drop)):
        return None, None
    column_cells = cells[column]
    if column_cells.texts is not None:
        return tuple(column_cells.texts), column
    assert column_cells.numbers is not None  # noqa: S101 - a column is one of both
    return tuple(f"{number:g}" for number in column_cells.numbers), column


def _find_lacking_rows(columns: Sequence[RecognizedColumn]) -> npt.NDArray[np.bool_]:
    """Return the rows with a missing or infinite feature: (n,)."""
    lacks = np.zeros(len(columns[0]), dtype=np.bool_)
    for column in columns:
        lacks |= column.is_missing
        if column.numbers is not None:
            lacks |= np.isinf(column.numbers)
    return lacks


def _keep_rows(column: RecognizedColumn, keep: npt.NDArray[np.bool_]) -> RecognizedColumn:
    """Return the column without some of its rows, which have a missing feature."""
    read = replace(column.read, missing=0)
    if column.texts is not None:
        return replace(column, read=read, texts=tuple(compress(column.texts, keep)))
    if column.codes is not None:
        return replace(column, read=read, codes=column.codes[keep])
    assert column.numbers is not None  # noqa: S101 - a used column is one of both
    return replace(column, read=read, numbers=column.numbers[keep])


def _check_infinite(columns: Sequence[RecognizedColumn], name: str) -> None:
    for column in columns:
        infinite = column.infinite
        if infinite and column.numbers is not None:
            row = int(np.isinf(column.numbers).argmax()) + 1
            raise ValueError(
                f"{name}: column {column.read.name!r} has {infinite} infinite values "
                f"(beyond 3.4e38 counts), the first in row {row}; correct them, omit the "
                "column, or omit such rows with drop_rows"
            )


def _count_missing_at_sites(
    read: ColumnRead,
    columns: Sequence[RecognizedColumn],
    sites: npt.NDArray[np.str_] | None,
) -> ColumnRead:
    """Return the column with its number of empty cells by site."""
    if sites is None or not read.missing or not read.is_feature:
        return read
    column = next(item for item in columns if item.read.name == read.name)
    return replace(read, missing_at=count_at(sites, column.is_missing))
