"""Labels out of a site and into it: CSV and JSON, for spreadsheets and other labeling tools.

A file has one line (CSV, UTF-8, with a header) or one object (JSON, in a list) for each question:

    id              name of the sample, as in the site's data
    label           name of the class, a number, or "cannot tell"; empty: not answered
    row             number of the sample in the site's data, from 0
    cycle           when it was asked for; -1: the first labels
    place           0 was chosen first
    who, at         who said so, and when (ISO 8601, UTC)
    state           answered, declined (nobody can tell), conflict, open, expired or withdrawn
    guess, probability, guess_by, score
                    what the model guessed and how sure it was, which model ("global" or "local"),
                    and the strategy's score; only when asked for, because a guess that is seen
                    first sways people
    feature:NAME    a column of a table, ``feature:NAME (UNIT)`` where it has a unit
    file            path of an image

Import reads ``id`` and ``label``, and ``who`` where it is given. The study's own names of the
columns of IDs and of labels do as well. Other columns are passed over, so that a file may travel
through another tool and back. Label Studio's full JSON is read as it is (`label_studio`), and
written where that is wanted. Its shorter forms (JSON-MIN, CSV), like other tools that number
samples on their own, have another number under ``id`` and keep ``row``: import such a file with
``by="row"``. A file that has both must agree with itself, so that one mistaken for the other is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import final

from fallow.federation.ledger import Ledger
from fallow.federation.ledger.questions import LabelAnswer, Question
from fallow.federation.schema import Schema
from fallow.federation.site.cvat import ANNOTATIONS, name_image
from fallow.federation.site.label_studio import JsonObject, build_tasks
from fallow.federation.site.labels_files import Key, read_lines, write_lines
from fallow.federation.site.rows import SiteRows
from fallow.storage.plain import plain

CANNOT_TELL = "cannot tell"
LONGEST_NAME = 200  # letters of a person's name or address
WRITTEN = (
    *("id", "label", "row", "cycle", "place", "who", "at", "state"),
    *("guess", "probability", "guess_by", "score", "file"),
)
"""Columns that are written, which keep their meaning whatever a study calls its own."""


# -- out ------------------------------------------------------------------------------------


def export_questions(
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
    path: Path,
    guess: bool = False,
    as_tasks: bool = False,
) -> int:
    """Write the open questions, in the order in which they were chosen; how many.

    as_tasks: of Label Studio.  Raises ValueError for a name that ends neither in .csv nor in .json,
    Failed where the file cannot be written.
    """
    lines = list_open_questions(ledger, schema, rows, guess=guess)
    return _write(path, lines, schema, as_tasks=as_tasks)


def list_open_questions(
    ledger: Ledger, schema: Schema, rows: SiteRows, *, guess: bool = False
) -> list[JsonObject]:
    """The open questions as lines of a file, in the order in which they were chosen."""
    return [
        _build_line(schema, rows, asked, given=None, guess=guess)
        for asked in ledger.questions(state="open")
    ]


def export_labels(
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
    path: Path,
    guess: bool = False,
    as_tasks: bool = False,
) -> int:
    """Write every answer that counts, one line for each person and question; how many."""
    lines: list[JsonObject] = []
    for asked in ledger.questions():
        for answer in asked.answers:
            lines.append(_build_line(schema, rows, asked, given=answer, guess=guess))
    return _write(path, lines, schema, as_tasks=as_tasks)


def _write(path: Path, lines: list[JsonObject], schema: Schema, *, as_tasks: bool) -> int:
    if not as_tasks:
        return write_lines(path, lines)
    if path.suffix.lower() != ".json":
        raise ValueError(f"{path.name} does not end in .json, as tasks of Label Studio do")
    tasks = build_tasks(lines, is_class=bool(schema.classes))
    return write_lines(path, tasks)


def _build_line(
    schema: Schema,
    rows: SiteRows,
    asked: Question,
    *,
    given: LabelAnswer | None,
    guess: bool,
) -> JsonObject:
    """A question as a line of a file.

    given: the answer that it has; None: none.  guess: with what the model guessed.
    """
    line: dict[str, object] = {
        "id": rows.ids[asked.row],
        "label": "",
        "row": asked.row,
        "cycle": asked.cycle,
        "place": asked.place,
        "who": "",
        "at": "",
        "state": asked.state,
    }
    if given is not None:
        line["label"] = _label_text(schema, given.value)
        line["who"] = given.who
        line["at"] = given.at
    if guess:
        why = asked.why
        predicted = why.get("predicted")
        line["guess"] = ""
        if predicted is not None:
            line["guess"] = _label_text(schema, float(predicted))
        line["probability"] = why.get("probability", "")
        line["guess_by"] = why.get("by", "")
        line["score"] = why.get("score", "")
    shown = rows.describe(asked.row)
    if isinstance(shown, Path):
        line["file"] = str(shown)
        for number, other in enumerate(rows.files(asked.row)[1:], start=2):
            line[f"file {number}"] = str(other)
        return line
    for name, text, unit in shown:
        column = f"feature:{name}"
        if unit:
            column += f" ({unit})"
        line[column] = text
    return line


def _label_text(schema: Schema, value: float | None) -> str:
    """A label as it stands in a file: numbers with all their digits."""
    if value is None:
        return CANNOT_TELL
    if schema.classes:
        return schema.words(value)
    return repr(value).removesuffix(".0")


# -- in -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Imported:
    """What became of a file.

    recorded: labels that are new; none where lines were refused and partial was off.  same: labels
    that were there already.  empty: lines without a label.  refused: one sentence for each line
    that was.
    """

    recorded: int
    same: int
    empty: int
    refused: tuple[str, ...]


@final
@dataclass(frozen=True)
class _Line:
    """One line of a file that names a sample and a label.

    place: where it stands, such as "line 3".  value: a class id or a number; None: cannot tell.
    """

    place: str
    row: int
    value: float | None
    who: str


HINTS = 20  # refused lines that say what was probably meant
COMPARED = 200_000  # names with which the names in a file are compared, in all
LONGEST_HINTED = 500  # letters of a name or label that is compared with others


@final
@dataclass
class _Parsed:
    """A file whose lines were read: those that name a sample and a label, a sentence for each that
    was refused, and how many have no label."""

    lines: list[_Line]
    refused: list[str]
    empty: int = 0


class _Undone(Exception):
    """Nothing of the file is kept."""


def import_labels(
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
    path: Path,
    who: str,
    *,
    partial: bool = False,
    dry_run: bool = False,
    by: Key = "id",
) -> Imported:
    """Take the answers in a file as if people had given them on the page: all of them, or none.

    who: for lines that do not say it.  partial: keep the good lines even where others are refused.
    dry_run: only say what would become of the file.  by: what names a sample.

    A line is refused for a sample that the site does not have, was never asked for, has expired or
    was withdrawn; for a class that was not agreed on, or no finite number; and for a label that
    differs from one that the sample has already, here or in another line of the file: such are for
    people to decide.  Raises ValueError for a file that cannot be read.
    """
    parsed = _parse_file(path, schema, rows, who=who, by=by)
    refused = parsed.refused
    agreed, contradictions = _split_contradictions(parsed.lines, schema, rows)
    refused += contradictions
    recorded = 0
    same = 0
    try:
        with ledger.transaction():
            known = {question.row: question for question in ledger.questions()}
            for line in agreed:
                try:
                    is_new = _record(line, known, ledger=ledger, schema=schema, rows=rows)
                except ValueError as error:
                    refused.append(f"{line.place}: {error}")
                    continue
                if is_new:
                    recorded += 1
                else:
                    same += 1
            if dry_run or (refused and not partial):
                raise _Undone
    except _Undone:
        if not dry_run:
            recorded = 0
    in_order = tuple(sorted(refused, key=_number_of_line))
    return Imported(recorded=recorded, same=same, empty=parsed.empty, refused=in_order)


def _parse_file(
    path: Path, schema: Schema, rows: SiteRows, *, who: str, by: Key
) -> _Parsed:
    parsed = _Parsed(lines=[], refused=[])
    row_of_name: dict[str, int] = {}
    if by == "id":
        row_of_name = {name: row for row, name in enumerate(_list_names(path, rows))}
    most_hints = _bound_hints(len(row_of_name))
    for place, cells in read_lines(path, by, _other_names(schema, by)):
        if not cells["label"]:
            parsed.empty += 1
            continue
        with_hint = len(parsed.refused) < most_hints
        try:
            row = _find_row(cells, rows, row_of_name, by=by, with_hint=with_hint)
            value = _parse_label(schema, cells["label"], with_hint=with_hint)
        except ValueError as error:
            parsed.refused.append(f"{place}: {error}")
            continue
        name = (
            plain(cells["who"], LONGEST_NAME) or who
        )  # others' word, shown in many places
        line = _Line(place=place, row=row, value=value, who=name)
        parsed.lines.append(line)
    return parsed


def _other_names(schema: Schema, by: Key) -> dict[str, str]:
    """The study's own names of columns, each with the column of a file that it stands for."""
    names = {schema.label: "label"}
    if by == "id":
        names[schema.ids] = "id"
    return {name: column for name, column in names.items() if name not in WRITTEN}


def _bound_hints(rows: int) -> int:
    """Of how many refused lines it is looked up what was probably meant: each is compared with all
    names, and a file may have any number of lines.

    >>> _bound_hints(300), _bound_hints(50_000), _bound_hints(10**7)
    (20, 4, 1)
    """
    return max(1, min(HINTS, COMPARED // max(1, rows)))


def _list_names(path: Path, rows: SiteRows) -> Sequence[str]:
    """The names by which a file knows the rows, in their order."""
    if path.suffix.lower() != ANNOTATIONS:
        return rows.ids
    return [name_image(rows, row) for row in range(len(rows.ids))]


def _record(
    line: _Line,
    known: dict[int, Question],
    *,
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
) -> bool:
    """Enter one answer; whether it is new.  ValueError where it is refused.

    known: the newest question about each row; it is brought up to date.
    """
    sample = f"sample {rows.ids[line.row]!r}"
    asked = known.get(line.row)
    if asked is None:
        raise ValueError(
            f"{sample} was never asked: only what the study chose takes labels"
        )
    if asked.state == "expired":
        raise ValueError(
            f"{sample} expired when cycle {asked.cycle} closed; if it is chosen again it will be "
            "asked again"
        )
    if asked.state == "withdrawn":
        raise ValueError(f"{sample} was withdrawn: it takes no labels any more")
    for given in asked.answers:
        if given.value != line.value:
            raise ValueError(
                f"{sample} has the label {_label_text(schema, given.value)!r} by {given.who}, "
                f"not {_label_text(schema, line.value)!r}; correct it on the labeling page"
            )
    known[line.row] = ledger.answer(line.row, line.value, line.who, "imported")
    return all(given.who != line.who for given in asked.answers)


def _split_contradictions(
    lines: Iterable[_Line], schema: Schema, rows: SiteRows
) -> tuple[list[_Line], list[str]]:
    """The lines whose sample has one label in the file, and a sentence for each other line."""
    by_row: dict[int, list[_Line]] = {}
    for line in lines:
        by_row.setdefault(line.row, []).append(line)
    agreed: list[_Line] = []
    refused: list[str] = []
    for row, about_row in by_row.items():
        first = about_row[0]
        others = [line for line in about_row if line.value != first.value]
        if not others:
            agreed += about_row
            continue
        other = others[0]
        why = (
            f"sample {rows.ids[row]!r} is {_label_text(schema, first.value)!r} in {first.place} "
            f"and {_label_text(schema, other.value)!r} in {other.place}; keep one of them"
        )
        refused += [f"{line.place}: {why}" for line in about_row]
    return agreed, refused


def _find_row(
    cells: Mapping[str, str],
    rows: SiteRows,
    row_of_name: Mapping[str, int],
    *,
    by: Key,
    with_hint: bool,
) -> int:
    """The row that a line is about; ValueError where the site has none such."""
    name = cells["id"]
    number = cells["row"]
    is_row = number.isascii() and number.isdigit() and int(number) < len(rows.ids)
    if by == "row":
        if not is_row:
            raise ValueError(
                f"row {number!r} is none of this site: it has 0 to {len(rows.ids) - 1}"
            )
        return int(number)
    if name not in row_of_name:
        close: list[str] = []
        if with_hint and len(name) <= LONGEST_HINTED:
            close = get_close_matches(name, row_of_name, n=1, cutoff=0.8)
        sentence = f"sample {name!r} is none of this site"
        if close:
            sentence += f"; did you mean {close[0]!r}?"
        raise ValueError(sentence)
    row = row_of_name[name]
    if number and not (is_row and int(number) == row):
        raise ValueError(
            f"sample {name!r} is row {row} of this site, and the line says row "
            f"{number}; if another tool has numbered the samples anew, import by row"
        )
    return row


def _parse_label(schema: Schema, text: str, *, with_hint: bool) -> float | None:
    """A label as it stands in a file; a decimal comma is one in a spreadsheet of many countries."""
    if text == CANNOT_TELL and text not in schema.classes:
        return None
    has_decimal_comma = not schema.classes and text.count(",") == 1 and "." not in text
    if has_decimal_comma:
        text = text.replace(",", ".")
    is_short = len(text) <= LONGEST_HINTED
    return schema.value(text, with_hint=with_hint and is_short)


def _number_of_line(sentence: str) -> int:
    """The number of the line that a sentence is about."""
    return int(sentence.split(":", 1)[0].split()[-1])
