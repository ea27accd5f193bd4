"""Format of a text file with a table: encoding, separator and quotes."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from fallow.data.loaders.text_rules import number_in
from fallow.data.reading import Finding, note, warning

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
AS_WINDOWS = "as-windows-1252"
"""Name of the handler of bytes that are not UTF-8."""
FOREIGN = re.compile(
    r"[^\x00-\x7f\xa0«»“”„‘’–—…°]{3,}|[\x80-\x9f]+|£[^\W\d_]|[^\W\d_][¹³¿£¥][^\W\d_]|[a-zß-ÿ]Ÿ"
)
"""Letters in a row that Western texts do not have, control characters, and signs in words."""
DECLARED = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
"""First line by which Excel declares the separator."""


@final
@dataclass(frozen=True)
class Dialect:
    """Format of the cells of one file.

    skip: lines before the header, such as ``sep=;`` of Excel.  doubt: why the encoding may be
    another one; "" if nothing shows it.  is_mixed: some bytes of a file in UTF-8 are in Windows-1252.
    """

    encoding: str = "utf-8"
    separator: str = ","
    quote: str = '"'
    skip: int = 0
    doubt: str = ""
    is_mixed: bool = False

    @property
    def errors(self) -> str:
        """Return the handler of bytes that the encoding does not have."""
        return AS_WINDOWS if self.is_mixed else "strict"

    def describe(self, name: str) -> Iterator[Finding]:
        """Yield deviations from the usual CSV format."""
        if self.doubt:
            yield warning(f"{name}: {self.doubt}", "save the file as UTF-8")
        elif self.encoding not in ("utf-8", "utf-8-sig"):
            word = IN_WORDS.get(self.encoding, self.encoding.upper())
            yield note(f"{name} was read as {word}")
        if self.separator != ",":
            mark = SEPARATORS.get(self.separator, repr(self.separator))
            yield note(f"{name}: cells are separated by {mark}")
        if self.quote != '"':
            yield note(f"{name}: texts are in {self.quote} quotes")


def sniff(path: Path) -> Dialect:
    """Detect the format of a text file, from its byte-order mark and its first lines.

    Raises ValueError for a file that is not text.
    """
    dialect = _detect_encoding(path)
    lines = _read_first_lines(path, dialect.encoding)
    skip = 0
    declared = DECLARED.fullmatch(lines[0].strip()) if lines else None
    if declared is not None:
        skip = 1
        lines = lines[1:]
    if _has_gaps(lines):
        raise ValueError(
            f"{path.name}: the cells are separated by spaces; separate them by commas (write.csv in "
            "R)"
        )
    quote = _detect_quote(lines)
    separator = _detect_separator(lines, quote)
    if declared is not None:
        separator = declared[1]
    return replace(dialect, separator=separator, quote=quote, skip=skip)


def _detect_encoding(path: Path) -> Dialect:
    """Detect the encoding: by its mark, else UTF-8 if the file is valid, else UTF-16,
    Windows-1252, or Latin-1, which defines every byte.
    """
    with path.open("rb") as file:
        head = file.read(BLOCK)
    for mark, name in MARKS:
        if head.startswith(mark):
            return Dialect(name)
    if b"\0" in head:
        return Dialect(_detect_utf16(path, head))
    if _is_valid(path, "utf-8"):
        return Dialect()
    mixed = _find_mixed(path)
    if mixed is not None:
        return Dialect(doubt=mixed, is_mixed=True)
    encoding = "cp1252" if _is_valid(path, "cp1252") else "latin-1"
    return Dialect(encoding, doubt=_doubt_encoding(path, encoding))


def _find_mixed(path: Path) -> str | None:
    """Return which lines of a file are in UTF-8 and which are not; None if all are not."""
    valid = 0
    invalid = ""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.isascii():
                continue
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raw = line[error.start : error.end]
                invalid = invalid or f"line {number} has the byte {_write_bytes(raw)}"
            else:
                valid = valid or number
            if valid and invalid:
                return (
                    f"{invalid}, which is not UTF-8, and line {valid} is in UTF-8; such bytes "
                    "were read as Windows-1252"
                )
    return None


def _doubt_encoding(path: Path, encoding: str) -> str:
    """Return why a file in one byte per letter may be in another encoding; "" without a reason.

    Western texts have no three special letters in a row, and no control characters.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.isascii():
                continue
            part = FOREIGN.search(line.decode(encoding))
            if part is not None:
                raw = part[0].encode(encoding)
                return (
                    f"line {number} has the bytes {_write_bytes(raw)}, which are no UTF-8 and were "
                    f"read as {IN_WORDS[encoding]}: {part[0]!r}"
                )
    return ""


def _write_bytes(raw: bytes) -> str:
    return raw[:8].hex(" ").upper()


def _read_as_windows(error: UnicodeError) -> tuple[str, int]:
    """Read bytes that are not UTF-8 as Windows-1252, or Latin-1, which defines every byte."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    raw = error.object[error.start : error.end]
    codes = (bytes([code]) for code in raw)
    return "".join(map(_read_letter, codes)), error.end


def _read_letter(letter: bytes) -> str:
    try:
        return letter.decode("cp1252")
    except UnicodeDecodeError:
        return letter.decode("latin-1")


codecs.register_error(AS_WINDOWS, _read_as_windows)


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


def _has_gaps(lines: Sequence[str]) -> bool:
    """Return whether rows with numbers are separated by spaces, as R's write.table does."""
    if any(mark in line for line in lines[:2] for mark in SEPARATORS):
        return False
    counts = [len(row) for row in _parse_rows(lines, " ", '"')]
    if len(counts) < 2 or counts[0] < 2 or counts[1] - counts[0] not in (0, 1):
        return False
    has_numbers = any(number_in(cell.strip('"')) is not None for cell in lines[1].split())
    return has_numbers and len({*counts[1:]}) == 1


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
    """Yield the rows up to the first invalid one."""
    try:
        yield from csv.reader(lines, delimiter=separator, quotechar=quote)
    except csv.Error:
        return
