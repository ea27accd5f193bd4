"""Tables of labels as files: CSV and JSON, read with care."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fallow.federation.site.label_studio import cells_of, is_task
from fallow.storage.files import write_whole
from fallow.storage.plain import cell, cell_text
from fallow.storage.private import FILE

Key = Literal["id", "row"]
READ = ("id", "row", "label", "who")


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> int:
    """Write a table whose lines share most columns, for its owner alone; how many lines."""
    if _kind(path) == "json":
        content = (json.dumps(lines, indent=1, ensure_ascii=False) + "\n").encode()
        write_whole(path, content, mode=FILE)
        return len(lines)
    text = io.StringIO()
    header = dict.fromkeys(name for line in lines for name in line) or ["id", "label"]
    table = csv.DictWriter(text, list(header), lineterminator="\n")
    table.writerow({name: cell(name) for name in header})
    table.writerows({name: cell(value) for name, value in line.items()} for line in lines)
    write_whole(path, text.getvalue().encode(), mode=FILE)
    return len(lines)


def _kind(path: Path) -> str:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("csv", "json"):
        raise ValueError(
            f"{path.name} ends neither in .csv nor in .json; give it such a name"
        )
    return kind


def read_lines(path: Path, by: Key) -> list[tuple[str, dict[str, str]]]:
    """Each line's place and its cells `READ`, "" where there is none.

    by: the column that names samples.  Raises ValueError for a file that is not such a table.
    """
    kind = _kind(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}); check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name} is not in UTF-8; save it in that encoding"
        ) from error
    found = _json(path, text) if kind == "json" else _csv(path, text)
    if not text.strip():
        raise ValueError(f"{path.name} is empty; it needs a header with {by!r} and 'label'")
    for needed in (by, "label"):
        if found and not any(needed in cells for _, cells in found):
            raise ValueError(
                f"{path.name} has no {needed!r}, only {', '.join(map(repr, found[0][1]))}; each "
                f"label needs {by!r} and 'label'"
            )
    return [(at, {name: _cell(cells.get(name)) for name in READ}) for at, cells in found]


def _cell(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _csv(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    first = text.split("\n", 1)[0]
    separator = (
        ";" if ";" in first and "," not in first else ","
    )  # of some countries' spreadsheets
    table = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    found: list[tuple[str, dict[str, Any]]] = []
    try:
        header = [name.strip() for name in next(table, [])]
        small = Counter(name.lower() for name in header)
        header = [
            n.lower() if n.lower() in READ and small[n.lower()] == 1 else n for n in header
        ]
        for cells in table:
            if cells and len(cells) != len(header):
                raise ValueError(
                    f"{path.name}, line {table.line_num}: {len(cells)} cells, and the header has "
                    f"{len(header)}; correct that line"
                )
            if cells:
                texts = [cell_text(text) for text in cells]
                found.append(
                    (f"line {table.line_num}", dict(zip(header, texts, strict=True)))
                )
    except csv.Error as error:
        raise ValueError(
            f"{path.name}, line {table.line_num}: {error}; correct it"
        ) from error
    return found


def _json(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) for entry in entries
    ):
        raise ValueError(
            f"{path.name} is not a list of objects; write one object for each label"
        )
    found: list[tuple[str, dict[str, Any]]] = []
    for number, entry in enumerate(entries, start=1):
        try:
            said = cells_of(entry) if is_task(entry) else [entry]
        except ValueError as error:
            raise ValueError(f"{path.name}, entry {number}: {error}") from error
        found += [(f"entry {number}", cells) for cells in said]
    return found
