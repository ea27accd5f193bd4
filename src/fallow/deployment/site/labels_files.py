"""Tables of labels as CSV or Excel files, and files of labeling tools, with safe parsing."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from fallow.core.refusal import explain_errors
from fallow.data.loaders.cells import format_value
from fallow.data.loaders.dialect import Dialect, sniff
from fallow.data.loaders.text_rules import normal_name
from fallow.data.loaders.workbook import read_sheet
from fallow.deployment.site.labeling_tools import (
    Cells,
    JsonObject,
    LabelingTasks,
    LabelingTool,
)
from fallow.storage.files import FILE, write_whole
from fallow.storage.plain import cell, cell_text
from fallow.storage.received import read_named
from fallow.storage.table_suffixes import EXCEL_FILES, TEXT_FILES

Key = Literal["id", "row"]
"""Column with the examples: their names or their row numbers."""
READ = ("id", "row", "label", "annotator")
"""Imported columns. Others are ignored."""
MOST_BYTES = 256 << 20  # largest size of a file of labels
EIGHT_BITS = ("cp1252", "latin-1")
"""Encodings that are only a guess, so that a name may be read wrongly."""
Entry = tuple[str, Cells]
"""Position in a file ("line 3") and the cells there."""


# -- export ---------------------------------------------------------------------------------


def write_lines(path: Path, lines: Sequence[JsonObject]) -> int:
    """Write a table as a private file, and return the number of lines."""
    _check_suffix(path)
    text = io.StringIO()
    header = _collect_columns(lines)
    table = csv.DictWriter(text, header, lineterminator="\n")
    table.writerow({name: cell(name) for name in header})
    for line in lines:
        table.writerow({name: cell(value) for name, value in line.items()})
    write_whole(path, text.getvalue().encode(), mode=FILE)
    return len(lines)


def write_with(tool: LabelingTool, path: Path, tasks: LabelingTasks) -> list[Path]:
    """Write labeling tasks in the format of a tool, and return the files.

    Raises ValueError for a name without the tool's suffix.
    """
    contents = tool.format_tasks(tasks)
    first = next(iter(contents))
    if path.suffix.lower() != first:
        raise ValueError(
            f"{path.name} does not end in {first}, as tasks of this labeling tool do; rename it"
        )
    files: list[Path] = []
    for suffix, content in contents.items():
        file = path
        if suffix != first:
            file = path.with_name(path.stem + suffix)
        write_whole(file, content, mode=FILE)
        files.append(file)
    return files


def _collect_columns(lines: Sequence[JsonObject]) -> list[str]:
    """Return the columns of a table in the order of their first occurrence."""
    columns: dict[str, None] = {}
    for line in lines:
        columns |= dict.fromkeys(line)
    return list(columns) or ["id", "label"]


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() != ".csv":
        raise ValueError(
            f"the name of {path.name} must end in .csv; rename it, or name the labeling tool of the "
            "file with --tool"
        )


# -- import ---------------------------------------------------------------------------------


def read_lines(
    path: Path, by: Key, names: Mapping[str, str] | None = None
) -> list[tuple[str, dict[str, str]]]:
    """Return the position and the cells `READ` of each line, "" for missing cells.

    ``by`` is the column with the names of examples. ``names`` maps other column names, such as
    those of the study, to columns in `READ`. Raises ValueError for an invalid file.
    """
    suffix = path.suffix.lower()
    if suffix not in (*TEXT_FILES, *EXCEL_FILES):
        raise ValueError(
            f"the name of {path.name} must end in .csv, .tsv or .xlsx; save it as such a file, or name "
            "the labeling tool of the file with --tool"
        )
    content = _read_bytes(path)
    if not content.strip():
        raise ValueError(f"{path.name} is empty; it needs a header with {by!r} and 'label'")
    if suffix in EXCEL_FILES:
        header, entries = _read_excel(path, names or {})
    else:
        header, entries = _read_text(path, content, names or {})
    for needed in (by, "label"):
        if needed not in header:
            own = {column: name for name, column in (names or {}).items()}
            also = ""
            if needed in own:
                also = f" (or {own[needed]!r})"
            raise ValueError(
                f"{path.name} has no {needed!r}{also}, only {', '.join(map(repr, header))}; the "
                f"first line is the header, and each label needs {by!r} and 'label'; a file of a "
                "labeling tool needs --tool"
            )
    return [(at, _select_cells(cells)) for at, cells in entries]


def _read_text(
    path: Path, content: bytes, names: Mapping[str, str]
) -> tuple[list[str], list[Entry]]:
    """Return the columns in the header, and the cells of each line of a text file."""
    dialect = sniff(path)
    if dialect.encoding in EIGHT_BITS:
        raise ValueError(f"{path.name}: it is not in UTF-8; save it in that encoding")
    with explain_errors(f"{path.name}: ", of=UnicodeError):
        text = content.decode(dialect.encoding)
    return _read_csv(path, text, dialect, names)


def _read_excel(path: Path, names: Mapping[str, str]) -> tuple[list[str], list[Entry]]:
    """Return the columns in the header, and the cells of each row of an Excel file."""
    sheet = read_sheet(path)
    header = _check_header(path, sheet.header, names)
    entries: list[Entry] = []
    for number, row in enumerate(sheet.rows, start=1):
        texts = ["" if value is None else cell_text(format_value(value)) for value in row]
        entries.append((f"row {number}", dict(zip(header, texts, strict=True))))
    return header, entries


def _check_header(path: Path, line: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return the names of the columns. Raises ValueError for two columns of one use."""
    header = _normalize_header(line, names)
    twice = [name for name in READ if header.count(name) > 1]
    if twice:
        raise ValueError(
            f"{path.name} has {_name_twice(twice[0], names)}, so the column is "
            "ambiguous; rename one of them"
        )
    return header


def read_with(tool: LabelingTool, path: Path) -> list[tuple[str, dict[str, str]]]:
    """Return the position and the cells `READ` of each label in a file of a tool."""
    content = _read_bytes(path)
    with explain_errors(f"{path.name}: "):
        labels = tool.parse_labels(content)
    entries: list[tuple[str, dict[str, str]]] = []
    for number, cells in enumerate(labels, start=1):
        location = str(cells.get("location") or f"label {number}")
        entries.append((location, _select_cells(cells)))
    return entries


def _read_bytes(path: Path) -> bytes:
    """Return the content of a file from a labeling tool or another untrusted source."""
    with explain_errors(f"{path} cannot be read (", after="); check the path", of=OSError):
        return read_named(path, MOST_BYTES)


def _select_cells(cells: Mapping[str, object]) -> dict[str, str]:
    """Return the used columns as texts."""
    selected: dict[str, str] = {}
    for name in READ:
        value = cells.get(name)
        selected[name] = ""
        if value is not None:
            selected[name] = normal_name(str(value))
    return selected


def _read_csv(
    path: Path, text: str, dialect: Dialect, names: Mapping[str, str]
) -> tuple[list[str], list[Entry]]:
    """Return the columns in the header, and the cells of each line with its position."""
    header: list[str] = []
    lines = io.StringIO(text, newline="")
    for _ in range(dialect.skip):
        lines.readline()
    table = csv.reader(lines, delimiter=dialect.separator, strict=True)
    entries: list[Entry] = []
    try:
        first = next((line for line in table if line), [])
        header = _check_header(path, first, names)
        for line in table:
            if not line:
                continue
            at = table.line_num + dialect.skip
            if len(line) != len(header):
                raise ValueError(
                    f"{path.name}, line {at}: {len(line)} cells, but the "
                    f"header has {len(header)}; correct that line"
                )
            texts = [cell_text(text) for text in line]
            cells: Cells = dict(zip(header, texts, strict=True))
            entries.append((f"line {at}", cells))
    except csv.Error as error:
        raise ValueError(
            f"{path.name}, line {table.line_num + dialect.skip}: {error}; correct it"
        ) from error
    return header, entries


def _name_twice(column: str, names: Mapping[str, str]) -> str:
    """Describe a repeated column. ``names`` maps other column names."""
    for name, meant in names.items():
        if meant == column:
            return f"two columns {column!r}, which may also be called {name!r}"
    return f"two columns {column!r}"


def _normalize_header(line: Sequence[str], others: Mapping[str, str]) -> list[str]:
    """Return the column names, with used columns in lower case if they remain unique.

    ``others`` maps alternative column names to columns in `READ`.
    """
    names = [name.strip() for name in line]
    times = Counter(name.lower() for name in names)
    header: list[str] = []
    for name in names:
        small = name.lower()
        if name in others:
            header.append(others[name])
        elif small in READ and times[small] == 1:
            header.append(small)
        else:
            header.append(name)
    return header
