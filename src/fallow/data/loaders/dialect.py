"""Format of a text file with a table: encoding, separator, quotes, decimal mark, thousands."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from fallow.core.load_options import DecimalMark
from fallow.data.reading import Finding

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
HEAD = 1 << 18  # bytes that are searched for separators and decimal marks
HEAD_LINES = 500
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
    the mark is given.
    """

    encoding: str = "utf-8"
    separator: str = ","
    quote: str = '"'
    decimal: str = "."
    thousands: str = ""
    skip: int = 0
    doubt: str = ""
    is_marked: bool = False

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


def sniff(
    path: Path, decimal: DecimalMark = "auto", expected: DecimalMark = "auto"
) -> Dialect:
    """Detect the format of a text file, from its byte-order mark and its first lines.

    decimal: the decimal mark; "auto" detects it.  expected: the mark if the cells do not tell it,
    such as that of the training data.  Raises ValueError for a file that is not text.
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
    columns: dict[int, list[str]] = {}
    for row in _parse_rows(lines[1:], separator, quote):
        for at, cell in enumerate(row):
            columns.setdefault(at, []).append(cell.strip())
    marks = _detect_marks([*columns.values()], separator, decimal, expected)
    return Dialect(encoding, separator, quote, *marks[:2], skip, *marks[2:])


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


def _detect_marks(
    columns: Sequence[Sequence[str]],
    separator: str,
    decimal: DecimalMark,
    expected: DecimalMark,
) -> Marks:
    """Detect the decimal mark and the thousands separators of the cells in columns.

    An unambiguous cell decides, such as 3,25 or 1,234.5.  Numbers such as 1,234 and 1.234 are
    ambiguous.  ``expected`` decides them, or else the separator and the other cells of their
    column, with a doubt.
    """
    cells = [cell for column in columns for cell in column]
    with_commas = [cell for cell in cells if COMMAS.fullmatch(cell)]
    with_points = [cell for cell in cells if POINTS.fullmatch(cell)]
    is_marked = any(COMMA.fullmatch(c) or POINT.fullmatch(c) for c in cells)
    is_marked = is_marked or bool(with_commas or with_points) or decimal != "auto"
    doubt = ""
    mark: str = decimal
    if decimal == "auto":
        mark = _find_evidence(columns, separator, with_commas, with_points)
    if mark == "auto":
        ambiguous = with_commas or [cell for cell in with_points if cell.count(".") == 1]
        mark = expected
        if expected == "auto" and ambiguous:
            mark = _guess_decimal(columns, separator, ambiguous[0])
            doubt = ambiguous[0]
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
    return Marks(mark, thousands, doubt, is_marked)


NEITHER = ""
"""Decimal mark of a file in which a comma is decimal in one cell and not in another."""


def _find_evidence(
    columns: Sequence[Sequence[str]],
    separator: str,
    with_commas: Sequence[str],
    with_points: Sequence[str],
) -> str:
    """Return the decimal mark that unambiguous cells show, "auto" without any.

    with_commas, with_points: cells of which these may separate thousands.
    """
    cells = [cell for column in columns for cell in column]
    # in a comma-separated file, a single number with a comma is more likely an error than a format
    least = 3 if separator == "," else 1
    # 1.234,5: points separate thousands
    if any("," in cell for cell in with_points):
        return ","
    # 3.25: the point can only be decimal
    has_point = any(POINT.fullmatch(c) and not POINTS.fullmatch(c) for c in cells)
    # 1,234,567 and 1,234.5: commas can only separate thousands
    has_point = has_point or any(c.count(",") > 1 or "." in c for c in with_commas)
    # 3,25: the comma can only be decimal
    n_commas = sum(bool(COMMA.fullmatch(c)) and not COMMAS.fullmatch(c) for c in cells)
    if n_commas >= least and not has_point:
        return ","
    if n_commas:
        return NEITHER
    if has_point:
        return "."
    # 1.234.567: points separate thousands, unless the column has addresses or versions
    are_grouped = any(map(_are_grouped_by_points, columns))
    return "," if are_grouped else "auto"


def _are_grouped_by_points(column: Sequence[str]) -> bool:
    """Return whether all cells are numbers with points between thousands, one with two points."""
    if not any(cell.count(".") > 1 for cell in column):
        return False
    return all(POINTS.fullmatch(c) or (c.isdecimal() and len(c) <= 3) for c in column if c)


def _guess_decimal(columns: Sequence[Sequence[str]], separator: str, number: str) -> str:
    """Return the probable decimal mark of a file with numbers such as 3,215 or 3.215.

    Semicolons separate cells where commas are decimal.  Whole numbers in the same column tell
    more: 845 beside 3,215 is below one thousand, and 4512 would be 4,512.
    """
    mark = "," if "," in number else "."
    other = "," if mark == "." else "."
    pattern = GROUPED[mark]
    lengths: list[int] = []
    for column in columns:
        if any(mark in cell and pattern.fullmatch(cell) for cell in column):
            lengths += [len(cell) for cell in column if cell.isdecimal()]
    usual = "," if separator == ";" else "."
    if lengths and max(lengths) > 3:
        return mark
    if lengths and separator == ";":
        return other
    return "." if mark == "." else usual
