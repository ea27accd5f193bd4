"""Format of a text file with a table: encoding, separator and quotes."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
HEAD = 1 << 18  # bytes that are searched for separators
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
DECLARED = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
"""First line by which Excel declares the separator."""


@final
@dataclass(frozen=True)
class Dialect:
    """Format of the cells of one file.

    skip: lines before the header, such as ``sep=;`` of Excel.
    """

    encoding: str = "utf-8"
    separator: str = ","
    quote: str = '"'
    skip: int = 0

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
    return Dialect(encoding, separator, quote, skip=skip)


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
