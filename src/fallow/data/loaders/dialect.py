"""Format of a text file with a table: encoding, separator, quotes, decimal mark, thousands."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

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
    before the header, such as ``sep=;`` of Excel.
    """

    encoding: str = "utf-8"
    separator: str = ","
    quote: str = '"'
    decimal: str = "."
    thousands: str = ""
    skip: int = 0

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


def sniff(path: Path) -> Dialect:
    """Detect the format of a text file, from its byte-order mark and its first lines.

    Raises ValueError for a file that is not text.
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
    cells: list[str] = []
    for row in _parse_rows(lines[1:], separator, quote):
        cells += [cell.strip() for cell in row]
    least = 1
    if separator == ",":
        # in a comma-separated file, a single number with a comma is more likely an error
        # than a format
        least = 3
    decimal, thousands = _detect_marks(cells, least)
    return Dialect(encoding, separator, quote, decimal, thousands, skip)


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


def _detect_marks(cells: Sequence[str], least: int) -> tuple[str, str]:
    """Return the decimal mark and the thousands separators that occur in the cells.

    A number such as 1,234 is ambiguous. An unambiguous cell decides, such as 3,25 or
    1,234.5. Without one, commas separate thousands. 1.234 has a decimal point, unless
    another cell shows that commas are decimal. Decimal commas require at least ``least``
    cells that show them, and none with a point.
    """
    has_comma = [cell for cell in cells if "," in cell]
    decimal = "."
    thousands = ""
    # 3,25: the comma can only be decimal
    only_decimal = [c for c in has_comma if COMMA.fullmatch(c) and not COMMAS.fullmatch(c)]
    # 1.234,5: points separate thousands, so the comma is decimal
    mixed = [c for c in has_comma if POINTS.fullmatch(c)]
    # 1,234: ambiguous
    grouped = [c for c in has_comma if COMMAS.fullmatch(c)]
    # 1,234,567 and 1,234.5: commas can only separate thousands
    clearly_grouped = [c for c in grouped if c.count(",") > 1 or "." in c]
    # 3.25: the point can only be decimal
    has_points = any(POINT.fullmatch(c) and not POINTS.fullmatch(c) for c in cells)

    shows_comma = len(only_decimal) >= least and not clearly_grouped and not has_points
    if mixed or shows_comma:
        decimal = ","
        if any("." in c and POINTS.fullmatch(c) for c in cells):
            thousands = "."
    elif grouped and not only_decimal:
        thousands = ","
    text = "".join(cells)
    has_gaps = any(mark in text for mark in GAP_MARKS)  # cheaper than the pattern
    if has_gaps and not thousands and any(GAPS.fullmatch(c) for c in cells):
        thousands = GAP_MARKS
    return decimal, thousands
