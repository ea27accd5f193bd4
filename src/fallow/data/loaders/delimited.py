"""Delimited text as an Arrow table whose cells are all texts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from fallow.core.refusal import explain_errors
from fallow.data.loaders.dialect import Dialect
from fallow.data.loaders.text_rules import name_columns, number_in
from fallow.data.reading import Finding, ReportBytes, note
from fallow.storage.received import check_fits

CHUNK = 20_000  # rows that are converted at once
BLOCK = 1 << 20  # bytes that pyarrow parses at once
COMPARED = 1 << 16
"""Bytes at the start and the end of a file whose cells are compared with Python's csv."""
CELL_BYTES = 8  # at least, in memory
OTHER_CODES = re.compile("utf-(16|32)")
"""Encodings in which a quote is not one byte."""


QUOTE = "correct this row (put a text with the separator in quotes)"
COMMENTS = ("#", "%", "//")
"""Begin of a line that is no header."""


def read_delimited(
    path: Path, dialect: Dialect, notify: ReportBytes
) -> tuple[pa.Table, tuple[Finding, ...]]:
    """Return all cells of a text file as texts, under the names in its header.

    pyarrow reads the file.  Where its cells differ from those of Python's csv module at the
    start or the end of the file, or it refuses the file, the csv module reads all of it.
    """
    names = _read_header(path, dialect)
    check_fits(path.name, path.stat().st_size + CELL_BYTES * len(names))
    table = None
    if len(names) > 1 and not dialect.is_mixed and not _has_odd_quotes(path, dialect):
        table = _read_by_arrow(path, dialect, names, notify)
    if table is not None and _agrees(table, path, dialect):
        return table, ()
    table = _read_by_rows(path, dialect, names, notify)
    if len(names) == 1:
        return table, ()
    return table, (
        note(f"{path.name} was read row by row, because of its quotes, widths or bytes"),
    )


def _read_header(path: Path, dialect: Dialect) -> list[str]:
    return name_columns(next(_read_lines(path, dialect), []), path.name)


def _has_odd_quotes(path: Path, dialect: Dialect) -> bool:
    """Return whether a quote is inside a text, where pyarrow drops it."""
    if path.stat().st_size == 0:
        return True
    quote = dialect.quote.encode()
    ends = np.frombuffer(
        dialect.separator.encode() + dialect.quote.encode() + b"\r\n", "u1"
    )
    is_end = np.zeros(256, dtype=bool)
    is_end[ends] = True
    before = b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            if OTHER_CODES.match(dialect.encoding) and quote in block:
                return True
            if quote in before or quote in block:
                raw = np.frombuffer(before + block, dtype=np.uint8)
                quotes = np.flatnonzero(raw[1:-1] == ord(quote)) + 1
                if (~is_end[raw[quotes - 1]] & ~is_end[raw[quotes + 1]]).any():
                    return True
            before = (before + block[-2:])[-2:]
    return False


def _read_by_arrow(
    path: Path, dialect: Dialect, names: Sequence[str], notify: ReportBytes
) -> pa.Table | None:
    """Return the table as pyarrow reads it, or None if it refuses the file."""
    numbered = [f"f{index}" for index in range(len(names))]
    schema = pa.schema([(name, pa.string()) for name in numbered])
    total = path.stat().st_size
    done = 0
    batches: list[pa.RecordBatch] = []
    try:
        with path.open("rb") as raw:
            reader = pyarrow.csv.open_csv(
                raw,
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK,
                    skip_rows=dialect.skip,
                    column_names=numbered,
                    encoding=dialect.encoding,
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=dialect.separator,
                    quote_char=dialect.quote,
                    newlines_in_values=True,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=schema, strings_can_be_null=False
                ),
            )
            for batch in reader:
                batches.append(batch)
                # another thread moves on meanwhile
                done = max(done, min(raw.tell(), total))
                notify(done, total)
    except (pa.ArrowException, UnicodeError):
        return None
    notify(total, total)
    table = pa.Table.from_batches(batches, schema).rename_columns(list(names))
    return table.slice(1)  # without the header


def _agrees(table: pa.Table, path: Path, dialect: Dialect) -> bool:
    """Return whether the cells at both ends of the file are those of Python's csv module."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(COMPARED)
        file.seek(max(0, size - COMPARED))
        tail = file.read()
    first = _parse_part(head, dialect, is_cut=size > COMPARED)[1:]  # without the header
    if table.slice(0, len(first)).to_pylist() != _as_dicts(first, table):
        return False
    if size <= COMPARED:
        return len(table) == len(first)
    if OTHER_CODES.match(dialect.encoding):
        return True
    last = _parse_part(tail[tail.find(b"\n") + 1 :], dialect, is_cut=False, is_tail=True)
    end = table.slice(max(0, len(table) - len(last)))
    return bool(end.to_pylist() == _as_dicts(last, table))


def _as_dicts(rows: Sequence[Sequence[str]], table: pa.Table) -> list[dict[str, str]]:
    return [dict(zip(table.column_names, row, strict=False)) for row in rows]


def _parse_part(
    raw: bytes, dialect: Dialect, *, is_cut: bool, is_tail: bool = False
) -> list[list[str]]:
    """Return the rows of a part of a file, without the last one if it is cut."""
    text = raw.decode(dialect.encoding, errors="ignore")
    lines = io.StringIO(text, newline="")
    if not is_tail:
        for _ in range(dialect.skip):
            lines.readline()
    reader = csv.reader(
        lines, strict=not is_cut, delimiter=dialect.separator, quotechar=dialect.quote
    )
    try:
        rows = [row for row in reader if row]
    except csv.Error:
        return [[]]  # equals no row
    return rows[:-1] if is_cut else rows


def _read_lines(
    path: Path,
    dialect: Dialect,
    notify: ReportBytes | None = None,
    *,
    is_single: bool = False,
) -> Iterator[list[str]]:
    """Yield the rows of a file, header first, without blank lines.

    is_single: the file has one column, so a blank line between others is an empty cell.
    """
    total = path.stat().st_size
    with (
        explain_errors(
            f"{path.name} is not a CSV file: ", of=(UnicodeDecodeError, csv.Error)
        ),
        path.open("rb") as raw,
        io.TextIOWrapper(raw, dialect.encoding, dialect.errors, newline="") as file,
    ):
        for _ in range(dialect.skip):
            file.readline()
        reader = csv.reader(
            file, strict=True, delimiter=dialect.separator, quotechar=dialect.quote
        )
        n_blank = 0
        is_first = True
        for row in reader:
            if notify is not None and reader.line_num % CHUNK == 0:
                notify(min(raw.tell(), total), total)
            if not row:
                n_blank += 1
                continue
            if is_single and not is_first:
                for _ in range(n_blank):
                    yield [""]
            n_blank = 0
            is_first = False
            yield row
    if notify is not None:
        notify(total, total)


def _read_by_rows(
    path: Path, dialect: Dialect, names: Sequence[str], notify: ReportBytes
) -> pa.Table:
    """Return the table as Python's csv module reads it."""
    schema = pa.schema([(name, pa.string()) for name in names])
    rows = _read_lines(path, dialect, notify, is_single=len(names) == 1)
    next(rows, None)  # the header
    batches: list[pa.RecordBatch] = []
    chunk: list[list[str]] = []
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ValueError(
                f"{path.name}: row {number} has {len(row)} cells and the header "
                f"{len(names)}; {_advise(names, row, number)}"
            )
        chunk.append(row)
        if len(chunk) == CHUNK:
            batches.append(_to_batch(chunk, schema))
            chunk = []
    if chunk:
        batches.append(_to_batch(chunk, schema))
    return pa.Table.from_batches(batches, schema)


def _to_batch(rows: Sequence[Sequence[str]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.record_batch(columns, schema=schema)


def _advise(names: Sequence[str], cells: Sequence[str], number: int) -> str:
    """Return what to correct in a row with another number of cells than the header.

    number: of the row, from 1.
    """
    n_missing = len(cells) - len(names)
    has_numbers = any(number_in(cell.strip()) is not None for cell in cells)
    is_title = len(names) == 1 or (number == 1 and not has_numbers)
    if names[0].startswith(COMMENTS) or (n_missing > 0 and is_title):
        return f"remove the lines above the header, such as {names[0][:40]!r}"
    if n_missing == 1 and not cells[-1]:
        return "remove the separator at the end of the rows, or name the last column"
    if n_missing > 0 and number == 1:
        # as R's write.table writes
        name_rows = (
            f"name the first column, which has {cells[0][:40]!r}, in the header, or write the file "
            "without row names (row.names=FALSE in R)"
        )
        halves = [pair for pair in pairwise(cells[1:]) if all(map(str.isdecimal, pair))]
        if not halves:
            return name_rows if n_missing == 1 else QUOTE
        whole, fraction = halves[0]
        return (
            f"if {whole},{fraction} is one number, write it with a decimal point, or in quotes; or "
            f"{name_rows}"
        )
    if len(cells) == 1:
        return "remove it if it is a footnote, or fill in the other cells"
    return QUOTE
