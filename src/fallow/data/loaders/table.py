"""The user's table as features, labels, sites and example names, with notes on the
conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.core.load_options import UNKNOWN_MARKS, KnownMarks, LoadOptions, list_of_files
from fallow.core.missing import Missing
from fallow.core.suggestions import nearest_column, require_known
from fallow.core.wording import count_noun, join_some
from fallow.data.loaders.cells import (
    is_category,
    is_textual,
    labels_of,
    names_of,
    texts_of,
)
from fallow.data.loaders.columns import (
    Column,
    Setting,
    encode_columns,
    keep_at_least_one,
    recognize_column,
)
from fallow.data.loaders.marks import Marks
from fallow.data.loaders.table_files import Table
from fallow.data.loaders.text_rules import (
    explain_number_names,
    is_long_number,
    names_groups,
    number_in,
    settle_names,
    warn_of_lost_digits,
)
from fallow.data.loaders.units import FEWEST_ROWS, Sites, warn_of_units
from fallow.data.predictions import is_prediction
from fallow.data.reading import (
    ColumnRead,
    Finding,
    Kind,
    Reading,
    Role,
    count_at,
    describe_columns,
    explain_column,
    note,
    warning,
)
from fallow.storage.received import check_fits

Cells = dict[str, pa.ChunkedArray]
COLUMN_ROLES: tuple[Role, ...] = ("label", "site", "group", "id")
"""Roles of columns that are no features."""
NO_ROLES: Mapping[str, Role] = {}
RELEASED = 8
"""Number of columns after which the memory of their texts returns to the system."""
FEWEST_GROUPS = 10
"""Smallest number of different identifiers that are suggested as groups; fewer are categories."""
N_CODES = 2
"""Number of different numbers in training, such as 0 and 1, that are codes."""
LACKING = "rows with missing or infinite features left out"


def assign_roles(options: LoadOptions) -> dict[str, Role]:
    """Return the names of the columns that are no features, the label first, and their roles."""
    roles: dict[str, Role] = {}
    named = [(role, getattr(options, role)) for role in COLUMN_ROLES]
    if options.label is None:
        several: list[tuple[Role, str]] = [("label", name) for name in options.labels]
        named = [*several, *named]
    for role, column in named:
        if column is None:
            continue
        if column in roles:
            raise ValueError(
                f"column {column!r} is both {roles[column]} and {role}; give two columns"
            )
        if column in options.drop:
            raise ValueError(
                f"column {column!r} is the {role} and is also dropped; choose one"
            )
        roles[column] = role
    return roles


@final
@dataclass(frozen=True, eq=False)
class TableArrays:
    """A table as arrays. ``rows`` of the first file come first, then those of the test
    file.

    missing: imputation of empty cells; None if x has none. offsets: see `Dataset.offsets`.
    """

    x: npt.NDArray[np.float32]  # (rows + test rows, features), NaN for an empty cell
    # labels: texts ("" for unlabeled), integers, or numbers (NaN); several are texts, (rows, labels)
    y: npt.NDArray[Any]
    sites: npt.NDArray[np.str_] | None
    groups: npt.NDArray[np.str_] | None
    columns: tuple[str, ...]
    offsets: tuple[float, ...]
    ids: tuple[str, ...] | None
    rows: int
    findings: tuple[Finding, ...]
    reading: Reading
    missing: Missing | None = None


Source = Callable[[KnownMarks], Table]
"""Function that reads a file or a frame, with the marks that ambiguous cells have."""


def read_table(sources: Sequence[Source], options: LoadOptions) -> TableArrays:
    """Return the table, and the test table if any, as one.

    Texts become the same columns in both tables. Raises ValueError with the file, the column, and
    the row of an error.
    """
    roles = assign_roles(options)
    label_columns = [column for column, role in roles.items() if role == "label"]
    tables = _read_sources(sources, options)
    name = tables[0].name
    rows = tables[0].n_rows
    n_tests = sum(table.n_rows for table in tables[1:])
    marks = tables[0].marks
    findings = [finding for table in tables for finding in table.findings]
    cells = _join_tables(tables)
    units = {column: tables[0].unit_of(column) for column in cells}
    tables.clear()  # columns are dropped as soon as they are features
    y = _read_labels(label_columns, cells, marks, options)
    sites = _read_names("site", options.site, cells, name, options.merge, findings)
    groups = _read_names("group", options.group, cells, name, options.merge, findings)
    row_names, id_column = _find_row_names(cells, options)
    if id_column is not None:
        roles[id_column] = "id"
    if groups is None:
        findings += suggest_groups(cells, options.drop, roles)
    declared = [_declare(named, roles[named], cells[named]) for named in roles]
    for named in roles:
        del cells[named]
    columns, omitted = _recognize_columns(cells, options, name, marks, units)
    reads = [*(column.read for column in columns), *omitted]
    for column in columns:
        findings += column.findings
    all_columns = columns
    columns = [column for column in columns if column.read.is_feature]
    n_train = len(y) - n_tests
    findings += _warn_of_units(columns, sites, n_train)
    for column in columns:
        findings += _warn_of_tests(column, n_train)
    if not columns:
        reasons = "; ".join(f"{read.name!r}: {explain_column(read)}" for read in reads)
        doubts = [f.sentence for c in all_columns for f in c.findings if f.fix]
        reasons = "; ".join(filter(None, [reasons, *doubts]))
        because = f" ({reasons})" if reasons else ""
        raise ValueError(f"{name} has no feature column{because}; add one")

    n = len(y)
    rows_at = count_at(sites, np.ones(n, dtype=np.bool_))
    reading = Reading(name, rows_at, marks=marks.known, files=list_of_files(options))
    keep = np.ones(n, dtype=np.bool_)
    if options.drop_rows:
        keep = ~_find_lacking_rows(columns)
        reading = reading.without(
            "a feature is missing or infinite", count_at(sites, ~keep)
        )
        columns = [_keep_rows(column, keep) for column in columns]
        y = y[keep]
        if sites is not None:
            sites = sites[keep]
        if groups is not None:
            groups = groups[keep]
    else:
        _check_infinite(columns, name)
    reads = [_count_missing_at_sites(read, columns, sites) for read in reads]
    has_holes = any(column.read.missing for column in columns)
    features = encode_columns(columns, partial(check_fits, name))

    described = reads
    if options.drop_rows:  # rows with an empty cell were removed
        described = [replace(read, missing=0) for read in reads]
    findings += describe_columns(described)
    if id_column is not None:
        findings.append(
            note(
                f"column {id_column!r} has the names of examples and is not a feature",
                f"columns=[..., {id_column!r}]",
            )
        )
    left_out = int(n - keep.sum())
    if left_out:
        findings.append(note(f"{LACKING}: {left_out}", "drop_rows=False"))
    if row_names is not None:
        row_names = tuple(compress(row_names, keep))
    missing = None
    if has_holes:
        missing = Missing(features.levels, features.marks)
        findings.append(
            note(
                "the sites impute empty cells together, by the mean of a number and the most "
                "frequent text, from aggregates over their training examples; "
                f"{len(features.marks)} indicator columns were added (drop_rows=true omits "
                "such rows instead)",
                "drop_rows=True",
            )
        )
    return TableArrays(
        x=features.x,
        y=y,
        sites=sites,
        groups=groups,
        columns=features.names,
        offsets=features.offsets,
        ids=row_names,
        rows=int(keep[:rows].sum()),
        findings=tuple(findings),
        reading=replace(reading, columns=(*reads, *declared)),
        missing=missing,
    )


def _read_labels(
    columns: Sequence[str], cells: Cells, marks: Marks, options: LoadOptions
) -> npt.NDArray[Any]:
    """Return the labels of each row, (n,), or texts (n, L) from several columns."""
    if not options.labels:
        return labels_of(cells[columns[0]], marks.of(columns[0]))
    texts = [names_of(cells[column]) for column in columns]
    return texts[0] if options.label is not None else np.stack(texts, axis=1)


def _read_sources(sources: Sequence[Source], options: LoadOptions) -> list[Table]:
    """Read the table and the test table, which have the same decimal mark.

    Raises ValueError for a test table with another one.
    """
    first = _read_checked(sources[0](UNKNOWN_MARKS), options)
    tables = [first]
    marks = first.marks
    for source in sources[1:]:
        test = _read_checked(source(first.marks.known), options)
        decimals = {first.marks.known.decimal, test.marks.known.decimal}
        if decimals == {".", ","}:
            raise ValueError(
                f"{test.name}: the decimal mark is {test.marks.decimal!r}, and that of "
                f"{first.name} is {first.marks.decimal!r}; write both alike"
            )
        tables.append(test)
        marks = marks.join(test.marks)
    tables[0] = replace(first, marks=marks)
    return tables


def _read_checked(table: Table, options: LoadOptions) -> Table:
    names = list(table.columns)
    title = ""
    if 2 * sum(name == f"column {at}" for at, name in enumerate(names, 1)) >= len(names):
        title = "; remove the lines above the header, which look like a title"
    for column in (*assign_roles(options), *options.drop, *options.columns):
        if column not in table.columns:
            raise ValueError(
                f"{table.name} has no column {column!r}{nearest_column(column, names)}{title}"
                f"{explain_number_names(names)}"
            )
    return table


def _join_tables(tables: Sequence[Table]) -> Cells:
    """Return the columns of the table, and those of the test table below them."""
    first = tables[0]
    joined = dict(first.columns)
    for test in tables[1:]:
        for column in first.columns:
            require_known(
                column,
                test.columns,
                f"{test.name} has no column {column!r} of {first.name}",
            )
        for column, more in test.columns.items():
            if column not in first.columns:
                raise ValueError(
                    f"{test.name} has a column {column!r} that is not in {first.name}; remove it"
                )
            joined[column] = _append(joined[column], more)
            units = {*first.units.get(column, ()), *test.units.get(column, ())}
            if len(units) > 1 and test.units.get(column):
                raise ValueError(
                    f"{test.name}: the number format of column {column!r} has the unit "
                    f"{join_some(test.units[column])}, and that of {first.name} "
                    f"{join_some(first.units.get(column, ())) or 'none'}; convert the numbers"
                )
    return joined


def _append(cells: pa.ChunkedArray, more: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells of two tables as one column; texts if their types differ."""
    parts = [cells, more]
    if cells.type != more.type:
        parts = [_as_texts(part) for part in parts]
    if any(map(is_category, parts)):  # texts of both are levels
        parts = [_as_category(part) for part in parts]
    return pa.chunked_array([*parts[0].chunks, *parts[1].chunks], type=parts[0].type)


def _as_category(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if is_category(cells):
        return cells
    return cells.dictionary_encode()


def _as_texts(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if is_textual(cells):
        return cells
    texts = pa.array(texts_of(cells), pa.string())
    if is_category(cells):
        texts = texts.dictionary_encode()
    return pa.chunked_array([texts])


def _read_names(
    role: Role,
    column: str | None,
    cells: Cells,
    name: str,
    merge: bool,
    findings: list[Finding],
) -> npt.NDArray[np.str_] | None:
    """Return the site or the group of each row, or None without a column.

    Notes on names that differ only in their writing are added to ``findings``.
    """
    if column is None:
        return None
    names = names_of(cells[column])
    empty = int((names == "").sum())
    if empty:
        raise ValueError(
            f"{name}: {empty} rows have no {role} in column {column!r}; fill them in"
        )
    names, notes = settle_names(f"{role}s", names, merge)
    findings += notes
    if pa.types.is_floating(cells[column].type):
        longest = max(names.tolist(), key=len, default="")
        if is_long_number(longest):
            findings.append(warn_of_lost_digits(f"{role}s", longest))
    return names


def suggest_groups(
    cells: Cells, dropped: Sequence[str] = (), roles: Mapping[str, Role] = NO_ROLES
) -> Iterator[Finding]:
    """Yield a finding for each identifier that is repeated, such as that of a patient.

    It is a note if the user dropped the column, otherwise a warning.
    """
    for column, values in cells.items():
        if not names_groups(column) or roles.get(column) not in (None, "id"):
            continue
        if pa.types.is_nested(values.type) or pa.types.is_temporal(values.type):
            continue
        n_rows = len(values) - values.null_count
        names = values.unique().drop_null()
        if not FEWEST_GROUPS <= len(names) < n_rows or _has_fractions(names):
            continue
        finding = note if column in dropped else warning
        yield finding(
            f"column {column!r} looks like an identifier and has {len(names):,} different "
            f"values in {n_rows:,} rows, so that training and test examples may be of one "
            "patient or object",
            f"group={column!r}",
        )


def _has_fractions(names: pa.Array) -> bool:
    """Return whether some names are numbers that are not whole, which identify nothing."""
    numbers = [number_in(text) for text in texts_of(pa.chunked_array([names]))]
    return any(number is not None and number % 1 != 0 for number in numbers)


def _declare(name: str, role: Role, cells: pa.ChunkedArray) -> ColumnRead:
    """Declare a column that is no feature because of its role."""
    kind: Kind = "category" if role in ("label", "site") else "identifier"
    return ColumnRead(name, kind, role, missing=cells.null_count)


def _recognize_columns(
    cells: Cells, options: LoadOptions, file: str, marks: Marks, units: Mapping[str, str]
) -> tuple[list[Column], list[ColumnRead]]:
    """Recognize each column; also return the declarations of those that the user omitted.

    units: those of the number formats of columns.
    ``cells`` is emptied in the process, so that a large table is not in memory twice.
    """
    columns: list[Column] = []
    omitted: list[ColumnRead] = []
    for name in list(cells):
        column_cells = cells.pop(name)
        reason = ""
        if name in options.drop:
            reason = "you dropped it"
        elif options.columns and name not in options.columns:
            reason = "it is not among the requested columns"
        if reason:
            omitted.append(ColumnRead(name, "text", "left out", reason=reason))
            continue
        setting = Setting(
            name,
            file,
            must=name in options.columns,
            marks=marks.of(name),
            merge=options.merge,
            keeps_constant=is_prediction(name),
            unit=units[name],
        )
        columns.append(recognize_column(column_cells, setting))
        del column_cells
        if len(columns) % RELEASED == 0:
            pa.default_memory_pool().release_unused()
    return keep_at_least_one(columns), omitted


def _find_row_names(
    cells: Mapping[str, pa.ChunkedArray], options: LoadOptions
) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the names of examples, and their column."""
    column = options.id
    if column is None and "id" in cells and "id" not in assign_roles(options):
        column = "id"
    if column is None or (
        options.id is None and column in (*options.columns, *options.drop)
    ):
        return None, None
    return tuple(texts_of(cells[column])), column


def _warn_of_units(
    columns: Sequence[Column], sites: npt.NDArray[np.str_] | None, n_train: int
) -> Iterator[Finding]:
    """Yield a warning for each column whose numbers seem to have two units.

    n_train: number of rows of the training table, which are the first.
    """
    at_sites = Sites.of(sites)
    n = len(columns[0]) if columns else 0
    if at_sites is None and n_train < n:
        at_sites = Sites.of_tests(n_train, n)
    for column in columns:
        if column.read.kind == "number":
            yield from warn_of_units(f"column {column.read.name!r}", column.cells, at_sites)


def _warn_of_tests(column: Column, n_train: int) -> list[Finding]:
    """Return a warning of texts or codes that only the test table has, the rows after n_train."""
    train, test = column.cells[:n_train], column.cells[n_train:]
    name = f"column {column.read.name!r}"
    if not len(test) or len(train) < FEWEST_ROWS:
        return []
    if column.read.kind == "number":
        known = np.unique(train[np.isfinite(train)])
        others = np.setdiff1d(test[np.isfinite(test)], known)
        if len(known) != N_CODES or not len(others):
            return []
        codes = " and ".join(f"{number:g}" for number in known)
        sentence = (
            f"{name} has {others[0]:g} in the test table, and only {codes} in training"
        )
        return [warning(sentence, "give both the same codes")]
    if column.read.kind != "category":
        return []
    unseen = np.setdiff1d(test[test >= 0], train)
    if not len(unseen):
        return []
    n_rows = int(np.isin(test, unseen).sum())
    words = join_some([column.read.values[code] for code in unseen])
    sentence = f"{name}: the texts {words} occur only in the test table ({count_noun(n_rows, 'row')})"
    is_rare = 2 * n_rows < len(test)
    return [Finding("warning", sentence, "write both tables alike", is_rare)]


def _find_lacking_rows(columns: Sequence[Column]) -> npt.NDArray[np.bool_]:
    """Return the rows with a missing or infinite feature: (n,)."""
    lacks = np.zeros(len(columns[0]), dtype=np.bool_)
    for column in columns:
        lacks |= column.is_missing | column.is_infinite
    return lacks


def _keep_rows(column: Column, keep: npt.NDArray[np.bool_]) -> Column:
    """Return the column without some of its rows, which have a missing feature."""
    return replace(column, read=replace(column.read, missing=0), cells=column.cells[keep])


def _check_infinite(columns: Sequence[Column], name: str) -> None:
    for column in columns:
        is_infinite = column.is_infinite
        infinite = int(is_infinite.sum())
        if infinite:
            row = int(is_infinite.argmax()) + 1
            raise ValueError(
                f"{name}: column {column.read.name!r} has {infinite} infinite values "
                f"(beyond 3.4e38 counts), the first in row {row}; correct them, omit the "
                "column, or omit such rows with drop_rows"
            )


def _count_missing_at_sites(
    read: ColumnRead, columns: Sequence[Column], sites: npt.NDArray[np.str_] | None
) -> ColumnRead:
    """Return the column with its number of empty cells by site."""
    if sites is None or not read.missing or not read.is_feature:
        return read
    column = next(item for item in columns if item.read.name == read.name)
    return replace(read, missing_at=count_at(sites, column.is_missing))
