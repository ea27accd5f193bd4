"""Cells of an Excel file, whose memory is estimated before any of them is stored.

Such a file is a zip of XML. A row may have the number one million, and a cell may be in the
last column. Readers make every row as wide as the widest one.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from xml.parsers import expat

from fallow.core.optional import import_optional
from fallow.core.suggestions import nearest
from fallow.core.wording import count_noun, join_some
from fallow.data.loaders.cells import format_value
from fallow.data.loaders.text_rules import number_in, split_unit
from fallow.data.reading import Finding, note, warning
from fallow.storage.received import check_fits, count_available_bytes

CELL = 40
"""Bytes of a cell: 45 to 60 with a number, and 16 for padding, as measured."""
DENSE = 40
"""Bytes of a place in the rectangle of all cells, in calamine and as a list."""
VISIBLE = ".Visible"
"""End of the state of a sheet that is not hidden."""
SEARCHED = 20  # first rows, in which the header is looked for
Cells = list[object]
ROW = 120
ELEMENT = 60  # bytes of any other element, such as a shared text
COLUMN_LETTERS = re.compile(r"[A-Za-z]{1,3}")
BLOCK = 1 << 20
MOST_FORMAT = 200
"""Largest number of characters of a number format that are read."""
MOST_DIGITS = 6
"""Largest number of digits of an index."""
XML_FILES = (".xml", ".rels")
STYLES = "xl/styles.xml"
"""Part with the formats of cells."""
FORMAT_PART = re.compile(
    r"""\[\$(?P<currency>[^\]-]*)[^\]]*\]  # such as [$€-407]
    |\[(?P<rule>[^\]]*)\]  # a color or a condition
    |"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|[_*].
    |(?P<digits>General|[0#?][0#?.,/]*([eE][+-][0#?]+)?)|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
"""Parts of the format of a number in Excel, such as ``0.0" mg/dL"``."""
ONE = " 1 "
LETTER = re.compile(r"[^\W\d_]")
SHEET_TAG = b"sheetData"
"""Name of the element with the rows of a sheet."""


def check_workbook_fits(path: Path, limit: int | None = None) -> dict[str, _Counter]:
    """Raise ValueError for an Excel file whose largest sheet, with all shared parts, does
    not fit.

    limit: maximum number of bytes; None: the available memory. Raises BadZipFile for other
    files, and what `zipfile` raises for damaged ones. Returns the counter of each part.
    """
    room = limit
    if room is None:
        room = count_available_bytes()
    largest = 0
    others = 0
    counters: dict[str, _Counter] = {}
    with path.open("rb") as opened, zipfile.ZipFile(opened) as archive:
        units: list[str] = []  # of each style, which is read first
        for member in sorted(archive.infolist(), key=lambda one: one.filename != STYLES):
            # no member is decompressed beyond its declared size
            check_fits(path.name, member.file_size, room)
            counter = _Counter(units)
            counters[member.filename] = counter
            if not counter.read(archive, member) and _may_have_cells(archive, member):
                raise ValueError(
                    f"{path.name} is damaged: its part {member.filename!r:.80} is not valid XML; "
                    "save it again as .xlsx"
                )
            units = units or counter.units
            largest = max(largest, counter.cells_bytes)
            others += counter.others_bytes
            check_fits(path.name, largest + others, room)
    return counters


class _Counter:
    """Counter of the rows and cells of one member of the zip.

    bare_formulas: formulas without a stored value. hidden: hidden rows. styles: number of cells
    below the first row in each style. formats: fill and font of each style; fills, fonts: whether
    they have a color, and strike a text through. units: unit in the number format of each style.
    units_of: number of cells with a number in each column, from 1, and unit.
    """

    def __init__(self, unit_of_style: Sequence[str]) -> None:
        self.rows = 0
        self.cells = 0
        self.widest = 0
        self.others = 0
        self.bare_formulas = 0
        self.hidden = 0
        self.styles: Counter[int] = Counter()
        self.formats: list[tuple[int, int]] = []
        self.fills: list[bool] = []
        self.fonts: list[bool] = []
        self.units: list[str] = []
        self.units_of: Counter[tuple[int, str]] = Counter()
        self._unit_of_style = unit_of_style
        self._number_formats: dict[str, str] = {"9": "0%", "10": "0.00%"}
        self._has_formats = False
        self._column = 0
        self._has_formula = False
        self._has_value = False
        self._parser = expat.ParserCreate()

    @property
    def cells_bytes(self) -> int:
        """Return the bytes of all cells, with every row as wide as the widest."""
        return self.rows * (self.widest * DENSE + ROW) + self.cells * CELL

    @property
    def others_bytes(self) -> int:
        """Return the bytes of all other elements."""
        return self.others * ELEMENT

    def list_units(self, column: int) -> tuple[str, ...]:
        """Return the units in the number formats of a column, from 1, sorted."""
        units = {unit for at, unit in self.units_of if at == column and unit}
        return tuple(sorted(units))

    def read(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
        """Read a member up to the first invalid XML, and return whether there was none."""
        parser = expat.ParserCreate(namespace_separator=" ")
        self._parser = parser
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = _refuse_entities
        try:
            with archive.open(member) as stream:
                while block := stream.read(BLOCK):
                    parser.Parse(block)
        except expat.ExpatError:
            return False
        return True

    def _begin(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = name.rpartition(" ")[2]
        if tag == "c":
            self.cells += 1
            self._column = _column_of(attributes.get("r"), self._column)
            self.widest = max(self.widest, self._column)
            self._has_formula = False
            self._has_value = False
            if self.rows > 1:
                self._count_style(attributes)
        elif tag == "row":
            self._column = 0
            self.rows = _row_of(attributes.get("r"), self.rows)
            self.hidden += attributes.get("hidden") in ("1", "true")
        elif tag == "f":
            self._has_formula = True
        elif tag == "v":
            if self._has_formula:
                self._parser.CharacterDataHandler = self._mark_value
        elif tag != "is":
            self.others += 1
            self._note_style(tag, attributes)

    def _count_style(self, attributes: Mapping[str, str]) -> None:
        style = _index_of(attributes.get("s"))
        self.styles[style] += 1
        is_number = attributes.get("t", "n") == "n"
        if is_number and style < len(self._unit_of_style):
            self.units_of[self._column, self._unit_of_style[style]] += 1

    def _note_style(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Read the fills, the fonts, the number formats, and the styles of cells that use them."""
        if tag == "cellXfs":
            self._has_formats = True
        elif tag == "numFmt":
            code = attributes.get("formatCode", "")
            self._number_formats[attributes.get("numFmtId", "")] = code
        elif tag == "xf" and self._has_formats:
            code = self._number_formats.get(attributes.get("numFmtId", ""), "")
            self.units.append(find_unit_of_format(code))
            indices = (attributes.get("fillId"), attributes.get("fontId"))
            fill, font = map(_index_of, indices)
            self.formats.append((fill, font))
        elif tag == "fill":
            self.fills.append(False)
        elif tag == "patternFill" and self.fills:
            self.fills[-1] = attributes.get("patternType", "none") != "none"
        elif tag == "font":
            self.fonts.append(False)
        elif tag == "strike" and self.fonts:
            self.fonts[-1] = attributes.get("val") not in ("0", "false")

    def _end(self, name: str) -> None:
        if name.endswith("cellXfs"):
            self._has_formats = False
        if self._has_formula and name.rpartition(" ")[2] == "c":
            self._parser.CharacterDataHandler = None
            self.bare_formulas += not self._has_value

    def _mark_value(self, text: str) -> None:
        self._has_value = True


def find_unit_of_format(code: str) -> str:
    """Return the unit that a number format of Excel shows, "" for none or several.

    >>> (
    ...     find_unit_of_format('0.0" mg/dL"'),
    ...     find_unit_of_format("0.00%"),
    ...     find_unit_of_format("0.0"),
    ... )
    ('mg/dL', '%', '')
    """
    units: set[str] = set()
    shown = ""  # the number 1 in a section of the format
    for part in FORMAT_PART.finditer(code[:MOST_FORMAT] + ";"):
        if part["other"] == ";":
            cell = split_unit(shown.strip(" -()"))
            if ONE in shown:
                unit = "" if cell is None else cell[1]
                units.add(unit)
            shown = ""
        elif part["digits"] is not None:
            shown += ONE
            if part["digits"].endswith(","):
                return ""  # thousands, of which the cell shows the number
        elif part["rule"] is not None and part["rule"][:1] in ("<", ">", "="):
            return ""
        elif part["other"] is not None and LETTER.match(part["other"]):
            return ""  # a date
        else:
            literals = (part["currency"], part["quoted"], part["escaped"], part["other"])
            shown += next((literal for literal in literals if literal), "")
    return units.pop() if len(units) == 1 else ""


def _may_have_cells(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Return whether a part that is not valid XML may be read as cells or texts.

    The reader of the sheets accepts invalid XML, and finds a sheet under any name.
    """
    if member.filename.lower().endswith(XML_FILES):
        return True
    end = b""
    with archive.open(member) as stream:
        while block := stream.read(BLOCK):
            if SHEET_TAG in end + block:
                return True
            end = block[-len(SHEET_TAG) :]
    return False


def _refuse_entities(*details: object) -> None:
    """Reject entities, which Excel never writes and which can expand to all memory."""
    raise expat.ExpatError("a document type")


def _index_of(text: str | None) -> int:
    """Return the index in an attribute, 0 without one."""
    if text is None or not text.isdecimal() or len(text) > MOST_DIGITS:
        return 0
    return int(text)


def _count_marked(sheet: _Counter, styles: _Counter) -> tuple[int, int]:
    """Return the number of cells with a fill color, and of those that are struck through."""
    filled = 0
    struck = 0
    for style, times in sheet.styles.items():
        if style >= len(styles.formats):
            continue
        fill, font = styles.formats[style]
        filled += times * (fill < len(styles.fills) and styles.fills[fill])
        struck += times * (font < len(styles.fonts) and styles.fonts[font])
    return filled, struck


def _column_of(reference: str | None, before: int) -> int:
    """Return the column number of a cell, from 1: its own, or the next one."""
    result = COLUMN_LETTERS.match(reference or "")
    if result is None:
        return before + 1
    number = 0
    for letter in result[0].upper():
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _row_of(number: str | None, before: int) -> int:
    """Return the row number, from 1: its own, or the next one; missing rows are empty."""
    if number is None or not number.isdecimal():
        return before + 1
    if len(number) > 18:
        number = "9" * 18
    return max(before, int(number))


# -- cells ----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Sheet:
    """Header and rows of a sheet; a row may be shorter than the header, not longer.

    units: units in the number formats of each column, in the order of the header.
    """

    header: list[str]
    rows: list[Cells]
    findings: tuple[Finding, ...]
    units: list[tuple[str, ...]]


def read_sheet(
    path: Path, sheet: str | None = None, header_row: int | None = None
) -> Sheet:
    """Return the cells of a sheet of an Excel file, None for empty ones.

    sheet: its name; None: the first. header_row: the row with the names of the columns, from 1;
    None: the first that is not empty.
    """
    with _explain_damage(path):
        counters = check_workbook_fits(path)
        book = _open_workbook(path)
        names: list[str] = book.sheet_names
        chosen = _choose_sheet(path, names, sheet)
        values = book.get_sheet_by_name(chosen)
        merged = values.merged_cell_ranges or ()
        all_rows = [_trim(row) for row in values.to_python(skip_empty_area=False)]
        states = {entry.name: str(entry.visible) for entry in book.sheets_metadata}
    findings: list[Finding] = []
    if len(names) > 1 and sheet is None and not any(all_rows):
        raise ValueError(
            f"{path.name}: the first of {len(names)} sheets, {chosen!r}, is empty; give another one "
            f"with sheet={names[1]!r}"
        )
    if len(names) > 1 and sheet is None and not states[chosen].endswith(VISIBLE):
        sentence = f"{path.name}: the first sheet, {chosen!r}, is hidden, and was read"
        findings.append(warning(sentence, f"sheet={names[1]!r}"))
    if len(names) > 1 and sheet is None:
        findings.append(
            note(
                f"{path.name}: only the first of {len(names)} sheets, {chosen!r}, was read",
                f"sheet={names[1]!r}",
            )
        )
    at = _find_header(path, all_rows, header_row)
    header: list[str] = []
    if all_rows:
        header = ["" if cell is None else format_value(cell) for cell in all_rows[at]]
    rows = [row for row in all_rows[at + 1 :] if row]
    for number, row in enumerate(rows, start=1):
        if len(row) > len(header):
            raise ValueError(
                f"{path.name}: row {number} has {len(row)} cells and the header "
                f"{len(header)}; name every column in the header, or give its row with "
                "header_row"
            )
        row += [None] * (len(header) - len(row))
    counter = counters.get(f"xl/worksheets/sheet{names.index(chosen) + 1}.xml")
    findings += _describe_sheet(path.name, counter, len(merged))
    styles = counters.get(STYLES)
    if counter is not None and styles is not None:
        findings += _describe_marks(path.name, *_count_marked(counter, styles))
    findings += _describe_texts(path.name, header, rows)
    units: list[tuple[str, ...]] = [()] * len(header)
    if counter is not None:
        units = [counter.list_units(column + 1) for column in range(len(header))]
        findings += _describe_units(path.name, header, counter)
    return Sheet(header, rows, tuple(findings), units)


def find_only_sheet(path: Path) -> str | None:
    """Return the name of the sheet of an Excel file, or None if it has several."""
    with _explain_damage(path):
        check_workbook_fits(path)
        names: list[str] = _open_workbook(path).sheet_names
    return names[0] if len(names) == 1 else None


def _open_workbook(path: Path) -> Any:  # of calamine, which has no types
    calamine = import_optional(
        "python_calamine", "python-calamine", "reading an Excel file"
    )
    return calamine.CalamineWorkbook.from_path(path)


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    """Raise ValueError for a damaged file, for which the reader may raise anything."""
    try:
        yield
    except ValueError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        raise ValueError(f"{path.name} could not be read as Excel: {error}") from error


def _choose_sheet(path: Path, names: Sequence[str], sheet: str | None) -> str:
    if not names:
        raise ValueError(f"{path.name} has no sheet; save the table as a sheet")
    if sheet is None:
        return names[0]
    if sheet not in names:
        known = f"its sheets are {join_some(list(names))}"
        raise ValueError(
            f"{path.name} has no sheet {sheet!r}{nearest(sheet, list(names), known)}"
        )
    return sheet


def _trim(row: Sequence[Any]) -> Cells:  # cells of calamine
    """Return the values of a row up to the last one, with None for empty cells."""
    values: Cells = [None if cell == "" else cell for cell in row]
    while values and values[-1] is None:
        values.pop()
    return values


def _find_header(path: Path, rows: Sequence[Cells], header_row: int | None) -> int:
    """Return the index of the header."""
    if header_row is not None:
        if not 1 <= header_row <= len(rows) or not rows[header_row - 1]:
            raise ValueError(
                f"{path.name} has no cells in row {header_row} (header_row); its rows are 1 to "
                f"{len(rows)}"
            )
        return header_row - 1
    first = next((index for index, row in enumerate(rows) if row), 0)
    head = rows[first : first + SEARCHED]
    widths = [sum(cell is not None for cell in row) for row in head]
    if widths and widths[0] == 1 and max(widths) > 1:
        title = next(cell for cell in head[0] if cell is not None)
        guess = first + widths.index(max(widths)) + 1
        raise ValueError(
            f"{path.name}: row {first + 1} has one cell, {str(title)[:60]!r}, which looks like a "
            f"title and not a header; give the row of the header with header_row={guess}"
        )
    return first


def _describe_sheet(
    name: str, counter: _Counter | None, n_merged: int
) -> Iterator[Finding]:
    """Yield what the cells of a sheet do not show."""
    if n_merged:
        yield warning(
            f"{name} has {count_noun(n_merged, 'range')} of merged cells, of which only the "
            "first cell has a value",
            "unmerge the cells and fill each of them",
        )
    if counter is not None and counter.bare_formulas:
        yield warning(
            f"{name} has {count_noun(counter.bare_formulas, 'formula')} without a stored "
            "value, which are empty cells",
            "open the file in a spreadsheet program and save it",
        )
    if counter is not None and counter.hidden:
        yield note(
            f"{name} has {count_noun(counter.hidden, 'hidden row')}, which were read like "
            "the others",
            "delete the rows that do not belong to the data",
        )


def _describe_marks(name: str, filled: int, struck: int) -> Iterator[Finding]:
    """Yield what colors and lines through cells may mean, which are not read."""
    if filled:
        sentence = (
            f"{name}: {count_noun(filled, 'cell')} with a fill color, which is not read"
        )
        yield note(sentence, "write what the color means in a column")
    if struck:
        cells = count_noun(struck, "cell")
        sentence = f"{name}: {cells} struck through, which were read like the others"
        yield warning(sentence, "delete their values if they are not valid")


def _describe_units(
    name: str, header: Sequence[str], counter: _Counter
) -> Iterator[Finding]:
    """Yield a warning of each column whose cells have number formats with different units."""
    for column, title in enumerate(header, start=1):
        units = counter.list_units(column)
        if len(units) > 1:
            times = [f"{unit} ({counter.units_of[column, unit]:,})" for unit in units]
            sentence = (
                f"{name}: column {title!r} has cells in different units by their number format: "
                f"{join_some(times)}"
            )
            yield warning(sentence, "convert all numbers to one unit")


def _describe_texts(
    name: str, header: Sequence[str], rows: Sequence[Cells]
) -> list[Finding]:
    """Return the columns in which numbers are stored as text."""
    columns: list[str] = []
    for index, column in enumerate(header):
        texts = [row[index] for row in rows if isinstance(row[index], str)]
        if texts and all(number_in(str(text).strip()) is not None for text in texts):
            columns.append(column)
    if not columns:
        return []
    return [
        note(f"{name}: numbers stored as text were read as numbers in {join_some(columns)}")
    ]
