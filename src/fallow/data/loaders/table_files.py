"""Tables as Arrow columns: from text files, Excel, Parquet, Feather and data frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fallow.core.load_options import (
    DEFAULTS,
    UNKNOWN_MARKS,
    DecimalMark,
    KnownMarks,
    LoadOptions,
)
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import require_known
from fallow.core.wording import compose, join_some
from fallow.data.loaders.cells import (
    Numbers,
    cells_of_values,
    is_category,
    is_textual,
    numbers_of,
    plain_texts,
    simplify,
    texts_of,
)
from fallow.data.loaders.delimited import read_delimited
from fallow.data.loaders.dialect import sniff
from fallow.data.loaders.extra_rows import warn_of_extra_rows
from fallow.data.loaders.marks import Marks, detect_marks, give_marks
from fallow.data.loaders.text_rules import (
    check_names,
    is_empty,
    name_columns,
    number_in,
)
from fallow.data.loaders.unpacked import count_unpacked_bytes
from fallow.data.loaders.workbook import read_sheet
from fallow.data.reading import (
    Finding,
    ReportBytes,
    ignore_bytes,
    note,
    warning,
)
from fallow.storage.received import check_fits, check_no_pipe
from fallow.storage.table_suffixes import EXCEL_FILES, PARQUET_FILES, TEXT_FILES

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw
    from narwhals.stable.v2.typing import IntoDataFrame
    from pyarrow.parquet import ParquetFile

PERCENT = "%"
CELL_BYTES = 20
"""Bytes of a number from file to feature: as read, in float64, and in float32."""
BATCH = 1 << 16  # rows that are decoded at once
MAGIC = b"ARROW1"
HEAD = 8
"""Bytes before the messages of a Feather file: the magic, padded."""
LISTS = pa.list_(pa.int8())
"""Type of the columns of nested values, which are never read."""


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a file or a frame as they were read, before any role or kind.

    columns: cells by the name of the column, in the types of `fallow.data.loaders.cells.simplify`.
    marks: those of the numbers in its texts.  units: units in the number formats of columns of an
    Excel file, for columns that have any.
    """

    name: str
    columns: dict[str, pa.ChunkedArray]
    findings: tuple[Finding, ...] = ()
    marks: Marks = Marks()
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def unit_of(self, column: str) -> str:
        """Return the only unit in the number format of a column, "" without one.

        A number that is shown in percent is a share.
        """
        units = self.units.get(column, ())
        return units[0] if len(units) == 1 and units != (PERCENT,) else ""

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def texts(self, column: str) -> list[str]:
        """Return the cells of a column as names, "" for empty ones."""
        require_known(column, self.columns, f"{self.name} has no column {column!r}")
        with explain_errors(
            f"{self.name}: column {column!r} cannot be read: ",
            after="; omit it",
            of=(ArithmeticError, ValueError),  # such as dates after 9999
        ):
            return texts_of(self.columns[column])

    def plain_texts(self, column: str) -> list[str]:
        """Return the cells of a column as names, with numbers in Python's format."""
        texts = self.texts(column)
        if not is_textual(self.columns[column]):
            return texts
        return plain_texts(texts, self.marks.of(column))

    def numbers(self, column: str) -> Numbers | None:
        """Return the numbers in a column, NaN for empty cells; None if it has texts."""
        require_known(column, self.columns, f"{self.name} has no column {column!r}")
        return numbers_of(self.columns[column], self.marks.of(column))


def read_file(
    path: Path,
    notify: ReportBytes = ignore_bytes,
    options: LoadOptions = DEFAULTS,
    expected: KnownMarks = UNKNOWN_MARKS,
) -> Table:
    """Read the columns of a table.

    options: the decimal mark, and the part of an Excel file, see
    `fallow.data.loaders.workbook.read_sheet`. expected: marks of the training data, if
    the texts do not tell theirs. Raises ValueError with the name of the file, and the row of the error.
    """
    check_no_pipe(path)
    ending = path.suffix.lower()
    if ending in TEXT_FILES:
        table = _read_text(path, notify, options.decimal, expected)
    elif ending in EXCEL_FILES:
        table = _read_excel(path, options, expected)
    elif ending in PARQUET_FILES:
        table = _add_marks(_read_parquet(path), options.decimal, expected)
    else:
        table = _add_marks(_read_feather(path), options.decimal, expected)
    if not table.columns or table.n_rows == 0:
        raise ValueError(f"{path.name} has no rows; give a header and at least one row")
    _check_repeated_header(table)
    with explain_errors(f"{path.name} has a text that is not UTF-8: ", of=UnicodeError):
        extra = tuple(warn_of_extra_rows(path.name, table.columns))
    return replace(table, findings=(*extra, *table.findings))


def _add_marks(table: Table, decimal: DecimalMark, expected: KnownMarks) -> Table:
    """Return a table of no text file with the marks of numbers in its texts.

    decimal, expected: see `detect_marks`. Without either, numbers are in Python's format.
    """
    if decimal == "auto" and expected == UNKNOWN_MARKS:
        return table
    texts = {name: cells for name, cells in table.columns.items() if is_textual(cells)}
    if decimal != "auto":
        return replace(table, marks=give_marks(decimal, texts))
    return replace(table, marks=detect_marks(texts, ",", expected=expected))


def _check_repeated_header(table: Table) -> None:
    """Raise ValueError for a row with the names of the columns, as in files that were joined."""
    if len(table.columns) < 2:
        return
    repeats = np.ones(table.n_rows, dtype=np.bool_)
    for name, cells in table.columns.items():
        if not is_textual(cells):
            return
        is_name = pc.fill_null(pc.equal(pc.cast(cells, pa.string()), name), False)
        repeats &= np.asarray(is_name)
        if not repeats.any():
            return
    row = int(repeats.argmax()) + 1
    raise ValueError(
        f"{table.name}: row {row} repeats the header; remove it, as from files that "
        "were joined"
    )


def _read_text(
    path: Path, notify: ReportBytes, decimal: DecimalMark, expected: KnownMarks
) -> Table:
    dialect = sniff(path)
    cells, findings = read_delimited(path, dialect, notify)
    columns, unwrapped = _unwrap(
        dict(zip(cells.column_names, cells.columns, strict=True)), path.name
    )
    marks = detect_marks(columns, dialect.separator, decimal, expected)
    return Table(
        name=path.name,
        columns=columns,
        findings=(
            *marks.warn_of_doubt(path.name),
            *dialect.describe(path.name),
            *marks.notes(path.name),
            *findings,
            *unwrapped,
        ),
        marks=marks,
    )


WRAPS = (('="', '"'), ("“", "”"), ("„", "“"), ("”", "”"), ("«", "»"), ("'", ""))
"""Signs around all cells of a column: Excel's protection of texts, and typographic quotes."""
FIRST = 100
"""First rows, in which such a sign is looked for."""
FEWEST_MARKED = 10
"""Smallest number of rows that tell that an apostrophe is no part of the cells."""


def _unwrap(
    columns: Mapping[str, pa.ChunkedArray], file: str
) -> tuple[dict[str, pa.ChunkedArray], list[Finding]]:
    """Return columns without signs that are around all of their cells, and a note on each sign."""
    bare: dict[str, pa.ChunkedArray] = {}
    wrapped: dict[tuple[str, str], list[str]] = {}
    for name, cells in columns.items():
        wrap = _find_wrap(cells)
        if wrap is None:
            bare[name] = cells
            continue
        pattern = f"^{re.escape(wrap[0])}(.*){re.escape(wrap[1])}$"
        name = re.sub(pattern, r"\1", name)
        bare[name] = pc.replace_substring_regex(cells, f"(?s){pattern}", r"\1")
        wrapped.setdefault(wrap, []).append(name)
    check_names([*bare, *[""] * (len(columns) - len(bare))], file)
    return bare, [
        note(
            f"{file}: texts {f'are in {begin} {end}' if end else f'begin with {begin}'} "
            f"in {join_some(names)}"
        )
        for (begin, end), names in wrapped.items()
    ]


def _find_wrap(cells: pa.ChunkedArray) -> tuple[str, str] | None:
    """Return the signs around all cells that are not empty, or None."""
    first = next((cell for cell in cells.slice(0, FIRST).to_pylist() if cell), "")
    for begin, end in WRAPS:
        if not (first.startswith(begin) and first.endswith(end)):
            continue
        if not end and (len(cells) < FEWEST_MARKED or first.endswith(begin)):
            continue
        pattern = f"(?s)^({re.escape(begin)}.*{re.escape(end)})?$"
        if pc.all(pc.match_substring_regex(cells, pattern)).as_py():
            return begin, end
    return None


def _read_excel(path: Path, options: LoadOptions, expected: KnownMarks) -> Table:
    read = read_sheet(path, options.sheet, options.header_row)
    names = name_columns(read.header, path.name)
    values = [[row[index] for row in read.rows] for index in range(len(names))]
    texts = [[cell for cell in cells if isinstance(cell, str)] for cells in values]
    cells_of_texts = {
        name: pa.chunked_array([pa.array(part, pa.string())])
        for name, part in zip(names, texts, strict=True)
    }
    # texts with commas are those of a program that separates cells by semicolons
    marks = detect_marks(cells_of_texts, ";", options.decimal, expected)
    columns: dict[str, pa.ChunkedArray] = {}
    converted: list[str] = []
    for name, cells, part in zip(names, values, texts, strict=True):
        number_of = _read_marked(part, marks.of(name))
        if number_of:
            converted.append(name)
        columns[name] = cells_of_values(
            [number_of.get(cell, cell) if isinstance(cell, str) else cell for cell in cells]
        )
    findings = [*marks.warn_of_doubt(path.name), *read.findings]
    if converted and marks.decimal == "," and not marks.doubt:
        sentence = f"{path.name}: texts with a decimal comma were read as numbers in "
        state = warning if options.decimal == "auto" else note
        findings.append(state(sentence + join_some(converted), "decimal='.'"))
    units = {name: unit for name, unit in zip(names, read.units, strict=True) if unit}
    return Table(path.name, columns, tuple(findings), marks, units)


def _read_marked(texts: Sequence[str], marks: Marks) -> dict[str, float | None]:
    """Return the number in each text if all are numbers, some with other marks than Python's."""
    distinct = list({*texts})
    plain = plain_texts([text.strip() for text in distinct], marks)
    if all(text.strip() == number for text, number in zip(distinct, plain, strict=True)):
        return {}
    number_of = {
        text: None if is_empty(number) else number_in(number)
        for text, number in zip(distinct, plain, strict=True)
    }
    if any(
        number is None and not is_empty(text.strip()) for text, number in number_of.items()
    ):
        return {}
    return number_of


# -- Parquet and Feather --------------------------------------------------------------------


def _read_parquet(path: Path) -> Table:
    import pyarrow.parquet as pq

    with (
        explain_errors(
            f"{path.name} could not be read as Parquet: ", of=(pa.ArrowException, OSError)
        ),
        pq.ParquetFile(path) as opened,
    ):
        schema = opened.schema_arrow
        check_names(list(map(compose, schema.names)), path.name)
        check_fits(path.name, _estimate_bytes(opened, schema))
    with (
        explain_errors(
            f"{path.name} could not be read as Parquet: ", of=(pa.ArrowException, OSError)
        ),
        # a text is in memory once, however many rows have it
        pq.ParquetFile(path, read_dictionary=_list_texts(schema)) as opened,
    ):
        flat = [name for name in schema.names if not _is_nested(schema.field(name).type)]
        batches = opened.iter_batches(BATCH, columns=flat) if flat else ()
        n_rows = opened.metadata.num_rows
        return _join_batches(path, schema, batches, n_rows)


def _estimate_bytes(opened: ParquetFile, schema: pa.Schema) -> int:
    """Estimate the memory that a Parquet file takes, from its metadata.

    A page is in memory packed and unpacked, and a repeated value takes no space in a page, but
    one cell per row in memory.
    """
    metadata = opened.metadata
    unpacked = 0
    for group in range(metadata.num_row_groups):
        unpacked += 2 * metadata.row_group(group).total_byte_size
    n_bytes: int = unpacked + CELL_BYTES * metadata.num_rows * len(schema.names)
    return n_bytes


def _read_feather(path: Path) -> Table:
    with (
        explain_errors(
            f"{path.name} could not be read as Feather: ", of=(pa.ArrowException, OSError)
        ),
        pa.memory_map(str(path)) as opened,
    ):
        begin = HEAD if opened.read(len(MAGIC)) == MAGIC else 0  # of the stream of messages
        opened.seek(begin)
        unpacked = sum(map(count_unpacked_bytes, pa.ipc.MessageReader.open_stream(opened)))
        check_fits(path.name, unpacked)
        opened.seek(begin)
        reader = pa.ipc.open_stream(opened)
        check_names(list(map(compose, reader.schema.names)), path.name)
        return _join_batches(path, reader.schema, reader, None)


def _join_batches(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], n_rows: int | None
) -> Table:
    """Return the columns of all batches, whose memory is checked one after another."""
    read: list[pa.RecordBatch] = []
    for batch in batches:
        read.append(batch)
        check_fits(path.name, CELL_BYTES * batch.num_rows * batch.num_columns)
    n_rows = sum(batch.num_rows for batch in read) if n_rows is None or read else n_rows
    columns: dict[str, pa.ChunkedArray] = {}
    for name in schema.names:
        kind = schema.field(name).type
        if _is_nested(kind):
            columns[compose(name)] = pa.chunked_array([pa.nulls(n_rows, LISTS)])
            continue
        parts = [batch.column(name) for batch in read] or [pa.array([], kind)]
        cells = pa.chunked_array(parts)
        if cells.type != kind:  # texts, read as a dictionary
            check_fits(path.name, _count_letters(cells))
            cells = cells.cast(kind)
        columns[compose(name)] = _simplify(cells, name, path.name)
    return Table(path.name, columns)


def _list_texts(schema: pa.Schema) -> list[str]:
    """Return the columns of texts."""
    return [name for name in schema.names if _has_letters(schema.field(name).type)]


def _has_letters(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _count_letters(cells: pa.ChunkedArray) -> int:
    """Return the bytes of all texts of a dictionary, one for each row."""
    import pyarrow.compute as pc

    total = 0
    for chunk in cells.chunks:
        lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        total += (pc.sum(lengths).as_py() or 0) + CELL_BYTES * len(chunk)
    return total


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _simplify(cells: pa.ChunkedArray, column: str, name: str) -> pa.ChunkedArray:
    with explain_errors(
        f"{name}: column {column!r} cannot be read: ",
        after="; omit it",
        of=(pa.ArrowException, ArithmeticError, ValueError),  # such as dates after 9999
    ):
        return simplify(cells)


# -- data frames ----------------------------------------------------------------------------


def table_of_frame(
    df: IntoDataFrame,
    name: str,
    known: Collection[str] | None = None,
    decimal: DecimalMark = "auto",
    expected: KnownMarks = UNKNOWN_MARKS,
) -> Table:
    """Return the columns of a frame by their names as text; only those that are ``known``.

    decimal: the decimal mark of numbers in texts. expected: marks if the texts do not tell
    theirs.
    Raises ValueError for equal names, and for a column that cannot be read.
    """
    import narwhals.stable.v2 as nw

    frame = with_index(nw.from_native(df, eager_only=True))
    names = [compose(str(column)) for column in frame.columns]
    check_names(names, name)
    columns: dict[str, pa.ChunkedArray] = {}
    for index, column in enumerate(names):
        if known is None or column in known:
            columns[column] = _cells_of_series(frame[:, index], column, name)
    return _add_marks(Table(name, columns), decimal, expected)


def with_index(frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
    """Return a frame with the named index of pandas as columns, as its Parquet files have it."""
    import narwhals.stable.v2 as nw

    index = nw.maybe_get_index(frame)
    if index is None or not any(index.names) or {*index.names} & {*frame.columns}:
        return frame
    return nw.from_native(frame.to_native().reset_index(), eager_only=True)


def _cells_of_series(values: nw.Series[Any], column: str, name: str) -> pa.ChunkedArray:
    """Return a column of a frame, interpreted by its type, or by its cells if it has none."""
    import narwhals.stable.v2 as nw

    with explain_errors(
        f"{name}: column {column!r} cannot be read: ",
        after="; omit it",
        of=(pa.ArrowException, ArithmeticError, TypeError, ValueError),
    ):
        if values.dtype in (nw.Object, nw.Unknown):
            return _cells_of_objects(values.to_list())
        arrow: Callable[[], pa.Array] = values.to_arrow
        cells = arrow()
        if not isinstance(cells, pa.ChunkedArray):
            cells = pa.chunked_array([cells])
        if is_category(cells) and not _has_plain_levels(cells.type):  # such as intervals
            return cells_of_values(values.to_list()).dictionary_encode()
        return simplify(cells)


def _has_plain_levels(kind: pa.DictionaryType) -> bool:
    levels = kind.value_type
    return not (pa.types.is_nested(levels) or isinstance(levels, pa.BaseExtensionType))


def _cells_of_objects(values: Sequence[object]) -> pa.ChunkedArray:
    """Return cells of values without a common type; lists and arrays are nested."""
    if any(_has_parts(value) for value in values):
        return pa.chunked_array([pa.nulls(len(values), LISTS)])
    return cells_of_values(values)


def _has_parts(value: object) -> bool:
    """Return whether a value has several values."""
    return isinstance(value, list | tuple | dict | set) or bool(getattr(value, "shape", ()))
