"""A user's table as features, labels, sites and row names, and what was done to get there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.core.build import nearest, nearest_column
from fallow.core.missing import Missing
from fallow.data.own.cells import (
    EMPTY,
    TABLES,
    Cells,
    Numbers,
    Read,
    Say,
    read_file,
    say_nothing,
)
from fallow.data.own.columns import (
    MOST_LEVELS,
    Column,
    at_least_one,
    encode_columns,
    names_rows,
    recognise,
    sentences,
)
from fallow.data.own.dialect import Dialect
from fallow.data.reading import ColumnRead, Reading, count_at

__all__ = [
    "EMPTY",
    "MOST_LEVELS",
    "TABLES",
    "Columns",
    "Table",
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
    """Which columns of a table are what.

    id: the column of row names; None: the one called "id", if there is one.  drop: columns that are
    left out.  only: the columns that are features, none other; (): all that can be.
    drop_rows: rows with a missing or infinite feature are left out; else sites fill cells in.
    """

    label: str
    site: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    drop_rows: bool = False

    def is_text(self, name: str) -> bool:
        """Whether a column is read as it stands: labels, sites and names of rows."""
        return name in (self.label, self.site, self.id) or names_rows(name)


@final
@dataclass(frozen=True, eq=False)
class Table:
    """A table as arrays.  ``rows`` of the first file come first, then those of the test file.

    missing: how empty cells are filled in; None where x has none.
    """

    x: Numbers  # (rows + test rows, features), NaN where a cell is empty
    columns: tuple[str, ...]
    kept: npt.NDArray[np.bool_]  # (all rows read,) which are among those of x
    ids: tuple[str, ...] | None
    rows: int
    notes: tuple[str, ...]
    reading: Reading
    missing: Missing | None = None


def read_table(
    path: Path, test: Path | None, wanted: Wanted, say: Say = say_nothing
) -> tuple[Table, Sequence[str], Sequence[str] | None]:
    """Both files as one table, so that texts become the same columns in both: the table, and its
    labels ("" is none) and sites as texts.

    Raises ValueError that names the file, the column, and the row where one is damaged.
    """
    parts = [_read_checked(path, wanted, wanted.is_text, say)]
    if test is not None:
        parts.append(_read_checked(test, wanted, wanted.is_text, say_nothing))
        _check_same(parts[0], parts[1], path, test)
        mixed = _kinds_differ(*parts)
        if mixed:
            files = (path, test)
            parts = [
                _read_checked(file, wanted, lambda n: n in mixed or wanted.is_text(n), say)
                for file in files
            ]
    rows = parts[0].rows
    dialect = parts[0].dialect
    notes = tuple(note for part in parts for note in part.notes)
    cells = _join(parts)
    parts.clear()  # columns are dropped as soon as they are features
    labels = cells[wanted.label].texts
    sites = cells[wanted.site].texts if wanted.site is not None else None
    assert labels is not None  # noqa: S101 - it was asked for as texts
    if sites is not None:
        empty = sum(not site for site in sites)
        if empty:
            raise ValueError(
                f"{path.name}: {empty} rows have no site in column {wanted.site!r}; fill them in"
            )
    found = assemble(
        cells,
        wanted,
        path.name,
        rows,
        np.array(sites, dtype=np.str_) if sites is not None else None,
        dialect,
    )
    found = replace(found, notes=(*notes, *found.notes))
    if found.kept.all():
        return found, labels, sites
    kept_sites = None if sites is None else list(compress(sites, found.kept))
    return found, list(compress(labels, found.kept)), kept_sites


def read_cells(path: Path) -> Columns:
    """Every column of a table as texts, numbers as Python writes them."""
    return read_all_cells(path)[0]


def read_all_cells(path: Path) -> tuple[Columns, tuple[str, ...]]:
    """`read_cells`, and how the file is written where that is not the usual way, in sentences."""
    read = read_file(path, lambda name: True)
    cells = {name: _plain_texts(held, read.dialect) for name, held in read.columns.items()}
    return cells, read.notes


def _plain_texts(cells: Cells, dialect: Dialect) -> list[str]:
    texts = list(cells.texts or ())
    if dialect.is_plain:
        return texts
    plain = [dialect.number(text) for text in texts]
    given = [text for text in plain if text.lower() not in EMPTY]
    return plain if all(_is_number(text) for text in given) else texts


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_checked(
    path: Path, wanted: Wanted, is_text: Callable[[str], bool], say: Say
) -> Read:
    read = read_file(path, is_text, say)
    names = list(read.columns)
    for column in (wanted.label, wanted.site, wanted.id, *wanted.drop, *wanted.only):
        if column is not None and column not in read.columns:
            raise ValueError(
                f"{path.name} has no column {column!r}{nearest_column(column, names)}"
            )
    used = [c for c in (wanted.label, wanted.site, wanted.id) if c is not None]
    words = {wanted.label: "label", wanted.site: "site", wanted.id: "id"}
    for column in used:
        if used.count(column) > 1:
            raise ValueError(
                f"column {column!r} is both label and {words[column]}; name two columns"
            )
        if column in wanted.drop:
            raise ValueError(
                f"column {column!r} is the {words[column]} and is dropped; choose"
            )
    return read


def _check_same(first: Read, second: Read, path: Path, test: Path) -> None:
    for column in first.columns:
        if column not in second.columns:
            hint = nearest(column, list(second.columns))
            raise ValueError(f"{test.name} has no column {column!r} of {path.name}{hint}")
    for column in second.columns:
        if column not in first.columns:
            raise ValueError(
                f"{test.name} has a column {column!r} that is not in {path.name}; remove it"
            )


def _kinds_differ(first: Read, second: Read) -> set[str]:
    """Columns that are numbers in one file and texts in the other."""
    return {
        name
        for name, cells in first.columns.items()
        if (cells.numbers is None) != (second.columns[name].numbers is None)
    }


def _join(parts: list[Read]) -> dict[str, Cells]:
    if len(parts) == 1:
        return dict(parts[0].columns)
    first, second = parts
    joined: dict[str, Cells] = {}
    for name, cells in first.columns.items():
        more = second.columns[name]
        if cells.numbers is not None and more.numbers is not None:
            joined[name] = Cells(np.concatenate([cells.numbers, more.numbers]))
        else:
            texts = [*(cells.texts or ()), *(more.texts or ())]
            joined[name] = replace(cells, texts=texts)
    return joined


def assemble(
    cells: dict[str, Cells],
    wanted: Wanted,
    name: str,
    rows: int,
    sites: npt.NDArray[np.str_] | None,
    dialect: Dialect | None = None,
) -> Table:
    """The features among the columns, each recognised; ``cells`` is emptied on the way.

    rows: of the first file.  sites: (n,) of all rows.  Raises ValueError where no column is left,
    a number is infinite, or a column that was asked for cannot be used.
    """
    n = len(next(iter(cells.values())))
    row_names, id_column = _row_names(cells, wanted)
    used = [c for c in (wanted.label, wanted.site, id_column) if c is not None]
    dropped: list[ColumnRead] = []
    columns: list[Column] = []
    for column in list(cells):
        held = cells.pop(column)
        if column in used:
            continue
        if column in wanted.drop:
            dropped.append(ColumnRead(column, "left out", why="you dropped it"))
        elif wanted.only and column not in wanted.only:
            dropped.append(
                ColumnRead(column, "left out", why="it is not among your columns")
            )
        else:
            must = column in wanted.only
            columns.append(recognise(column, held, name, must=must, dialect=dialect))
    columns = at_least_one(columns)
    reads = [*(column.read for column in columns), *dropped]
    columns = [column for column in columns if column.is_used]
    if not columns:
        gone = "; ".join(f"{c.name!r}: {c.why}" for c in reads)
        because = f" ({gone})" if gone else ""
        raise ValueError(f"{name} has no column of features{because}; add one")
    reading = Reading(name, count_at(sites, np.ones(n, dtype=np.bool_)))
    keep = np.ones(n, dtype=np.bool_)
    if wanted.drop_rows:
        keep = ~_lacks(columns)
        reading = reading.without(
            "a feature is missing or infinite", count_at(sites, ~keep)
        )
        columns = [_rows_of(column, keep) for column in columns]
        kept_sites = None if sites is None else sites[keep]
    else:
        _check_infinite(columns, name)
        kept_sites = sites
    reads = [_with_sites(each, columns, kept_sites) for each in reads]
    has_holes = any(column.read.missing for column in columns)
    features = encode_columns(columns)
    notes = sentences([] if wanted.drop_rows else reads)
    if wanted.drop_rows:
        notes = sentences([replace(each, missing=0) for each in reads])
    if id_column is not None:
        notes.append(f"column {id_column!r} names the rows and is no feature")
    gone_rows = int(n - keep.sum())
    if gone_rows:
        notes.append(f"{LACKING}: {gone_rows}")
    missing = None
    if has_holes:
        missing = Missing(features.levels, features.marks)
        notes.append(
            "the sites fill missing cells in together, by the mean of a number and the most "
            "frequent text, learnt from totals over their training rows; columns added that mark "
            f"them: {len(features.marks)} (drop_rows=true leaves such rows out instead)"
        )
    return Table(
        x=features.x,
        columns=features.names,
        kept=keep,
        ids=None if row_names is None else tuple(compress(row_names, keep)),
        rows=int(keep[:rows].sum()),
        notes=tuple(notes),
        reading=replace(reading, columns=tuple(reads)),
        missing=missing,
    )


def _row_names(
    cells: Mapping[str, Cells], wanted: Wanted
) -> tuple[Sequence[str] | None, str | None]:
    """The names of rows, and the column they stand in."""
    column = wanted.id
    if column is None and "id" in cells and "id" not in (wanted.label, wanted.site):
        column = "id"
    if column is None or (wanted.id is None and column in (*wanted.only, *wanted.drop)):
        return None, None
    held = cells[column]
    if held.texts is not None:
        return held.texts, column
    assert held.numbers is not None  # noqa: S101 - a column is one of both
    return [f"{number:g}" for number in held.numbers], column


def _lacks(columns: Sequence[Column]) -> npt.NDArray[np.bool_]:
    """Rows with a missing or infinite feature: (n,)."""
    lacks = np.zeros(len(columns[0]), dtype=np.bool_)
    for column in columns:
        lacks |= column.is_missing
        if column.numbers is not None:
            lacks |= np.isinf(column.numbers)
    return lacks


def _rows_of(column: Column, keep: npt.NDArray[np.bool_]) -> Column:
    """The column without some of its rows, which are those that lack a feature."""
    read = replace(column.read, missing=0)
    if column.codes is not None:
        return replace(column, read=read, codes=column.codes[keep])
    assert column.numbers is not None  # noqa: S101 - a used column is one of both
    return replace(column, read=read, numbers=column.numbers[keep])


def _check_infinite(columns: Sequence[Column], name: str) -> None:
    for column in columns:
        infinite = column.infinite
        if infinite and column.numbers is not None:
            row = int(np.isinf(column.numbers).argmax()) + 1
            raise ValueError(
                f"{name}: column {column.read.name!r} has {infinite} infinite values (beyond "
                f"3.4e38 counts), the first in row {row}; correct them, leave the column out, or "
                "leave out such rows with drop_rows"
            )


def _with_sites(
    read: ColumnRead, columns: Sequence[Column], sites: npt.NDArray[np.str_] | None
) -> ColumnRead:
    """The column with its missing cells by site."""
    if sites is None or not read.missing or read.kind == "left out":
        return read
    column = next(each for each in columns if each.read.name == read.name)
    return replace(read, missing_at=count_at(sites, column.is_missing))
