"""Labels out of a site and into it: CSV and JSON, for spreadsheets and other labelling tools.

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

Import reads ``id`` and ``label``, and ``who`` where it is given; other columns are passed over, so
that a file may travel through another tool and back.  Label Studio's full JSON is read as it is
(`label_studio`), and written where that is wanted.  Its shorter forms (JSON-MIN, CSV), like other
tools that number samples on their own, have another number under ``id`` and keep ``row``: import
such a file with ``by="row"``.  A file that has both must agree with itself, so that one mistaken
for the other is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, final

from fallow.federation.ledger import Ledger
from fallow.federation.ledger.questions import Given, Question
from fallow.federation.schema import Schema
from fallow.federation.site.label_studio import tasks
from fallow.federation.site.labels_files import Key, read_lines, write_lines
from fallow.federation.site.rows import SiteRows

CANNOT_TELL = "cannot tell"


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
    lines = [_line(schema, rows, q, None, guess) for q in ledger.questions(state="open")]
    return _write(path, lines, schema, as_tasks)


def export_labels(
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
    path: Path,
    guess: bool = False,
    as_tasks: bool = False,
) -> int:
    """Write every answer that counts, one line for each person and question; how many."""
    said = [(asked, given) for asked in ledger.questions() for given in asked.answers]
    lines = [_line(schema, rows, asked, given, guess) for asked, given in said]
    return _write(path, lines, schema, as_tasks)


def _write(path: Path, lines: list[dict[str, Any]], schema: Schema, as_tasks: bool) -> int:
    if as_tasks and path.suffix.lower() != ".json":
        raise ValueError(f"{path.name} does not end in .json, as tasks of Label Studio do")
    return write_lines(path, tasks(lines, bool(schema.classes)) if as_tasks else lines)


def _line(
    schema: Schema, rows: SiteRows, asked: Question, given: Given | None, guess: bool
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "id": rows.ids[asked.row],
        "label": _text(schema, given.value) if given else "",
        "row": asked.row,
        "cycle": asked.cycle,
        "place": asked.place,
        "who": given.who if given else "",
        "at": given.at if given else "",
        "state": asked.state,
    }
    if guess:
        why = asked.why
        predicted = why.get("predicted")
        line["guess"] = "" if predicted is None else _text(schema, float(predicted))
        line |= {"probability": why.get("probability", ""), "guess_by": why.get("by", "")}
        line["score"] = why.get("score", "")
    shown = rows.shown(asked.row)
    if isinstance(shown, Path):
        return line | {"file": str(shown)}
    return line | {
        f"feature:{name}{f' ({unit})' * bool(unit)}": text for name, text, unit in shown
    }


def _text(schema: Schema, value: float | None) -> str:
    """A label as it stands in a file: numbers with all their digits."""
    if value is None:
        return CANNOT_TELL
    return schema.words(value) if schema.classes else repr(value).removesuffix(".0")


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
class _Said:
    """One line that names a sample and a label.  ``line`` is where it stands: "line 3"."""

    line: str
    row: int
    value: float | None
    who: str


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
    said, refused, empty = _understood(path, schema, rows, who, by)
    agreed, torn = _agreeing(said, schema, rows)
    recorded = same = 0
    try:
        with ledger.transaction():
            known = {question.row: question for question in ledger.questions()}
            for one in agreed:
                try:
                    is_new = _keep(ledger, schema, rows, known, one)
                    recorded, same = recorded + is_new, same + (not is_new)
                except ValueError as error:
                    torn.append(f"{one.line}: {error}")
            if dry_run or ((refused or torn) and not partial):
                raise _Undone
    except _Undone:
        recorded = recorded if dry_run else 0
    return Imported(recorded, same, empty, tuple(sorted([*refused, *torn], key=_place)))


def _understood(
    path: Path, schema: Schema, rows: SiteRows, who: str, by: Key
) -> tuple[list[_Said], list[str], int]:
    """The lines that name a sample and a label, a sentence for each that does not, and how many
    have no label."""
    said: list[_Said] = []
    refused: list[str] = []
    empty = 0
    places = {name: row for row, name in enumerate(rows.ids)} if by == "id" else {}
    for line, cells in read_lines(path, by):
        if not cells["label"]:
            empty += 1
            continue
        try:
            row = _row(cells, rows, places, by)
            said.append(
                _Said(line, row, _value(schema, cells["label"]), cells["who"] or who)
            )
        except ValueError as error:
            refused.append(f"{line}: {error}")
    return said, refused, empty


def _keep(
    ledger: Ledger, schema: Schema, rows: SiteRows, known: dict[int, Question], said: _Said
) -> bool:
    """Enter one answer; whether it is new.  ValueError where it is refused."""
    sample, asked = f"sample {rows.ids[said.row]!r}", known.get(said.row)
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
        if given.value != said.value:
            raise ValueError(
                f"{sample} has the label {_text(schema, given.value)!r} by "
                f"{given.who}, not {_text(schema, said.value)!r}; correct it on the labelling page"
            )
    known[said.row] = ledger.answer(said.row, said.value, said.who, "imported")
    return all(given.who != said.who for given in asked.answers)


def _agreeing(
    said: Iterable[_Said], schema: Schema, rows: SiteRows
) -> tuple[list[_Said], list[str]]:
    """The lines whose sample has one label in the file, and a sentence for each other line."""
    by_row: dict[int, list[_Said]] = {}
    for one in said:
        by_row.setdefault(one.row, []).append(one)
    agreed: list[_Said] = []
    torn: list[str] = []
    for row, lines in by_row.items():
        other = next((one for one in lines if one.value != lines[0].value), None)
        if other is None:
            agreed += lines
            continue
        first = lines[0]
        torn += [
            f"{one.line}: sample {rows.ids[row]!r} is {_text(schema, first.value)!r} in "
            f"{first.line} and {_text(schema, other.value)!r} in {other.line}; keep one of them"
            for one in lines
        ]
    return agreed, torn


def _row(
    cells: Mapping[str, str], rows: SiteRows, places: Mapping[str, int], by: Key
) -> int:
    name, number = cells["id"], cells["row"]
    is_row = number.isascii() and number.isdigit() and int(number) < len(rows.ids)
    if by == "row":
        if not is_row:
            raise ValueError(
                f"row {number!r} is none of this site: it has 0 to {len(rows.ids) - 1}"
            )
        return int(number)
    if name not in places:
        close = get_close_matches(name, places, n=1, cutoff=0.8)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"sample {name!r} is none of this site{meant}")
    if number and not (is_row and int(number) == places[name]):
        raise ValueError(
            f"sample {name!r} is row {places[name]} of this site, and the line says row "
            f"{number}; if another tool has numbered the samples anew, import by row"
        )
    return places[name]


def _value(schema: Schema, text: str) -> float | None:
    """A label as it stands in a file; a decimal comma is one in a spreadsheet of many countries."""
    if text == CANNOT_TELL and text not in schema.classes:
        return None
    is_comma = not schema.classes and text.count(",") == 1 and "." not in text
    return schema.value(text.replace(",", ".") if is_comma else text)


def _place(sentence: str) -> int:
    """The number of the line that a sentence is about."""
    return int(sentence.split(":", 1)[0].split()[-1])
