"""Cells of a table by column, from text files, Excel, Parquet, Feather and data frames."""

from __future__ import annotations

import csv
import io
import lzma
import math
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from fallow.core.optional import import_optional
from fallow.core.refusal import explain_errors
from fallow.data.loaders.dialect import Dialect, detect
from fallow.data.loaders.workbook import check_workbook_fits
from fallow.storage.received import check_fits, check_no_pipe
from fallow.storage.table_suffixes import EXCEL_FILES, PARQUET_FILES, TEXT_FILES

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw
    from narwhals.stable.v2.typing import IntoDataFrame
    from pyarrow.parquet import FileMetaData

EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Texts for a missing feature, in lower case."""
UNPACKING = (zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""Errors for a damaged or protected archive."""
CHUNK = 20_000  # texts that are processed at once
CELL_BYTES = 8  # bytes of a number, and at least of a reference to a text
SNIFFED = 500  # first rows, which determine the numeric columns

Numbers = npt.NDArray[np.float32]
ReportBytes = Callable[[int, int], None]
"""Function that receives the number of bytes read, and of all bytes."""


IsText = Callable[[str], bool]
"""Function that returns whether a column is text regardless of its cells, by its name."""


def no_text(name: str) -> bool:
    """Return False: every column whose cells are all numbers is numeric."""
    return False


def ignore_bytes(done: int, total: int) -> None:
    """Ignore the progress."""


@final
@dataclass(frozen=True, eq=False)
class ColumnCells:
    """A column: numbers (n,) float32 with NaN for empty cells, or texts unchanged.

    is_category: texts even if they look like numbers, by the type of a frame. is_date:
    dates and times, by the type in a file or a frame.
    """

    numbers: Numbers | None = None
    texts: Sequence[str] | None = None
    is_category: bool = False
    is_date: bool = False

    def __len__(self) -> int:
        if self.numbers is not None:
            return len(self.numbers)
        assert self.texts is not None  # noqa: S101 - a column is one of both
        return len(self.texts)


@final
@dataclass(frozen=True, eq=False)
class ReadTable:
    """Columns of a file in order, and notes on its format."""

    columns: dict[str, ColumnCells]
    notes: tuple[str, ...] = ()
    dialect: Dialect = field(default_factory=Dialect)

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))


def read_file(
    path: Path, is_text: IsText = no_text, notify: ReportBytes = ignore_bytes
) -> ReadTable:
    """Read the columns of a table; ``is_text`` returns the columns to keep as text, such as labels.

    Other columns are numeric if all cells are numbers or empty, and text otherwise. Raises
    ValueError with the name of the file, and the row of the error.
    """
    check_no_pipe(path)
    ending = path.suffix.lower()
    if ending in TEXT_FILES:
        read = _read_text(path, is_text, notify)
    elif ending in EXCEL_FILES:
        read = _read_excel(path, is_text)
    else:
        read = _read_arrow(path, is_text)
    if not read.columns or read.rows == 0:
        raise ValueError(f"{path.name} has no rows; give a header and at least one row")
    return read


# -- text files -----------------------------------------------------------------------------


def _read_text(path: Path, is_text: IsText, notify: ReportBytes) -> ReadTable:
    """Read the columns of a text file."""
    dialect = detect(path)
    names = _read_header(path, dialect)
    numeric = _looks_numeric(path, dialect, names)
    numeric -= {name for name in names if is_text(name)}
    while True:
        columns, mistaken = _read_by_lines(path, dialect, names, numeric, notify)
        if not mistaken:
            return ReadTable(columns, dialect.notes(path.name), dialect)
        numeric -= mistaken  # columns with texts among numbers are read again, as text


def _read_lines(
    path: Path, dialect: Dialect, notify: ReportBytes = ignore_bytes
) -> Iterator[list[str]]:
    """Yield the rows of a file, header first, without blank lines."""
    total = path.stat().st_size
    with (
        explain_errors(
            f"{path.name} is not a CSV file: ", of=(UnicodeDecodeError, csv.Error)
        ),
        path.open("rb") as raw,
        io.TextIOWrapper(raw, encoding=dialect.encoding, newline="") as file,
    ):
        reader = csv.reader(
            file, strict=True, delimiter=dialect.separator, quotechar=dialect.quote
        )
        for row in reader:
            if reader.line_num % CHUNK == 0:
                notify(min(raw.tell(), total), total)
            if row:
                yield row
    notify(total, total)


def _read_header(path: Path, dialect: Dialect) -> list[str]:
    """Return the names of the columns; a column without a name gets its number."""
    return _name_columns(next(_read_lines(path, dialect), []), path.name)


def _name_columns(header: Sequence[str], file: str) -> list[str]:
    """Return the names in a header; ValueError for equal names."""
    names = []
    for index, name in enumerate(header, start=1):
        names.append(name.strip() or f"column {index}")
    _check_names(names, file)
    return names


def _check_names(names: Sequence[str], file: str) -> None:
    """Raise ValueError if two columns have the same name."""
    double = sorted(name for name, times in Counter(names).items() if times > 1)
    if double:
        raise ValueError(f"{file} has more than one column {double[0]!r}; rename one")


def _looks_numeric(path: Path, dialect: Dialect, names: Sequence[str]) -> set[str]:
    """Return the columns whose first cells are all numbers or empty."""
    numeric = set(names)
    rows = _read_lines(path, dialect)
    next(rows, None)  # the header
    for row in islice(rows, SNIFFED):
        for name, cell in zip(names, row, strict=False):
            if name in numeric and _parse_number(cell.strip(), dialect) is None:
                numeric.discard(name)
    return numeric


def _parse_number(cell: str, dialect: Dialect) -> float | None:
    """Return the number in a cell, NaN for an empty cell, and None for text."""
    if cell.lower() in EMPTY:
        return math.nan
    return number_in(dialect.number(cell))


def number_in(cell: str) -> float | None:
    """Return the number in a cell, or None for text.

    >>> number_in("1e3"), number_in("63,5")
    (1000.0, None)
    """
    try:
        return float(cell)
    except ValueError:
        return None


def _join_blocks(blocks: list[Numbers]) -> Numbers:
    """Return the numbers of a column, (n,); n is 0 in a file with only a header."""
    if not blocks:
        return np.zeros(0, dtype=np.float32)
    return np.concatenate(blocks)


def _read_by_lines(
    path: Path,
    dialect: Dialect,
    names: Sequence[str],
    numeric: set[str],
    notify: ReportBytes,
) -> tuple[dict[str, ColumnCells], set[str]]:
    """Read the columns line by line, and return which of ``numeric`` contain text."""
    blocks: dict[str, list[Numbers]] = {name: [] for name in numeric}
    texts: dict[str, list[str]] = {name: [] for name in names if name not in numeric}
    mistaken: set[str] = set()
    known: dict[str, str] = {}  # equal texts share memory
    for first, rows in _read_chunks(path, dialect, notify):
        _check_widths(path, names, rows, first)
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            if name not in numeric:
                result = [cell.strip() for cell in column]
                texts[name] += [known.setdefault(cell, cell) for cell in result]
            elif name not in mistaken:
                numbers = _parse_numbers(column, dialect)
                if numbers is None:
                    mistaken.add(name)
                else:
                    blocks[name].append(numbers)
    columns: dict[str, ColumnCells] = {}
    for name in names:
        if name in numeric:
            columns[name] = ColumnCells(_join_blocks(blocks.pop(name)))
        else:
            columns[name] = ColumnCells(texts=texts[name])
    return columns, mistaken


def _read_chunks(
    path: Path, dialect: Dialect, notify: ReportBytes
) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield blocks of rows, with the number of the first row, from 1."""
    rows = _read_lines(path, dialect, notify)
    next(rows, None)  # the header
    first = 1
    chunk: list[list[str]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield first, chunk
            first += len(chunk)
            chunk = []
    if chunk:
        yield first, chunk


def _check_widths(
    path: Path, names: Sequence[str], rows: Sequence[Sequence[str]], first: int
) -> None:
    for number, row in enumerate(rows, start=first):
        if len(row) != len(names):
            raise ValueError(
                f"{path.name}: row {number} has {len(row)} cells and the header "
                f"{len(names)}; correct this row (put a text with the separator in quotes)"
            )


def _parse_numbers(column: Sequence[str], dialect: Dialect) -> Numbers | None:
    """Return the numbers of cells (n,), NaN for empty ones; None if one is text."""
    wide = None
    if dialect.is_plain:
        wide = _parse_at_once(column)
    if wide is None:
        numbers = [_parse_number(cell.strip(), dialect) for cell in column]
        if None in numbers:
            return None
        wide = np.array(numbers, dtype=np.float64)
    with np.errstate(over="ignore"):  # beyond 3.4e38 is infinite
        return wide.astype(np.float32)


def _parse_at_once(column: Sequence[str]) -> npt.NDArray[np.float64] | None:
    """Return the numbers of a column without empty cells, which is fast; None otherwise."""
    try:
        return np.fromiter(map(float, column), np.float64, len(column))
    except ValueError:
        return None


# -- files and frames whose columns have types ----------------------------------------------


def _read_excel(path: Path, is_text: IsText) -> ReadTable:
    openpyxl = import_optional("openpyxl", "openpyxl", "reading an Excel file")
    with suppress(OSError, zipfile.BadZipFile, *UNPACKING):  # reported later
        check_workbook_fits(path)
    with (  # openpyxl raises any error for a damaged archive
        explain_errors(f"{path.name} could not be read as Excel: ", of=Exception),
        path.open("rb") as opened,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of parts without cells, such as styles
        book = openpyxl.load_workbook(opened, read_only=True, data_only=True)
        sheets = book.sheetnames
        sheet = book[sheets[0]]
        sheet.reset_dimensions()  # those in the file may be wrong
        rows = [row for row in map(_read_excel_row, sheet.iter_rows()) if row]
    if not rows:
        return ReadTable({})
    names = _name_columns(
        ["" if cell is None else str(cell) for cell in rows[0]], path.name
    )
    for number, row in enumerate(rows[1:], start=1):
        if len(row) > len(names):
            raise ValueError(
                f"{path.name}: row {number} has {len(row)} cells and the header "
                f"{len(names)}; name every column in the header"
            )
        row += [None] * (len(names) - len(row))
    columns: dict[str, ColumnCells] = {}
    for index, name in enumerate(names):
        cells = [row[index] for row in rows[1:]]
        columns[name] = cells_of_values(cells, is_text(name))
    notes: tuple[str, ...] = ()
    if len(sheets) > 1:
        notes = (
            f"{path.name}: only the first of {len(sheets)} sheets, {sheets[0]!r}, was read",
        )
    return ReadTable(columns, notes)


def _read_excel_row(row: Sequence[Any]) -> list[object]:  # cells of openpyxl
    """Return the values of a row up to the last one, with None for errors and empty cells."""
    values: list[object] = []
    for cell in row:
        is_empty = cell.data_type == "e" or cell.value == ""
        values.append(None if is_empty else cell.value)
    while values and values[-1] is None:
        values.pop()
    return values


def _read_arrow(path: Path, is_text: IsText) -> ReadTable:
    is_parquet = path.suffix.lower() in PARQUET_FILES
    kind = "Feather"
    module = "pyarrow.feather"
    if is_parquet:
        kind = "Parquet"
        module = "pyarrow.parquet"
    purpose = f"reading a {kind} file"
    arrow = import_optional("pyarrow", "pyarrow", purpose)
    reader = import_optional(module, "pyarrow", purpose)
    with explain_errors(
        f"{path.name} could not be read as {kind}: ", of=(arrow.ArrowException, OSError)
    ):
        if is_parquet:
            with reader.ParquetFile(path) as opened:
                _check_names(opened.schema_arrow.names, path.name)
                check_fits(path.name, _estimate_bytes(opened.metadata))
        table = reader.read_table(path)
    return cells_of_frame(table, path.name, is_text)


def _estimate_bytes(metadata: FileMetaData) -> int:
    """Estimate the size of a Parquet file in memory from its metadata.

    A repeated value takes a few bytes in the file but one cell per row in memory.
    """
    unpacked = sum(
        metadata.row_group(group).total_byte_size
        for group in range(metadata.num_row_groups)
    )
    n_bytes: int = unpacked + CELL_BYTES * metadata.num_rows * metadata.num_columns
    return n_bytes


def is_frame(value: object) -> bool:
    """Return whether a value is a table in memory: of pandas, polars or Arrow, among others.

    Raises ValueError for a table in which two columns have the same name.
    """
    if not hasattr(value, "columns"):  # before narwhals is imported
        return False
    import narwhals.stable.v2 as nw

    try:
        native = nw.from_native(value, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        _check_names(list(map(str, value.columns)), "the DataFrame")
        raise
    return isinstance(native, nw.DataFrame)


def cells_of_frame(
    df: IntoDataFrame,
    name: str,
    is_text: IsText = no_text,
    known: Collection[str] | None = None,
) -> ReadTable:
    """Return the columns of a frame by their names as text; only those that are ``known``.

    Raises ValueError for equal names, and for a column that cannot be read.
    """
    import narwhals.stable.v2 as nw

    frame = nw.from_native(df, eager_only=True)
    names = list(map(str, frame.columns))
    _check_names(names, name)
    columns: dict[str, ColumnCells] = {}
    for index, column in enumerate(names):
        if known is not None and column not in known:
            continue
        with explain_errors(
            f"{name}: column {column!r} cannot be read: ",
            after="; omit it",
            of=(ArithmeticError, ValueError),  # such as dates after 9999
        ):
            columns[column] = cells_of_series(frame[:, index], is_text(column))
    return ReadTable(columns)


def cells_of_series(values: nw.Series[Any], as_texts: bool = False) -> ColumnCells:
    """Return a column of a frame, interpreted by its type, or by its cells if it has none.

    as_texts: numbers become text too, integers without a decimal point.
    """
    import narwhals.stable.v2 as nw

    dtype = values.dtype
    if not as_texts and (dtype.is_numeric() or dtype == nw.Boolean):
        return _narrow(values.cast(nw.Float64).to_numpy())
    absent = values.is_null().to_list()
    cells = values.to_list()
    filled = [None if lacks else cell for cell, lacks in zip(cells, absent, strict=True)]
    is_typed = dtype not in (nw.Object, nw.Unknown)
    read = cells_of_values(filled, as_texts or is_typed)
    return replace(read, is_date=read.is_date or dtype.is_temporal())


def cells_of_values(cells: Sequence[object], as_texts: bool = False) -> ColumnCells:
    """Return a column of values of any types, with None or NaN for empty cells."""
    value = [cell for cell in cells if not _is_absent(cell)]
    has_numbers = any(_is_number(cell) for cell in value)
    is_numeric = all(_is_number(cell) for cell in value)
    is_numeric |= all(isinstance(cell, bool) for cell in value)
    if value and is_numeric and not as_texts:
        numbers = [math.nan if _is_absent(cell) else cell for cell in cells]
        return _narrow(np.array(numbers, dtype=np.float64))
    texts = ["" if _is_absent(cell) else _format_cell(cell) for cell in cells]
    is_date = bool(value) and all(hasattr(cell, "isoformat") for cell in value)
    return ColumnCells(texts=texts, is_category=not has_numbers, is_date=is_date)


def _narrow(numbers: npt.NDArray[np.float64]) -> ColumnCells:
    with np.errstate(over="ignore"):  # beyond 3.4e38 is infinite
        return ColumnCells(numbers.astype(np.float32))


def _is_absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _format_cell(value: object) -> str:
    """Return a cell of a frame as text, an integer without a decimal point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
