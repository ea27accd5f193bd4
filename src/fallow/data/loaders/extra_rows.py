"""Rows of a table that are no examples: totals and footnotes below it, units above it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fallow.data.loaders.text_rules import are_dates, is_empty, number_in
from fallow.data.reading import Finding, warning

Cells = Mapping[str, pa.ChunkedArray]
Row = Mapping[str, object]
"""Cells of a row that are not empty, by column."""
SUMMARY = re.compile(
    r"(grand |sub[- ]?|overall )?(total|all|sum|mean|average|median|summe|gesamt|insgesamt"
    r"|mittelwert|durchschnitt|somme|moyenne|suma|promedio|totale|totaal)s?:?",
    re.IGNORECASE,
)
"""Name of a row that summarizes the others."""
SUBTOTAL = re.compile(
    r"(grand |sub[- ]?)?totals?:?|(zwischen)?summe|insgesamt|sous-total", re.IGNORECASE
)
"""Name of rows that are no category, even if there are several."""
LAST = 5
"""Number of last rows that are searched."""
BEFORE = 20
"""Number of rows before them, to which they are compared."""
FEWEST = 12
"""Smallest number of rows in which a cell that occurs once tells anything."""
MOST_BESIDE = 20
"""Largest number of rows of a legend."""
SEARCHED = 8
"""Last rows, which are empty in the column of a legend."""
REPEATED = 4
"""Mean number of rows of each text of a category."""


def warn_of_extra_rows(name: str, columns: Cells) -> Iterator[Finding]:
    """Yield warnings of rows that are probably no examples.

    name: of the file.  columns: cells by column.
    """
    n_rows = len(next(iter(columns.values()), ()))
    if n_rows < FEWEST:
        return
    yield from _find_beside(name, columns, n_rows)
    if _describes_columns(columns, n_rows):
        shown = next(iter(_read_row(columns, 0).values()))
        yield warning(
            f"{name}: row 1, which has {shown!r}, may describe the columns, because its texts "
            "occur in no other row",
            "remove this row if it is no example",
        )
    for row in range(n_rows - 1, n_rows - 1 - LAST, -1):
        reason = _explain_end(columns, row, n_rows)
        if reason is None:
            break
        yield warning(
            f"{name}: row {row + 1} {reason}", "remove this row if it is no example"
        )


def _find_beside(name: str, columns: Cells, n_rows: int) -> list[Finding]:
    """Return a warning of a column that ends far above the table, as a legend beside it does."""
    beside = []
    limit = min(MOST_BESIDE, n_rows // 3)
    for column, cells in columns.items():
        kind = cells.type
        if not (pa.types.is_string(kind) or pa.types.is_null(kind) or is_number(kind)):
            continue
        if any(_are_filled(cells.slice(n_rows - SEARCHED))) or len(cells) != n_rows:
            continue
        filled = _are_filled(cells)
        n_filled = sum(filled)
        if 2 <= n_filled <= limit and all(filled[:n_filled]):
            beside.append((column, n_filled))
    if not beside:
        return []
    column, n_filled = beside[0]
    sentence = (
        f"{name}: column {column!r} has cells only in the first {n_filled} of {n_rows} rows, and "
        "may be a legend, or another table, beside this one"
    )
    return [warning(sentence, f"drop=[{column!r}]")]


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _are_filled(cells: pa.ChunkedArray) -> list[bool]:
    """Return which cells are not empty."""
    return [
        cell is not None and not (isinstance(cell, str) and is_empty(cell.strip()))
        for cell in cells.to_pylist()
    ]


def _read_row(columns: Cells, at: int) -> Row:
    """Return the cells of a row that are not empty."""
    row: dict[str, object] = {}
    for name, cells in columns.items():
        if pa.types.is_nested(cells.type) or pa.types.is_temporal(cells.type):
            continue  # never a summary, and perhaps beyond the calendar
        cell = cells[at].as_py()
        if cell is not None and not (isinstance(cell, str) and is_empty(cell.strip())):
            row[name] = cell
    return row


def _explain_end(columns: Cells, row: int, n_rows: int) -> str | None:
    """Return why one of the last rows may be no example, or None."""
    filled = _read_row(columns, row)
    for name, cell in filled.items():
        is_summary = isinstance(cell, str) and SUMMARY.fullmatch(cell.strip())
        if is_summary and _occurs_once(columns[name], cell):
            return f"has {cell!r} in column {name!r}, and may summarize the other rows"
    if len(filled) != 1 or len(columns) < 3:
        return None
    ((name, cell),) = filled.items()
    if not isinstance(cell, str) or not _occurs_once(columns[name], cell):
        return None
    first = max(0, n_rows - LAST - BEFORE)
    if any(len(_read_row(columns, at)) < 2 for at in range(first, n_rows - LAST)):
        return None
    return f"has only the cell {cell[:60]!r}, which may be a source or footnote"


def _describes_columns(columns: Cells, n_rows: int) -> bool:
    """Return whether the first row has units or descriptions instead of values.

    Each of its texts occurs once, although the texts of two columns or more are repeated.
    """
    row = _read_row(columns, 0)
    if not all(map(_is_words, row.values())):
        return False
    if not all(_occurs_once(columns[name], cell) for name, cell in row.items()):
        return False
    distinct: list[int] = [pc.count_distinct(columns[name]).as_py() for name in row]
    return sum(REPEATED * number <= n_rows for number in distinct) >= 2


def _is_words(cell: object) -> bool:
    """Return whether a cell is a text, and neither a number nor a date."""
    if not isinstance(cell, str):
        return False
    text = cell.strip()
    return number_in(text.replace(",", ".")) is None and not are_dates([text])


def _occurs_once(cells: pa.ChunkedArray, cell: Any) -> bool:  # any value of a cell
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    times: int | None = pc.sum(pc.equal(cells, cell)).as_py()
    return times == 1
