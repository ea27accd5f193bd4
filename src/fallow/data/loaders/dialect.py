"""Format of a text file with a table: encoding, separator, quotes, decimal mark, thousands."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from fallow.core.load_options import DecimalMark
from fallow.data.loaders.text_rules import is_empty, split_unit
from fallow.data.reading import Finding, warning

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
HEAD = 1 << 18  # bytes that are searched for separators
HEAD_LINES = 500
MOST_MARKED = 10_000
"""Different cells of a column, after the first ones, that are searched for decimal marks."""
BLOCK = 1 << 20
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
IN_WORDS = {"cp1252": "Latin-1 (Windows-1252)", "latin-1": "Latin-1"}
POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?")  # 1.234.567,8; not 0.123
COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")  # 1,234,567.8; not 0,123
GAP_MARKS = " '’\u00a0\u202f"
GAPS = re.compile(rf"[+-]?\d{{1,3}}([{GAP_MARKS}]\d{{3}})+([.,]\d+)?")  # 1 234 567.8
COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")  # 3,25
POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")  # 3.25
MARKED = r"^\s*\D?\s*\d[\d.,]*\D{0,14}$"
"""Cells that may be numbers, with a unit or without."""
CLOCK = re.compile(r"([01]?\d|2[0-3])\.[0-5]\d")  # 14.30
VERSION = re.compile(r"[1-9]\d?\.\d")  # 2.0
DECLARED = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
"""First line by which Excel declares the separator."""
GROUPED = {".": POINTS, ",": COMMAS}
"""Pattern of a number with a thousands separator; `GAPS` for any other separator."""
THOUSANDS_IN_WORDS = {".": "points", ",": "commas"}


@final
@dataclass(frozen=True)
class Dialect:
    """Format of the cells of one file.

    thousands: all characters between groups of three digits, "" if there are none.  skip: lines
    before the header, such as ``sep=;`` of Excel.  doubt: a number such as 3,215, if no cell of
    the file tells whether its mark is decimal; else "".  is_marked: some number has a mark, or
    the mark is given.  both: two numbers, if the mark is a comma in some columns and a point in
    others; else ().
    """

    encoding: str = "utf-8"
    separator: str = ","
    quote: str = '"'
    decimal: str = "."
    thousands: str = ""
    skip: int = 0
    doubt: str = ""
    is_marked: bool = False
    both: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether numbers are in Python's format."""
        return self.decimal == "." and not self.thousands

    def plain_numbers(self, cells: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return texts with their numbers in Python's format; other texts are unchanged.

        >>> import pyarrow as pa
        >>> cells = pa.chunked_array([["1.234,5", "a,b"]])
        >>> Dialect(decimal=",", thousands=".").plain_numbers(cells).to_pylist()
        ['1234.5', 'a,b']
        """
        if self.is_plain:
            return cells
        import pyarrow.compute as pc

        if self.thousands:
            grouped = GROUPED.get(self.thousands, GAPS)
            is_grouped = pc.match_substring_regex(cells, f"^(?:{grouped.pattern})$")
            joined = pc.replace_substring_regex(cells, f"[{self.thousands}]", "")
            if not (self.thousands == "." and _has_decimal_point(cells)):
                cells = pc.if_else(is_grouped, joined, cells)
        if self.decimal == ",":
            is_comma = pc.match_substring_regex(cells, f"^(?:{COMMA.pattern})$")
            cells = pc.if_else(is_comma, pc.replace_substring(cells, ",", "."), cells)
        return cells

    @property
    def known_decimal(self) -> DecimalMark:
        """Return the decimal mark by which files of the same source are read, or "auto"."""
        if not self.is_marked:
            return "auto"
        return "," if self.decimal == "," else "."

    def find_doubt(self, name: str) -> list[Finding]:
        """Return a warning of numbers whose mark may be decimal or separate thousands."""
        if self.both:
            comma, point = self.both
            sentence = f"{name}: numbers such as {comma} and {point} were both read as decimal numbers"
            return [warning(sentence, "decimal='.' if the comma is not decimal")]
        if not self.doubt:
            return []
        (mark,) = {*self.doubt} & {".", ","}
        as_decimal = self.doubt.replace(mark, ".")
        as_whole = self.doubt.replace(mark, "")
        other = "," if self.decimal == "." else "."
        readings = (
            [as_decimal, as_whole] if mark == self.decimal else [as_whole, as_decimal]
        )
        sentence = (
            f"{name}: numbers such as {self.doubt} were read as {readings[0]}, and may be "
            f"{readings[1]}, because all have three digits after the mark"
        )
        # programs write comma-separated files with decimal points
        is_usual = self.separator == "," and mark == self.decimal == "."
        return [Finding("warning", sentence, f"decimal={other!r}", is_doubtful=is_usual)]

    def notes(self, name: str) -> tuple[str, ...]:
        """Return deviations from the usual CSV format, as sentences."""
        result: list[str] = []
        if self.encoding not in ("utf-8", "utf-8-sig"):
            word = IN_WORDS.get(self.encoding, self.encoding.upper())
            result.append(f"{name} was read as {word}")
        if self.separator != ",":
            mark = SEPARATORS.get(self.separator, repr(self.separator))
            result.append(f"{name}: cells are separated by {mark}")
        if self.quote != '"':
            result.append(f"{name}: texts are in {self.quote} quotes")
        if self.decimal == ",":
            result.append(f"{name}: numbers have a decimal comma")
        if self.thousands:
            marks = THOUSANDS_IN_WORDS.get(self.thousands, "gaps")
            result.append(f"{name}: thousands are separated by {marks}")
        return tuple(result)


def _has_decimal_point(cells: pa.ChunkedArray) -> bool:
    """Return whether the point of some number, such as 3.25, separates no thousands."""
    import pyarrow.compute as pc

    has_point = pc.match_substring_regex(cells, f"^(?:{POINT.pattern})$")
    is_grouped = pc.match_substring_regex(cells, f"^(?:{POINTS.pattern})$")
    return bool(pc.any(pc.and_not(has_point, is_grouped)).as_py())


def sniff(path: Path) -> Dialect:
    """Detect the format of a text file, from its byte-order mark and its first lines.

    `settle_marks` adds the marks of its numbers.  Raises ValueError for a file that is not text.
    """
    encoding = _detect_encoding(path)
    lines = _read_first_lines(path, encoding)
    skip = 0
    declared = DECLARED.fullmatch(lines[0].strip()) if lines else None
    if declared is not None:
        skip = 1
        lines = lines[1:]
    quote = _detect_quote(lines)
    separator = _detect_separator(lines, quote)
    if declared is not None:
        separator = declared[1]
    return Dialect(encoding, separator, quote, skip=skip)


def settle_marks(
    dialect: Dialect,
    columns: Iterable[pa.ChunkedArray],
    decimal: DecimalMark = "auto",
    expected: DecimalMark = "auto",
) -> Dialect:
    """Return the format with the decimal mark and thousands separators of all texts in columns.

    decimal: the decimal mark; "auto" detects it.  expected: the mark if the cells do not tell it,
    such as that of the training data.
    """
    cells = [_list_marked(column) for column in columns]
    return replace(
        dialect, **_detect_marks(cells, dialect.separator, decimal, expected)._asdict()
    )


def _list_marked(cells: pa.ChunkedArray) -> list[str]:
    """Return the first cells of a column, and later ones whose marks may tell more."""
    import pyarrow.compute as pc

    first = [(cell or "").strip() for cell in cells.slice(0, HEAD_LINES).to_pylist()]
    later = cells.slice(HEAD_LINES)
    if not len(later):
        return first
    # a column of 3.25 is searched for commas, and one of 3,25 for points: its own mark is known
    marks = ","
    if not any(map(_is_decimal_point, first)):
        marks = "." if any(map(_is_decimal_comma, first)) else ".,"
    for mark in marks:
        marked = later.filter(pc.match_substring(later, mark))
        marked = marked.filter(pc.match_substring_regex(marked, MARKED)).unique()
        first += [cell.strip() for cell in marked.slice(0, MOST_MARKED).to_pylist()]
    return first


def _is_decimal_point(cell: str) -> bool:
    """Return whether the point of a number can only be decimal, as in 3.25."""
    return POINT.fullmatch(cell) is not None and not POINTS.fullmatch(cell)


def _is_decimal_comma(cell: str) -> bool:
    """Return whether the comma of a number can only be decimal, as in 3,25."""
    return COMMA.fullmatch(cell) is not None and not COMMAS.fullmatch(cell)


def _detect_encoding(path: Path) -> str:
    """Detect the encoding: by its mark, else UTF-8 if the file is valid, else UTF-16,
    Windows-1252, or Latin-1, which defines every byte.
    """
    with path.open("rb") as file:
        head = file.read(BLOCK)
    for mark, name in MARKS:
        if head.startswith(mark):
            return name
    if b"\0" in head:
        return _detect_utf16(path, head)
    for name in ("utf-8", "cp1252"):
        if _is_valid(path, name):
            return name
    return "latin-1"


def _is_valid(path: Path, encoding: str) -> bool:
    """Return whether the whole file is text of this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with path.open("rb") as file:
        try:
            while block := file.read(BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _detect_utf16(path: Path, head: bytes) -> str:
    """Detect UTF-16 without a mark: most letters have a zero as one of their two bytes."""
    zeros_first = head[0::2].count(0)
    zeros_second = head[1::2].count(0)
    half = len(head) // 2
    has_lines = b"\n" in head or b"\r" in head
    if has_lines and zeros_second > 0.4 * half and zeros_first < 0.1 * half:
        return "utf-16-le"
    if has_lines and zeros_first > 0.4 * half and zeros_second < 0.1 * half:
        return "utf-16-be"
    raise ValueError(
        f"{path.name} is not a text table, because it contains bytes of value 0; give "
        "a CSV file"
    )


def _read_first_lines(path: Path, encoding: str) -> list[str]:
    """Return the first lines of a file that are not blank, without the last, which may be
    cut.
    """
    with path.open("rb") as file:
        raw = file.read(HEAD)
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(raw)
    lines = io.StringIO(text, newline=None).readlines()
    if len(raw) == HEAD and len(lines) > 1:
        lines = lines[:-1]
    return [line for line in lines if line.strip()][:HEAD_LINES]


def _detect_quote(lines: Sequence[str]) -> str:
    """Return single quotes if texts are in them and no text is in double quotes."""
    text = "".join(lines)
    if '"' in text:
        return '"'
    quoted = re.findall(r"(?:^|[,;\t|])'[^'\n]*'(?=[,;\t|\r\n]|$)", text, re.MULTILINE)
    if len(quoted) >= 2:
        return "'"
    return '"'


def _detect_separator(lines: Sequence[str], quote: str) -> str:
    """Return the separator that splits the header and most lines into the same number of
    cells.
    """
    best = (0.0, 0)  # share of lines as long as the header, cells of the header
    chosen = ","
    for mark in SEPARATORS:
        counts = [len(row) for row in _parse_rows(lines, mark, quote)]
        if not counts or counts[0] < 2:
            continue
        agreeing = sum(count == counts[0] for count in counts) / len(counts)
        score = (agreeing, counts[0])
        if score > best:
            best = score
            chosen = mark
    return chosen


def _parse_rows(lines: Sequence[str], separator: str, quote: str) -> Iterator[list[str]]:
    """Return the rows up to the first invalid one."""
    try:
        yield from csv.reader(lines, delimiter=separator, quotechar=quote)
    except csv.Error:
        return


class Marks(NamedTuple):
    """Marks of the numbers in a file, as fields of `Dialect`."""

    decimal: str
    thousands: str
    doubt: str
    is_marked: bool
    both: tuple[str, ...]


def _detect_marks(
    columns: Sequence[Sequence[str]],
    separator: str,
    decimal: DecimalMark,
    expected: DecimalMark,
) -> Marks:
    """Detect the decimal mark and the thousands separators of the cells in columns.

    An unambiguous cell decides, such as 3,25 or 1,234.5.  Numbers such as 1,234 and 1.234 are
    ambiguous.  ``expected`` decides them, or else the separator and the other cells of their
    column, with a doubt.  Numbers with a unit decide only if no other number does.
    """
    without_units = [_omit_units(column) for column in columns]
    cells = [cell for column in without_units for cell in column]
    with_commas = [cell for cell in cells if COMMAS.fullmatch(cell)]
    with_points = [
        cell
        for column in without_units
        if not any(map(_is_decimal_point, column))
        for cell in column
        if POINTS.fullmatch(cell)
    ]
    is_marked = any(COMMA.fullmatch(c) or POINT.fullmatch(c) for c in cells)
    is_marked = is_marked or bool(with_commas or with_points) or decimal != "auto"
    doubt = ""
    both: tuple[str, ...] = ()
    mark: str = decimal
    if decimal == "auto":
        mark, both = _find_evidence(columns, separator)
        if mark == "auto":
            mark, both = _find_evidence(without_units, separator)
    if mark in ("auto", PERHAPS_POINT):
        ambiguous = with_commas or [cell for cell in with_points if cell.count(".") == 1]
        if expected == "auto" and ambiguous:
            doubt = ambiguous[0]
            if mark == "auto":
                expected = _guess_decimal(without_units, separator, doubt)
        mark = "." if (mark, expected) == (PERHAPS_POINT, "auto") else expected
    thousands = ""
    if mark == "," and with_points:
        thousands = "."
    elif mark == "." and with_commas:
        thousands = ","
    if mark == NEITHER or mark == "auto":
        mark = "."
    text = "".join(cells)
    has_gaps = any(gap in text for gap in GAP_MARKS)  # cheaper than the pattern
    if has_gaps and not thousands and any(GAPS.fullmatch(c) for c in cells):
        thousands = GAP_MARKS
    return Marks(mark, thousands, doubt, is_marked, both)


def _omit_units(column: Sequence[str]) -> Sequence[str]:
    """Return the numbers of a column in which all cells have a unit, else its cells."""
    numbers: list[str] = []
    for cell in column:
        if is_empty(cell):
            continue
        parts = split_unit(cell)
        if parts is None:
            return column
        numbers.append(parts[0])
    return numbers


NEITHER = ""
"""Decimal mark of a file in which a comma is decimal in one cell and not in another."""
PERHAPS_POINT = "?"
"""Decimal mark of a file in which only times of day, as 14.30, or versions, as 2.0, have points."""


def _find_evidence(
    columns: Sequence[Sequence[str]], separator: str
) -> tuple[str, tuple[str, ...]]:
    """Return the decimal mark that unambiguous cells show, "auto" without any.

    Also return a number with a comma and one with a point, if both are decimal in their columns.
    """
    cells = [cell for column in columns for cell in column]
    # in a comma-separated file, a single number with a comma is more likely an error than a format
    least = 3 if separator == "," else 1
    # 1.234,5: points separate thousands
    if any("," in cell and POINTS.fullmatch(cell) for cell in cells):
        return ",", ()
    point_columns = [column for column in columns if any(map(_is_decimal_point, column))]
    # 1,234,567 and 1,234.5: commas can only separate thousands
    has_groups = any(
        (cell.count(",") > 1 or "." in cell) and COMMAS.fullmatch(cell) for cell in cells
    )
    commas = [cell for cell in cells if _is_decimal_comma(cell)]
    if len(commas) >= least and not point_columns and not has_groups:
        return ",", ()
    if commas:
        comma_columns = [col for col in columns if any(map(_is_decimal_comma, col))]
        are_apart = separator != "," and not has_groups
        if are_apart and all(map(_are_numbers_with_comma, comma_columns)):
            point = next(filter(_is_decimal_point, point_columns[0]))
            return ",", (commas[0], point)
        return NEITHER, ()
    if has_groups:
        return ".", ()
    if point_columns:
        are_codes = separator != "," and all(map(_are_codes, point_columns))
        return (PERHAPS_POINT if are_codes else "."), ()
    # 1.234.567: points separate thousands, unless the column has addresses or versions
    are_grouped = any(map(_are_grouped_by_points, columns))
    return ("," if are_grouped else "auto"), ()


def _are_numbers_with_comma(column: Sequence[str]) -> bool:
    """Return whether all cells are numbers, of which none has a decimal point."""
    return all(
        cell.isdecimal()
        or COMMA.fullmatch(cell)
        or POINTS.fullmatch(cell)
        or is_empty(cell)
        for cell in column
    )


def _are_codes(column: Sequence[str]) -> bool:
    """Return whether the numbers with a point may all be times of day, or all versions."""
    pointed = [cell for cell in column if POINT.fullmatch(cell)]
    return any(all(map(form.fullmatch, pointed)) for form in (CLOCK, VERSION))


def _are_grouped_by_points(column: Sequence[str]) -> bool:
    """Return whether all cells are numbers with points between thousands, one with two points."""
    if not any(cell.count(".") > 1 for cell in column):
        return False
    return all(POINTS.fullmatch(c) or (c.isdecimal() and len(c) <= 3) for c in column if c)


def _guess_decimal(
    columns: Sequence[Sequence[str]], separator: str, number: str
) -> DecimalMark:
    """Return the probable decimal mark of a file with numbers such as 3,215 or 3.215.

    Semicolons separate cells where commas are decimal.  Whole numbers in the same column tell
    more: 845 beside 3,215 is below one thousand, and 4512 would be 4,512.
    """
    mark: DecimalMark = "," if "," in number else "."
    other: DecimalMark = "," if mark == "." else "."
    pattern = GROUPED[mark]
    lengths: list[int] = []
    for column in columns:
        if any(mark in cell and pattern.fullmatch(cell) for cell in column):
            lengths += [len(cell) for cell in column if cell.isdecimal()]
    usual: DecimalMark = "," if separator == ";" else "."
    if lengths and max(lengths) > 3:
        return mark
    if lengths and separator == ";":
        return other
    return "." if mark == "." else usual
