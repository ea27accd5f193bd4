"""Import and export of labels as CSV, for spreadsheets and other labeling tools.

A file has a header and one line for each labeling task, in UTF-8:

    id              name of the example in the site's data
    label           class name, number, or an answer that is no label, such as "cannot tell";
                    empty if not labeled
    row             number of the example in the site's data, from 0
    cycle           cycle of the task; -1 is the initial labeled set
    position        rank in the selection, from 0
    annotator, at   annotator and time (ISO 8601, UTC)
    state           answered, declined (no label), conflict, open, expired or withdrawn
    guess, probability, guess_by, score
                    prediction, its probability, the model ("global" or "local"), and the query
                    score; only on request, because predictions influence annotators
    slices          number of slices of a case
    feature:NAME    a column of a table, ``feature:NAME (UNIT)`` if it has a unit
    file            path of an image

The import reads ``id``, ``label`` and, if present, ``annotator``, also from an Excel file. It
accepts the study's names of the ID and label columns as well. Other columns are ignored, so that a
file can pass through another tool. Tools that number examples themselves have another number under
``id`` and keep ``row``. Import such a file with ``by="row"``. If a file has both columns, they must
be consistent, so that mistaking one for the other is detected. `labeling_tools` reads and writes
other formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, final

from pydantic import Field, with_config

from fallow.core.load_options import DecimalMark
from fallow.data.loaders.marks import GROUPED, find_decimal, mark_in
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.labeling_tasks import (
    LabelAnswer,
    LabelingTask,
    require_open,
)
from fallow.deployment.no_label import (
    CANNOT_TELL,
    NONE_OF_THESE,
    name_no_label,
    read_no_label,
)
from fallow.deployment.schema import Schema, without_unit
from fallow.deployment.site.labeling_tools import Imported, JsonObject, LabelingTool
from fallow.deployment.site.labels_files import Key, read_lines, read_with
from fallow.deployment.site.rows import SiteRows
from fallow.storage.plain import plain
from fallow.storage.validation import STRICT, Count

DIGITS = 12  # of a row number
WITH_POINT = re.compile(r"(0|-?[1-9]\d{0,14})\.0+", re.ASCII)
LONGEST_NAME = 200  # characters of an annotator's name or address
WRITTEN = (
    *("id", "label", "row", "cycle", "position", "annotator", "at", "state"),
    *("guess", "probability", "guess_by", "score", "slices", "file"),
)
"""Exported columns, which keep their meaning whatever names the study uses."""


# -- export ---------------------------------------------------------------------------------


def list_open_tasks(
    ledger: Ledger, schema: Schema, rows: SiteRows, *, guess: bool = False
) -> list[JsonObject]:
    """Return the open labeling tasks as lines of a file, in the order of selection."""
    return [
        _build_line(schema, rows, asked, answer=None, guess=guess)
        for asked in ledger.tasks(state="open")
    ]


def list_labels(
    ledger: Ledger, schema: Schema, rows: SiteRows, *, guess: bool = False
) -> list[JsonObject]:
    """Return all labels that count, one line per annotator and task."""
    return [
        _build_line(schema, rows, asked, answer=answer, guess=guess)
        for asked in ledger.tasks()
        for answer in asked.answers
        if answer.kind != "earlier"
    ]


def _build_line(
    schema: Schema,
    rows: SiteRows,
    asked: LabelingTask,
    *,
    answer: LabelAnswer | None,
    guess: bool,
) -> JsonObject:
    """Return a labeling task as a line of a file.

    ``answer`` is its label, or None. ``guess``: with the model's prediction.
    """
    line: dict[str, object] = {
        "id": rows.ids[asked.row],
        "label": "",
        "row": asked.row,
        "cycle": asked.cycle,
        "position": asked.position,
        "annotator": "",
        "at": "",
        "state": asked.state,
    }
    if answer is not None:
        line["label"] = _label_text(schema, answer.value, answer.reason)
        line["annotator"] = answer.annotator
        line["at"] = answer.at
    if rows.each is not None:
        line["slices"] = rows.find_depth(asked.row)
    if guess:
        reasons = asked.reasons
        if answer is None and reasons.get("is_blind"):
            reasons = {}  # annotators label this example without predictions
        predicted = reasons.get("predicted")
        line["guess"] = ""
        if predicted is not None:
            line["guess"] = _label_text(schema, float(predicted))
        line["probability"] = reasons.get("probability", "")
        line["guess_by"] = reasons.get("by", "")
        line["score"] = reasons.get("score", "")
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


def list_choices(schema: Schema, plan: AnswerPlan) -> tuple[str, ...]:
    """Return the texts of which a labeling tool offers one; empty for regression."""
    if not schema.classes:
        return ()
    others = [answer.name for answer in plan.no_labels if answer.key]
    return tuple(dict.fromkeys((*schema.classes, *others)))


def _label_text(schema: Schema, value: float | None, reason: str = "") -> str:
    """Return a label as text, with all digits of a number."""
    if value is None:
        return name_no_label(reason)
    if schema.outcomes:
        return schema.words(value)
    return repr(value).removesuffix(".0")


# -- import ---------------------------------------------------------------------------------


@final
@with_config(STRICT)
@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    file: Annotated[str, Field(description="path of the file")]
    kind: Annotated[Literal["labeling tasks", "labels"], Field(description="content")]
    count: Annotated[Count, Field(description="number of entries")]
    more: Annotated[
        tuple[str, ...], Field(description="further files that the labeling tool needs")
    ] = ()


@final
@dataclass(frozen=True)
class _Line:
    """Line of a file with an example and a label.

    ``location`` is its position, such as "line 3". ``value`` is a class ID or a number, or None for
    the answer that is no label with the code ``reason``.
    """

    location: str
    row: int
    value: float | None
    reason: str
    annotator: str


HINTS = 20  # rejected lines with a suggestion
COMPARED = 200_000  # total number of name comparisons
LONGEST_HINTED = 500  # longest name or label for a suggestion


@final
@dataclass
class _Parsed:
    """Parsed file: lines with labels, reasons for rejected lines, number of empty lines."""

    lines: list[_Line]
    refused: list[str]
    empty: int = 0


class _Undone(Exception):
    """Raised to roll back an import."""


def import_labels(
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
    path: Path,
    annotator: str,
    *,
    partial: bool = False,
    dry_run: bool = False,
    by: Key = "id",
    tool: LabelingTool | None = None,
    plan: AnswerPlan = SINGLE,
) -> Imported:
    """Import the labels in a file as if entered on the labeling page: all or none.

    ``annotator`` is the annotator of lines without one. ``partial`` keeps valid lines if others are
    rejected. ``dry_run`` reports the result without changes. ``by`` is the column with the names of
    examples. ``tool`` reads the file (default: by its suffix). ``plan`` states which answers that
    are no label annotators may give.

    A line is rejected for an unknown example, for one without an active labeling task, for an
    unknown class, and for a number that is not finite. It is also rejected for a label that differs
    from an existing one, at the site or in another line, because annotators must decide. If the
    study plans several annotations, this applies to labels of one annotator and to completed tasks.
    A label that the annotator gave before its check does not answer the check.
    Raises ValueError for a file that cannot be read.
    """
    annotators = ledger.list_annotators()
    parsed = _parse_file(
        path,
        schema,
        rows,
        annotator=annotator,
        by=by,
        tool=tool,
        annotators=annotators,
        plan=plan,
    )
    refused = parsed.refused
    recorded = 0
    same = 0
    try:
        with ledger.transaction():
            known = ledger.newest_tasks()
            several = {row for row, question in known.items() if question.needed > 1}
            agreed, contradictions = _split_contradictions(
                parsed.lines, several, schema, rows
            )
            refused += contradictions
            for line in agreed:
                try:
                    is_new = _record(line, known, ledger=ledger, schema=schema, rows=rows)
                except ValueError as error:
                    refused.append(f"{line.location}: {error}")
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
    path: Path,
    schema: Schema,
    rows: SiteRows,
    *,
    annotator: str,
    by: Key,
    tool: LabelingTool | None,
    annotators: Sequence[str],
    plan: AnswerPlan = SINGLE,
) -> _Parsed:
    """Parse a file. A name that differs from an earlier one in case only is the same annotator."""
    spellings = {name.casefold(): name for name in reversed(annotators)}
    parsed = _Parsed(lines=[], refused=[])
    row_of_name: dict[str, int] = {}
    if by == "id":
        row_of_name = {name: row for row, name in enumerate(_list_names(tool, rows))}
    most_hints = _bound_hints(len(row_of_name))
    if tool is not None:
        entries = read_with(tool, path)
    else:
        entries = read_lines(path, by, _other_names(schema, by))
    decimal: DecimalMark = "."
    if tool is None:
        decimal = find_decimal(
            [without_unit(cells["label"], schema.unit) for _, cells in entries]
        )
    for location, cells in entries:
        if not cells["label"]:
            parsed.empty += 1
            continue
        with_hint = len(parsed.refused) < most_hints
        try:
            row = _find_row(cells, rows, row_of_name, by=by, with_hint=with_hint)
            reason = _parse_no_label(schema, cells["label"], plan)
            value = None
            if reason is None:
                value = _parse_label(schema, cells["label"], decimal, with_hint=with_hint)
        except ValueError as error:
            parsed.refused.append(f"{location}: {error}")
            continue
        # untrusted text that is displayed
        name = plain(cells["annotator"], LONGEST_NAME) or annotator
        if name not in annotators:
            name = spellings.setdefault(name.casefold(), name)
        line = _Line(
            location=location, row=row, value=value, reason=reason or "", annotator=name
        )
        parsed.lines.append(line)
    return parsed


def _other_names(schema: Schema, by: Key) -> dict[str, str]:
    """Return the study's column names and the columns of a file that they stand for."""
    names = {schema.label: "label"}
    if by == "id":
        names[schema.ids] = "id"
    return {name: column for name, column in names.items() if name not in WRITTEN}


def _bound_hints(rows: int) -> int:
    """Return the number of rejected lines with a suggestion.

    Each suggestion compares a name with all others, and a file may have any number of lines.

    >>> _bound_hints(300), _bound_hints(50_000), _bound_hints(10**7)
    (20, 4, 1)
    """
    return max(1, min(HINTS, COMPARED // max(1, rows)))


def _list_names(tool: LabelingTool | None, rows: SiteRows) -> Sequence[str]:
    """Return the names of the rows in a file, in order."""
    if tool is None:
        return rows.ids
    return [tool.name_example(row, name) for row, name in enumerate(rows.ids)]


def _record(
    line: _Line,
    known: dict[int, LabelingTask],
    *,
    ledger: Ledger,
    schema: Schema,
    rows: SiteRows,
) -> bool:
    """Record one label and return whether it is new. Raises ValueError if it is rejected.

    ``known`` has the newest labeling task of each row and is updated.
    """
    sample = f"example {rows.ids[line.row]!r}"
    asked = require_open(known.get(line.row), sample)
    if asked.is_check and ledger.has_labeled(line.row, line.value, line.annotator):
        return False  # the file may be older than the check
    is_complete = len(asked.answers) >= asked.needed
    for answer in asked.answers:
        is_own = answer.annotator == line.annotator
        is_other = (answer.value, answer.reason) != (line.value, line.reason)
        if is_other and (is_own or is_complete or asked.needed == 1):
            known_text = _label_text(schema, answer.value, answer.reason)
            line_text = _label_text(schema, line.value, line.reason)
            raise ValueError(
                f"{sample} has the label {known_text!r} by {answer.annotator}, not {line_text!r}; "
                "correct it on the labeling page"
            )
    known[line.row] = ledger.answer(
        line.row, line.value, line.annotator, "imported", line.reason
    )
    return all(answer.annotator != line.annotator for answer in asked.answers)


def _split_contradictions(
    lines: Iterable[_Line], several: Set[int], schema: Schema, rows: SiteRows
) -> tuple[list[_Line], list[str]]:
    """Return the lines whose example has a single label, and a sentence for each other line.

    An example in ``several`` may have a label of each annotator.
    """
    by_row: dict[tuple[int, str], list[_Line]] = {}
    for line in lines:
        author = line.annotator if line.row in several else ""
        by_row.setdefault((line.row, author), []).append(line)
    agreed: list[_Line] = []
    refused: list[str] = []
    for (row, _), about_row in by_row.items():
        first = about_row[0]
        others = [
            line
            for line in about_row
            if (line.value, line.reason) != (first.value, first.reason)
        ]
        if not others:
            agreed += about_row
            continue
        other = others[0]
        why = (
            f"example {rows.ids[row]!r} is {_label_text(schema, first.value, first.reason)!r} in "
            f"{first.location} and {_label_text(schema, other.value, other.reason)!r} in "
            f"{other.location}; keep one of them"
        )
        refused += [f"{line.location}: {why}" for line in about_row]
    return agreed, refused


def _find_row(
    cells: Mapping[str, str],
    rows: SiteRows,
    row_of_name: Mapping[str, int],
    *,
    by: Key,
    with_hint: bool,
) -> int:
    """Return the row of a line. Raises ValueError if the site does not have it."""
    name = cells["id"]
    if name not in row_of_name:
        name = _drop_point(name)
    number = _drop_point(cells["row"])
    is_number = number.isascii() and number.isdigit() and len(number) <= DIGITS
    is_row = is_number and int(number) < len(rows.ids)
    if by == "row":
        if not is_row:
            raise ValueError(
                f"this site has no row {number!r:.40}: its rows are 0 to "
                f"{len(rows.ids) - 1}"
            )
        return int(number)
    if name not in row_of_name:
        sentence = f"this site has no example {cells['id']!r}"
        if with_hint and len(name) <= LONGEST_HINTED:
            sentence += _suggest_name(name, row_of_name)
        raise ValueError(sentence)
    row = row_of_name[name]
    if number and not (is_row and int(number) == row):
        raise ValueError(
            f"example {name!r} is row {row} of this site, but the line has row "
            f"{number:.40}; if another tool has renumbered the examples, import by "
            "row"
        )
    return row


def _drop_point(name: str) -> str:
    """Return a whole number without a decimal point, which pandas and spreadsheets may add.

    >>> _drop_point("12.0"), _drop_point("1.2E+01"), _drop_point("007.0")
    ('12', '1.2E+01', '007.0')
    """
    whole = WITH_POINT.fullmatch(name)
    return name if whole is None else whole[1]


def _suggest_name(name: str, names: Mapping[str, int]) -> str:
    """Return a suggestion for an unknown name, or "".

    >>> (
    ...     _suggest_name("7", {"007": 0}),
    ...     _suggest_name("a1", {"A1": 0}),
    ...     _suggest_name("x", {"A1": 0}),
    ... )
    ("; did you mean '007'?", "; did you mean 'A1'?", '')
    """
    # spreadsheets drop leading zeros
    close = [known for known in names if _plain_key(known) == _plain_key(name)]
    if not close:
        close = get_close_matches(name, names, n=1, cutoff=0.8)
    return f"; did you mean {close[0]!r}?" if close else ""


def _plain_key(name: str) -> str:
    return name.casefold().lstrip("0")


def _parse_no_label(schema: Schema, text: str, plan: AnswerPlan) -> str | None:
    """Return the code of an answer that is no label, or None for a label.

    Raises ValueError for an answer that annotators may not give in this study.
    """
    reason = None
    if text not in schema.classes:
        reason = read_no_label(text)
    if reason == NONE_OF_THESE.code and NONE_OF_THESE not in plan.no_labels:
        raise ValueError(
            f"{text!r} is not an answer of this study (federation.none_of_these); choose a class or "
            f"{CANNOT_TELL.name!r}"
        )
    return reason


def _parse_label(
    schema: Schema, text: str, decimal: DecimalMark, *, with_hint: bool
) -> float:
    """Parse a label. A decimal comma is accepted, as spreadsheets in many countries write it.

    ``decimal`` is the mark of the other labels. Three digits after another mark may be thousands; after
    a point they are a fraction in a file that shows no mark, because exported files have points.
    """
    if not schema.classes:
        text = without_unit(text, schema.unit)
    if not schema.outcomes and text.count(",") + text.count(".") == 1:
        mark = mark_in(text)
        is_known = mark == decimal or (mark == "." and decimal == "auto")
        if not is_known and GROUPED[mark].fullmatch(text):
            raise ValueError(
                f"label {text!r} may be a fraction or thousands; write it without separator, or as "
                f"'{text}0'"
            )
        text = text.replace(",", ".")
    is_short = len(text) <= LONGEST_HINTED
    return schema.value(text, with_hint=with_hint and is_short)


def _number_of_line(sentence: str) -> int:
    """Return the line number in a sentence."""
    return int(sentence.split(":", 1)[0].split()[-1])
