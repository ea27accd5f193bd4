"""Marks of the numbers in texts: is 3,215 a fraction, or are there three thousands?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

from fallow.core.load_options import UNKNOWN_MARKS, DecimalMark, KnownMarks
from fallow.data.loaders.text_rules import GAP_MARKS, is_empty, split_unit
from fallow.data.reading import Finding, list_notes, warning

if TYPE_CHECKING:
    import pyarrow as pa

FIRST = 500
"""First cells of a column, which are all searched for marks."""
MOST_MARKED = 10_000
"""Different cells of a column, after the first ones, that are searched for marks."""
POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?")  # 1.234.567,8; not 0.123
COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")  # 1,234,567.8; not 0,123
NO_GAPS = str.maketrans("", "", GAP_MARKS)
GAPS = re.compile(rf"[+-]?\d{{1,3}}([{GAP_MARKS}]\d{{3}})+([.,]\d+)?")  # 1 234 567.8
COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")  # 3,25
POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")  # 3.25
MARKED = r"^\s*\D?\s*\d[\d.,]*\D{0,14}$"
"""Cells that may be numbers, with a unit or without."""
CLOCK = re.compile(r"([01]?\d|2[0-3])\.[0-5]\d")  # 14.30
VERSION = re.compile(r"[1-9]\d?\.\d")  # 2.0
OTHER: Mapping[DecimalMark, DecimalMark] = {".": ",", ",": "."}
"""Mark that separates thousands, for each decimal mark."""
GROUPED = {".": POINTS, ",": COMMAS}
"""Pattern of a number with a thousands separator; `GAPS` for any other separator."""
THOUSANDS_IN_WORDS = {".": "points", ",": "commas"}


@final
@dataclass(frozen=True)
class Marks:
    """Marks of the numbers in the texts of a table.

    thousands: all characters between groups of three digits, "" if there are none.  doubt: a
    number such as 3,215, if no cell tells whether its mark is decimal; else "".  is_usual: the
    doubtful number has the mark that programs write.  is_marked: some number has a mark, or the
    mark is given.  both: two numbers, if the mark is a comma in some columns and a point in
    others; else ().  points: columns with a decimal point beside columns with decimal commas.
    """

    decimal: DecimalMark = "."
    thousands: str = ""
    doubt: str = ""
    is_usual: bool = False
    is_marked: bool = False
    both: tuple[str, ...] = ()
    points: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether numbers are in Python's format."""
        return self.decimal == "." and not self.thousands

    @property
    def known(self) -> KnownMarks:
        """Return what further files of the same source are read by."""
        if not self.is_marked:
            return UNKNOWN_MARKS
        return KnownMarks(self.decimal, self.points)

    def of(self, column: str) -> Marks:
        """Return the marks of one column."""
        if column in self.points and self.thousands == ".":
            return replace(self, thousands="")
        return self

    def join(self, other: Marks) -> Marks:
        """Return the marks of this table and another one with the same decimal mark."""
        if not self.is_marked:
            return other
        points = {*self.points, *other.points}
        return replace(
            self,
            thousands=self.thousands or other.thousands,
            points=tuple(sorted(points)),
        )

    def plain_numbers(self, cells: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return texts with their numbers in Python's format; other texts are unchanged.

        >>> import pyarrow as pa
        >>> cells = pa.chunked_array([["1.234,5", "a,b"]])
        >>> Marks(decimal=",", thousands=".").plain_numbers(cells).to_pylist()
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

    def warn_of_doubt(self, name: str) -> list[Finding]:
        """Return a warning of numbers whose mark may be decimal or separate thousands."""
        if self.both:
            comma, point = self.both
            sentence = f"{name}: numbers such as {comma} and {point} were both read as decimal numbers"
            return [warning(sentence, "decimal='.' if the comma is not decimal")]
        if not self.doubt:
            return []
        mark = mark_in(self.doubt)
        readings = [self.doubt.replace(mark, "."), self.doubt.replace(mark, "")]
        if mark != self.decimal:
            readings.reverse()
        sentence = (
            f"{name}: numbers such as {self.doubt} were read as {readings[0]}, and may be "
            f"{readings[1]}, because all have three digits after the mark"
        )
        return [
            Finding("warning", sentence, f"decimal={OTHER[self.decimal]!r}", self.is_usual)
        ]

    def notes(self, name: str) -> tuple[Finding, ...]:
        """Return notes on marks other than a decimal point."""
        sentences: list[str] = []
        if self.decimal == ",":
            sentences.append(f"{name}: numbers have a decimal comma")
        if self.thousands:
            marks = THOUSANDS_IN_WORDS.get(self.thousands, "gaps")
            sentences.append(f"{name}: thousands are separated by {marks}")
        return list_notes(sentences)


def give_marks(decimal: DecimalMark, columns: Mapping[str, pa.ChunkedArray]) -> Marks:
    """Return the marks of texts with a given decimal mark."""
    marks = Marks(decimal, thousands=OTHER[decimal], is_marked=True)
    if decimal == ".":
        return marks
    return replace(marks, points=_find_point_columns(columns))


def detect_marks(
    columns: Mapping[str, pa.ChunkedArray],
    separator: str,
    decimal: DecimalMark = "auto",
    expected: KnownMarks = UNKNOWN_MARKS,
) -> Marks:
    """Detect the decimal mark and the thousands separators of the texts in columns.

    An unambiguous cell decides, such as 3,25 or 1,234.5.  Numbers such as 1,234 and 1.234 are
    ambiguous.  ``expected`` decides them, or else the separator and the other cells of their
    column, with a doubt.  Numbers with a unit decide only if no other number does.

    separator: between the cells of a row.  decimal: the decimal mark; "auto" detects it.  expected:
    marks of the training data.
    """
    cells_of = {
        name: _list_marked(cells)
        for name, cells in columns.items()
        if name not in expected.points
    }
    texts = list(cells_of.values())
    numbers = [_omit_units(column) for column in texts]
    grouped = _list_grouped(numbers)
    evidence = Evidence(decimal)
    if decimal == "auto":
        evidence = _find_evidence(texts, separator)
        if evidence.mark == "auto":
            evidence = _find_evidence(numbers, separator)
    mark = evidence.mark
    doubt = ""
    if mark in ("auto", PERHAPS_POINT) and expected.decimal != "auto":
        mark = expected.decimal
    elif mark in ("auto", PERHAPS_POINT):
        doubt = grouped.find_ambiguous()
        guess = _guess_decimal(numbers, separator, doubt)
        mark = guess if mark == "auto" else "."
    thousands = ""
    if mark == "," and grouped.points:
        thousands = "."
    elif mark == "." and grouped.commas:
        thousands = ","
    elif _have_gaps(numbers):
        thousands = GAP_MARKS
    points = expected.points
    if mark == ",":
        points = (*points, *_find_point_columns({n: columns[n] for n in cells_of}))
    return Marks(
        decimal="," if mark == "," else ".",
        thousands=thousands,
        doubt=doubt,
        # programs write comma-separated files with decimal points
        is_usual=separator == "," and "." in doubt and mark != ",",
        is_marked=decimal != "auto" or _have_marks(numbers),
        both=evidence.both,
        points=points,
    )


def find_decimal(numbers: Iterable[str]) -> DecimalMark:
    """Return the only decimal mark that numbers show, "auto" for none or both.

    >>> find_decimal(["3,25", "1.234"]), find_decimal(["1.234", "5"])
    (',', 'auto')
    """
    marks: set[DecimalMark] = set()
    for number in numbers:
        if _is_decimal_comma(number):
            marks.add(",")
        if _is_decimal_point(number):
            marks.add(".")
    if len(marks) != 1:
        return "auto"
    return marks.pop()


def mark_in(number: str) -> DecimalMark:
    """Return the mark of a number that has one; the point for others."""
    return "," if "," in number else "."


def _find_point_columns(columns: Mapping[str, pa.ChunkedArray]) -> tuple[str, ...]:
    """Return the columns in which some number has a decimal point, such as 3.25."""
    import pyarrow.compute as pc

    names = []
    for name, cells in columns.items():
        pointed = cells.filter(pc.match_substring_regex(cells, f"^(?:{POINT.pattern})$"))
        is_grouped = pc.match_substring_regex(pointed, f"^(?:{POINTS.pattern})$")
        if pc.any(pc.invert(is_grouped)).as_py():
            names.append(name)
    return tuple(names)


def _list_marked(cells: pa.ChunkedArray) -> list[str]:
    """Return the first cells of a column, and later ones whose marks may tell more."""
    import pyarrow.compute as pc

    first = [(cell or "").strip() for cell in cells.slice(0, FIRST).to_pylist()]
    later = cells.slice(FIRST)
    if not len(later):
        return first
    # a column of 3.25 is searched for commas, and one of 3,25 for points: its own mark is known
    marks = ".,"
    if any(map(_is_decimal_point, first)):
        marks = ","
    elif any(map(_is_decimal_comma, first)):
        marks = "."
    for mark in marks:
        if not _may_have(later, mark):
            continue
        marked = later.filter(pc.match_substring(later, mark))
        marked = marked.filter(pc.match_substring_regex(marked, MARKED)).unique()
        first += [cell.strip() for cell in marked.slice(0, MOST_MARKED).to_pylist()]
    return first


def _may_have(cells: pa.ChunkedArray, mark: str) -> bool:
    """Return whether the memory of some cell has a mark: much faster than to search each cell."""
    for chunk in cells.chunks:
        if str(chunk.type) not in ("string", "large_string"):
            return True
        stored = chunk.buffers()[-1]
        if stored is None:
            continue
        if mark.encode() in stored.to_pybytes():
            return True
    return False


def _is_decimal_point(cell: str) -> bool:
    """Return whether the point of a number can only be decimal, as in 3.25."""
    if "." not in cell:  # cheaper than the patterns
        return False
    cell = _join_thousands(cell)
    return POINT.fullmatch(cell) is not None and not POINTS.fullmatch(cell)


def _is_decimal_comma(cell: str) -> bool:
    """Return whether the comma of a number can only be decimal, as in 3,25."""
    if "," not in cell:  # cheaper than the patterns
        return False
    cell = _join_thousands(cell)
    return COMMA.fullmatch(cell) is not None and not COMMAS.fullmatch(cell)


def _join_thousands(cell: str) -> str:
    """Return a number without gaps, whose mark is decimal: 1 234,50 as 01234,50."""
    is_plain = cell.isascii() and " " not in cell and "'" not in cell  # which is cheaper
    if is_plain or not GAPS.fullmatch(cell):
        return cell
    return "0" + cell.lstrip("+-").translate(NO_GAPS)


class Grouped(NamedTuple):
    """Numbers with marks that may separate thousands, such as 1,234 and 1.234."""

    commas: list[str]
    points: list[str]  # of columns without a decimal point

    def find_ambiguous(self) -> str:
        """Return a number whose mark may be decimal, "" without one."""
        if self.commas:
            return self.commas[0]
        return next((number for number in self.points if number.count(".") == 1), "")


def _list_grouped(columns: Sequence[Sequence[str]]) -> Grouped:
    grouped = Grouped([], [])
    for column in columns:
        grouped.commas.extend(filter(COMMAS.fullmatch, column))
        if not any(map(_is_decimal_point, column)):
            grouped.points.extend(filter(POINTS.fullmatch, column))
    return grouped


def _have_marks(columns: Sequence[Sequence[str]]) -> bool:
    """Return whether some number has a mark."""
    return any(
        pattern.fullmatch(cell)
        for pattern in (COMMA, POINT, COMMAS, POINTS)
        for column in columns
        for cell in column
    )


def _have_gaps(columns: Sequence[Sequence[str]]) -> bool:
    """Return whether some number has gaps between thousands."""
    text = "".join(map("".join, columns))
    if not any(gap in text for gap in GAP_MARKS):  # cheaper than the pattern
        return False
    return any(GAPS.fullmatch(cell) for column in columns for cell in column)


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
"""Mark of a file in which a comma is decimal in one cell and not in another."""
PERHAPS_POINT = "?"
"""Mark of a file in which only times of day, as 14.30, or versions, as 2.0, have points."""


class Evidence(NamedTuple):
    """Decimal mark that unambiguous cells show.

    mark: ".", ",", `NEITHER`, `PERHAPS_POINT`, or "auto" without such cells.  both: a number with
    a comma and one with a point, if both are decimal in their columns.
    """

    mark: str
    both: tuple[str, ...] = ()


def _find_evidence(columns: Sequence[Sequence[str]], separator: str) -> Evidence:
    """Return the decimal mark that unambiguous cells show."""
    with_commas = [cell for column in columns for cell in column if "," in cell]
    # 1.234,5: points separate thousands
    if any(map(POINTS.fullmatch, with_commas)):
        return Evidence(",")
    point_columns = [column for column in columns if any(map(_is_decimal_point, column))]
    # 1,234,567 and 1,234.5: commas can only separate thousands
    has_groups = any(
        (cell.count(",") > 1 or "." in cell) and COMMAS.fullmatch(cell)
        for cell in with_commas
    )
    commas = list(filter(_is_decimal_comma, with_commas))
    # in a comma-separated file, a single number with a comma is more likely an error than a format
    least = 3 if separator == "," else 1
    if len(commas) >= least and not point_columns and not has_groups:
        return Evidence(",")
    if commas:
        comma_columns = [col for col in columns if any(map(_is_decimal_comma, col))]
        are_apart = separator != "," and not has_groups
        if are_apart and all(map(_are_numbers_with_comma, comma_columns)):
            point = next(filter(_is_decimal_point, point_columns[0]))
            return Evidence(",", (commas[0], point))
        return Evidence(NEITHER)
    if has_groups:
        return Evidence(".")
    if point_columns:
        are_codes = separator != "," and all(map(_are_codes, point_columns))
        mark = PERHAPS_POINT if are_codes else "."
        return Evidence(mark)
    # 1.234.567: points separate thousands, unless the column has addresses or versions
    if any(map(_are_grouped_by_points, columns)):
        return Evidence(",")
    return Evidence("auto")


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

    number: one of these, "" without any.  Semicolons separate cells where commas are decimal.
    Whole numbers in the same column tell more: 845 beside 3,215 is below one thousand, and 4512
    would be 4,512.
    """
    if not number:
        return "."
    mark = mark_in(number)
    pattern = GROUPED[mark]
    lengths: list[int] = []
    for column in columns:
        if any(mark in cell and pattern.fullmatch(cell) for cell in column):
            lengths += [len(cell) for cell in column if cell.isdecimal()]
    if lengths and max(lengths) > 3:
        return mark
    if lengths and separator == ";":
        return OTHER[mark]
    # 3.215, or 3,215 in a comma-separated file
    return "," if mark == "," and separator == ";" else "."
