"""Memory of the cells of an Excel file, estimated before any of them is stored.

Such a file is a zip of XML. A row may have the number one million, and a cell may be in the
last column. Readers make every row as wide as the widest one.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from xml.parsers import expat

from fallow.storage.received import check_fits, count_available_bytes

CELL = 40
"""Bytes of a cell: 45 to 60 with a number, and 16 for padding, as measured."""
ROW = 120
ELEMENT = 60  # bytes of any other element, such as a shared text
COLUMN_LETTERS = re.compile(r"[A-Za-z]{1,3}")
BLOCK = 1 << 20


def check_workbook_fits(path: Path, limit: int | None = None) -> None:
    """Raise ValueError for an Excel file whose largest sheet, with all shared parts, does
    not fit.

    limit: maximum number of bytes; None: the available memory. Raises BadZipFile for other
    files. Invalid XML is ignored, because the reader of the sheets reports it.
    """
    room = limit
    if room is None:
        room = count_available_bytes()
    largest = 0
    others = 0
    with path.open("rb") as opened, zipfile.ZipFile(opened) as archive:
        for member in archive.infolist():
            # no member is decompressed beyond its declared size
            check_fits(path.name, member.file_size, room)
            counter = _Counter()
            counter.read(archive, member)
            largest = max(largest, counter.cells_bytes)
            others += counter.others_bytes
            check_fits(path.name, largest + others, room)


class _Counter:
    """Counter of the rows and cells of one member of the zip."""

    def __init__(self) -> None:
        self.rows = 0
        self.cells = 0
        self.widest = 0
        self.others = 0
        self._column = 0

    @property
    def cells_bytes(self) -> int:
        """Return the bytes of all cells, with every row as wide as the widest."""
        return self.rows * (self.widest * 2 * 8 + ROW) + self.cells * CELL

    @property
    def others_bytes(self) -> int:
        """Return the bytes of all other elements."""
        return self.others * ELEMENT

    def read(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        """Read a member, up to the first invalid XML."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self._begin
        parser.StartDoctypeDeclHandler = _refuse_entities
        try:
            with archive.open(member) as stream:
                while block := stream.read(BLOCK):
                    parser.Parse(block)
        except expat.ExpatError:
            return

    def _begin(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = name.rpartition(" ")[2]
        if tag == "c":
            self.cells += 1
            self._column = _column_of(attributes.get("r"), self._column)
            self.widest = max(self.widest, self._column)
        elif tag == "row":
            self._column = 0
            self.rows = _row_of(attributes.get("r"), self.rows)
        elif tag not in ("v", "f", "is"):
            self.others += 1


def _refuse_entities(*details: object) -> None:
    """Reject entities, which Excel never writes and which can expand to all memory."""
    raise expat.ExpatError("a document type")


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
