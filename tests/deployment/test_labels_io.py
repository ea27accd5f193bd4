"""Test label import and export."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.data.loaders.marks import find_decimal
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.schema import Schema
from fallow.deployment.site import labels_files
from fallow.deployment.site.labeling_tools import Imported, LabelingTool
from fallow.deployment.site.labels_files import write_lines
from fallow.deployment.site.labels_io import (
    _parse_file,
    _parse_label,
    import_labels,
    list_labels,
    list_open_tasks,
)
from tests.deployment.label_queues import (
    DIGITS,
    DOSE,
    HEART,
    close,
    make_queue,
    picture_rows,
    table_rows,
)
from tests.each import each_of

WHY: Reasons = {"predicted": 1, "probability": 0.62, "by": "global", "score": 0.66}


def parts_of(queue: LabelQueue) -> tuple[Any, Any, Any]:
    return queue.ledger, queue.schema, queue.rows


def export_tasks(queue: LabelQueue, path: Path, *, guess: bool = False) -> int:
    return write_lines(path, list_open_tasks(*parts_of(queue), guess=guess))


def export_labels(queue: LabelQueue, path: Path) -> int:
    return write_lines(path, list_labels(*parts_of(queue)))


def take(queue: LabelQueue, path: Path, lines: Iterable[str], **more: Any) -> Imported:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return import_labels(*parts_of(queue), path, "Ann", **more)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_open_questions_are_exported_with_their_features_and_no_guess(
    tmp_path: Path,
) -> None:
    queue, path = make_queue(tmp_path, asked={3: WHY, 1: WHY}), tmp_path / "ask.csv"
    queue.ledger.answer(1, 1.0, "Bo")
    assert export_tasks(queue, path) == 1
    assert read_csv(path) == [
        {
            "id": "patient-3",
            "row": "3",
            "cycle": "0",
            "position": "0",
            "label": "",
            "annotator": "",
            "at": "",
            "state": "open",
            "feature:age (years)": "43",
            "feature:sex": "male",
            "feature:chol (mg/dl)": "209",
        }
    ]
    export_tasks(queue, path, guess=True)
    (line,) = read_csv(path)
    assert (line["guess"], line["probability"], line["guess_by"]) == (
        "ill",
        "0.62",
        "global",
    )


def test_labels_are_exported_with_who_gave_them(tmp_path: Path) -> None:
    queue, path = make_queue(tmp_path, DOSE), tmp_path / "labels.csv"
    queue.ledger.answer(3, 1 / 3, "Ann")
    queue.ledger.answer(3, 2.0, "Bo")
    queue.ledger.answer(1, None, "Ann")
    assert export_labels(queue, path) == 3
    lines = read_csv(path)
    result = [
        (line["id"], line["label"], line["annotator"], line["state"]) for line in lines
    ]
    assert result == [
        ("patient-3", repr(1 / 3), "Ann", "conflict"),
        ("patient-3", "2", "Bo", "conflict"),
        ("patient-1", "cannot tell", "Ann", "declined"),
    ]


def test_pictures_are_exported_as_paths(tmp_path: Path) -> None:
    queue, path = make_queue(tmp_path, DIGITS, picture_rows(tmp_path)), tmp_path / "ask.csv"
    export_tasks(queue, path)
    assert read_csv(path)[0]["file"] == str(tmp_path / "scan-3.png")


def test_what_was_exported_comes_back_as_the_same_labels(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = make_queue(tmp_path / "a", DOSE), make_queue(tmp_path / "b", DOSE)
    for row, value, annotator in ((3, 1 / 3, "Bo"), (1, None, "Ann"), (4, -1e-9, "Bo")):
        first.ledger.answer(row, value, annotator)
    path = tmp_path / "labels.csv"
    export_labels(first, path)
    assert import_labels(*parts_of(second), path, "Cy") == Imported(3, 0, 0, ())
    assert import_labels(*parts_of(second), path, "Cy") == Imported(0, 3, 0, ())
    for row in (3, 1, 4):
        (then,), (now,) = first.ledger.history(row), second.ledger.history(row)
        assert (then.annotator, then.value, now.kind) == (
            now.annotator,
            now.value,
            "imported",
        )


def test_a_file_has_a_label_of_each_annotator_if_several_are_planned(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, asked=(3, 1, 4), answers=2)
    queue.ledger.answer(4, 1.0, "Cy")
    entries = ["3,ill,Ann", "3,healthy,Bo", "1,ill,Ann", "1,healthy,Ann", "4,healthy,Cy"]
    lines = ["id,label,annotator", *(f"patient-{entry}" for entry in entries)]
    imported = take(queue, tmp_path / "in.csv", lines, partial=True)
    assert imported.recorded == 2
    assert [sentence.split(",")[0] for sentence in imported.refused] == [
        "line 4: example 'patient-1' is 'ill' in line 4 and 'healthy' in line 5; keep one of them",
        "line 5: example 'patient-1' is 'ill' in line 4 and 'healthy' in line 5; keep one of them",
        "line 6: example 'patient-4' has the label 'ill' by Cy",
    ]
    assert [(a.annotator, a.value) for a in queue.ledger.tasks()[0].answers] == [
        ("Ann", 1.0),
        ("Bo", 0.0),
    ]
    third = take(queue, tmp_path / "in.csv", ["id,label,annotator", "patient-3,ill,Cy"])
    assert "'healthy' by Bo" in third.refused[0]


def test_names_that_differ_in_case_only_are_one_annotator(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3, 1, 4), answers=2)
    queue.ledger.answer(3, 1.0, "Ann")
    entries = ["3,ill,ANN", "1,healthy,bo", "1,ill,Bo", "4,ill, ann "]
    lines = ["id,label,annotator", *(f"patient-{entry}" for entry in entries)]
    imported = take(queue, tmp_path / "in.csv", lines, partial=True)
    assert (imported.recorded, imported.same) == (1, 1)
    assert "'healthy' in line 3 and 'ill' in line 4" in imported.refused[0]
    assert [answer.annotator for answer in queue.ledger.tasks()[2].answers] == ["Ann"]


def test_every_bad_line_is_refused_with_its_number_and_nothing_is_kept(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, asked=(3, 1, 4, 0, 5))
    queue.ledger.answer(1, 1.0, "Bo")
    queue.ledger.withdraw(5, "Bo", "consent")
    output = "3,ill 44,ill 4,iII 1,healthy 7,ill 0,ill 0,healthy 5,ill 4,"
    lines = ["id,label", *(f"patient-{line}" for line in output.split())]
    imported = take(queue, tmp_path / "in.csv", lines)
    assert (imported.recorded, imported.same, imported.empty) == (0, 0, 1)
    why = [
        "line 3: this site has no example 'patient-44'; did you mean 'patient-4'?",
        "line 4: label 'iII' is not one of the agreed classes",
        "line 5: example 'patient-1' has the label 'ill' by Bo, not 'healthy'; correct it on",
        "line 6: example 'patient-7' has no labeling task",
        "line 7: example 'patient-0' is 'ill' in line 7 and 'healthy' in line 8; keep one",
        "line 8: example 'patient-0' is 'ill' in line 7 and 'healthy' in line 8; keep one",
        "line 9: example 'patient-5' was withdrawn",
    ]
    assert len(imported.refused) == len(why)
    for sentence, start in zip(imported.refused, why, strict=True):
        assert sentence.startswith(start)
    assert not queue.ledger.history(3)


def test_the_studys_own_names_of_columns_are_read(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, replace(HEART, ids="patient"))
    path = tmp_path / "in.csv"
    path.write_text("patient,disease,note\npatient-3,ill,x\n", encoding="utf-8")
    assert import_labels(*parts_of(queue), path, "Ann") == Imported(1, 0, 0, ())
    (answer,) = queue.ledger.history(3)
    assert answer.value == 1.0


def test_a_label_under_two_names_is_refused(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    path = tmp_path / "in.csv"
    path.write_text("id,disease,label\npatient-3,ill,healthy\n", encoding="utf-8")
    with pytest.raises(ValueError, match="'label', which may also be called 'disease'"):
        import_labels(*parts_of(queue), path, "Ann")


def test_a_study_whose_label_is_called_as_a_written_column_keeps_its_exports(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, replace(HEART, label="state"))
    queue.ledger.answer(3, 1.0, "Ann")
    path = tmp_path / "labels.csv"
    export_labels(queue, path)
    assert import_labels(*parts_of(queue), path, "Ann") == Imported(0, 1, 0, ())


def test_a_file_without_a_label_is_told_both_names(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    with pytest.raises(ValueError, match=r"no 'label' \(or 'disease'\), only 'id', 'x'"):
        take(queue, tmp_path / "in.csv", ["id,x", "patient-3,ill"])


@pytest.mark.parametrize("line", ["patient-44,,yes", "patient-3,,ilk"])
def test_a_file_of_many_wrong_lines_is_not_compared_with_all_names_for_each(
    line: str, tmp_path: Path
) -> None:
    """Comparing every line with all names would take hours for a large unrelated file."""
    queue = make_queue(tmp_path)
    lines = ["id,row,label", *([line] * 100)]
    refused = take(queue, tmp_path / "labels.csv", lines).refused
    assert len(refused) == 100
    hinted = ["did you mean" in item or "known:" in item for item in refused]
    assert hinted == [True] * 20 + [False] * 80


def test_a_name_of_many_letters_is_compared_with_none(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    lines = ["id,row,label", f"{'patient-4' * 100},,ill"]
    (refused,) = take(queue, tmp_path / "labels.csv", lines).refused
    assert "did you mean" not in refused


def test_good_lines_are_kept_where_that_is_wanted(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    lines = [
        "id,label,annotator",
        "patient-3,ill,Zoe",
        "patient-9,ill,",
        "patient-1,cannot tell,",
    ]
    imported = take(queue, tmp_path / "in.csv", lines, partial=True)
    assert (imported.recorded, len(imported.refused)) == (2, 1)
    assert [
        (g.annotator, g.value) for row in (3, 1) for g in queue.ledger.history(row)
    ] == [
        ("Zoe", 1.0),
        ("Ann", None),
    ]


def test_a_dry_run_says_the_same_and_keeps_nothing(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    lines = ["id,label", "patient-3,ill", "patient-3,ill", "patient-7,ill"]
    imported = take(queue, tmp_path / "in.csv", lines, dry_run=True)
    assert (imported.recorded, imported.same, len(imported.refused)) == (1, 1, 1)
    assert not queue.ledger.history(3)


def test_labels_for_a_cycle_that_was_closed_are_refused(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    close(queue.ledger)
    values = take(queue, tmp_path / "in.csv", ["id,label", "patient-3,ill"])
    assert "expired at the end of cycle 0" in values.refused[0]


def test_a_tool_that_numbers_samples_anew_is_found_out_and_has_a_way(
    tmp_path: Path,
) -> None:
    ids = tuple(
        str(row + 1) for row in range(12)
    )  # names that look like task numbers of another tool
    queue = make_queue(tmp_path, rows=table_rows(ids))
    path = tmp_path / "tool.csv"
    path.write_text("id,row,label,annotator\n2,3,ill,1\n")
    values = import_labels(*parts_of(queue), path, "Ann")
    assert (
        "line 2: example '2' is row 1 of this site, but the line has row 3"
        in values.refused[0]
    )
    assert import_labels(*parts_of(queue), path, "Ann", by="row").recorded == 1
    assert queue.ledger.history(3)[0].value == 1.0
    path.write_text("row,label\n12,ill\n")
    assert (
        "this site has no row '12'"
        in import_labels(*parts_of(queue), path, "Ann", by="row").refused[0]
    )


def test_a_spreadsheet_of_a_country_with_decimal_commas_is_read(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE)
    imported = take(
        queue, tmp_path / "in.csv", ["\ufeffid;label", "patient-3;2,5", '"patient-1";3']
    )
    assert imported == Imported(2, 0, 0, ())
    assert [queue.ledger.history(row)[0].value for row in (3, 1)] == [2.5, 3.0]


@each_of(
    "others, label, value",
    [
        (["3,25"], "3,215", 3.215),
        (["3,25"], "1.234", None),
        (["3.25"], "3.215", 3.215),
        (["3.25"], "3,215", None),
        (["3.25", "3,25"], "1,234", None),
        (["7"], "1.234", 1.234),  # as exported
        (["7"], "1,234", None),
    ],
)
def test_three_digits_after_a_mark_count_only_after_that_of_the_file(
    others: list[str], label: str, value: float | None
) -> None:
    decimal = find_decimal([*others, label])
    if value is not None:
        assert _parse_label(DOSE, label, decimal, with_hint=False) == value
        return
    with pytest.raises(ValueError, match=f"'{label}' may be a fraction or thousands"):
        _parse_label(DOSE, label, decimal, with_hint=False)


def test_the_mark_of_a_file_decides_its_labels(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE)
    lines = ["id;label", "patient-3;3,25", "patient-1;1,234", "patient-4;1.234"]
    (refused,) = take(queue, tmp_path / "in.csv", lines).refused
    assert refused.startswith("line 4: label '1.234' may be a fraction or thousands")
    assert take(queue, tmp_path / "in.csv", lines[:3]).recorded == 2
    assert queue.ledger.history(1)[0].value == 1.234


def test_labels_that_may_be_fractions_or_thousands_are_refused(tmp_path: Path) -> None:
    lines = ["id;label", "patient-3;3,215", "patient-1;-12,500"]
    imported = take(make_queue(tmp_path, DOSE), tmp_path / "in.csv", lines)
    assert not imported.recorded and len(imported.refused) == 2
    assert "label '3,215' may be a fraction or thousands" in imported.refused[0]


NAMES = (
    *("patient-0", "patient-1", "10", "12", "12.0", "-7", "007", "7", "0011", "1E5", "5-9"),
    *("Müller", "a b", "=x", "2024-01-01"),
)
YES = replace(HEART, classes=("no", "yes"))
NUMBERS = replace(HEART, classes=("0", "1"))
CODES = replace(HEART, classes=("01", "02"))
NONE = replace(HEART, classes=("none", "mild"))
ILL = [("patient-0", 1.0)]
READ_ANSWERS: dict[str, tuple[str | bytes, Schema, Sequence[tuple[str, float | None]]]] = {
    "plain": ("id,label\npatient-0,ill", HEART, ILL),
    "byte order": ("\ufeffid,label\npatient-0,ill", HEART, ILL),
    "UTF-16": ("id,label\npatient-0,ill".encode("utf-16"), HEART, ILL),
    "ASCII in cp1252": ("id,label\npatient-0,ill".encode("cp1252"), HEART, ILL),
    "other Unicode form": ("id,label\nMu\u0308ller,ill", HEART, [("Müller", 1.0)]),
    "semicolons": ("id;label\npatient-0;ill", HEART, ILL),
    "tabs": ("id\tlabel\npatient-0\till", HEART, ILL),
    "pipes": ("id|label\npatient-0|ill", HEART, ILL),
    "sep=": ("sep=;\nid;label\npatient-0;ill", HEART, ILL),
    "line ends of Windows": ("id,label\r\npatient-0,ill\r\n", HEART, ILL),
    "line ends of old Macs": ("id,label\rpatient-0,ill\r", HEART, ILL),
    "blank lines": ("\n\nid,label\n\npatient-0,ill\n\n\n", HEART, ILL),
    "lines of empty cells": ("id,label\n,\npatient-0,ill\n,\n", HEART, ILL),
    "spaces": ("id , label \n patient-0 , ill ", HEART, ILL),
    "quotes": ('"id","label"\n"patient-0","ill"', HEART, ILL),
    "hard spaces": ("id,label\npatient-0\u00a0,ill\u00a0", HEART, ILL),
    "capitals in the header": ("ID,LABEL\npatient-0,ill", HEART, ILL),
    "the study's name": ("id,disease\npatient-0,ill", HEART, ILL),
    "a guess beside": ("id,label,guess\npatient-0,ill,healthy", HEART, ILL),
    "other columns": ("n,id,x,label\n0,patient-0,5,ill", HEART, ILL),
    "an unnamed column": (",id,label,\n0,patient-0,ill,", HEART, ILL),
    "a note of two lines": ('id,label,note\npatient-0,ill,"a\nb"', HEART, ILL),
    "IDs in two columns": ("id,ID,label\npatient-0,patient-1,ill", HEART, ILL),
    "a row": ("id,row,label\npatient-0,0,ill", HEART, ILL),
    "a row with a point": ("id,row,label\npatient-0,0.0,ill", HEART, ILL),
    "an ID with a point": ("id,label\n10.0,ill", HEART, [("10", 1.0)]),
    "both IDs": ("id,label\n12,ill\n12.0,healthy", HEART, [("12", 1.0), ("12.0", 0.0)]),
    "a negative ID": ("id,label\n-7.0,ill", HEART, [("-7", 1.0)]),
    "a formula": ("id,label\n'=x,ill", HEART, [("=x", 1.0)]),
    "no label": ("id,label\npatient-0,", HEART, []),
    "cannot tell": ("id,label\npatient-0,Cannot Tell", HEART, [("patient-0", None)]),
    "a class with a point": ("id,label\npatient-0,1.0", NUMBERS, ILL),
    "a class of none": ("id,label\npatient-0,none", NONE, [("patient-0", 0.0)]),
    "a code": ("id,label\npatient-0,02", CODES, ILL),
    "decimal comma": ("id;dose\npatient-0;1,5", DOSE, [("patient-0", 1.5)]),
    "the unit": ("id;dose\npatient-0;1,5 mg", DOSE, [("patient-0", 1.5)]),
    "two marks": (
        "id;dose\npatient-0;1,5\n10;2.5",
        DOSE,
        [("patient-0", 1.5), ("10", 2.5)],
    ),
}


def parse(folder: Path, content: str | bytes, schema: Schema, name: str = "in.csv") -> Any:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    rows = table_rows(NAMES)
    parsed = _parse_file(
        path, schema, rows, annotator="Ann", by="id", tool=None, annotators=()
    )
    labels = [(NAMES[line.row], line.value) for line in parsed.lines]
    return labels, parsed.refused


@each_of("content, schema, labels", READ_ANSWERS.values())
def test_answers_in_every_form_are_read(
    content: str | bytes,
    schema: Schema,
    labels: Sequence[tuple[str, float | None]],
    tmp_path: Path,
) -> None:
    assert parse(tmp_path, content, schema) == (labels, [])


REFUSED_ANSWERS: dict[str, tuple[str, Schema, str]] = {
    "a class in capitals": ("patient-0,ILL", HEART, "'ILL' is not one of the agreed"),
    "a short form": ("patient-0,Y", YES, "'Y' is not one of the agreed"),
    "a code of a class": ("patient-0,1", YES, "'1' is not one of the agreed"),
    "a code without its zero": ("patient-0,1", CODES, "did you mean '01'"),
    "a truth value": ("patient-0,TRUE", NUMBERS, "'TRUE' is not one of the agreed"),
    "no class": ("patient-0,-1", NUMBERS, "'-1' is not one of the agreed"),
    "a missing label": ("patient-0,NA", HEART, "'NA' is not one of the agreed"),
    "a question mark": ("patient-0,?", HEART, "'?' is not one of the agreed"),
    "an ID in capitals": ("PATIENT-0,ill", HEART, "did you mean 'patient-0'"),
    "an ID without zeros": ("11,ill", HEART, "did you mean '0011'"),
    "an ID with more zeros": ("0010,ill", HEART, "did you mean '10'"),
    "a shortened ID": ("1.0E+01,ill", HEART, "no example '1.0E+01'"),
    "an ID that became a date": ("05-Sep,ill", HEART, "no example '05-Sep'"),
    "an ID that became a number": ("1.00E+05,ill", HEART, "no example '1.00E+05'"),
    "a date in another form": ("01.01.2024,ill", HEART, "no example '01.01.2024'"),
    "a date as Excel counts it": ("45292,ill", HEART, "no example '45292'"),
    "an invisible character": ("patient-0\u200b,ill", HEART, "did you mean 'patient-0'"),
    "a repeated header": ("id,label", HEART, "no example 'id'"),
    "a total": ("Total,12", HEART, "no example 'Total'"),
    "another unit": ("patient-0,1.5 g", DOSE, "'1.5 g' is not a finite number (in mg)"),
    "thousands": ('patient-0,"1,500"', DOSE, "may be a fraction or thousands"),
    "a date": ("patient-0,01.May", DOSE, "'01.May' is not a finite number"),
    "a typographic minus": ("patient-0,−1.5", DOSE, "'−1.5' is not a finite number"),
    "percent": ("patient-0,5%", DOSE, "'5%' is not a finite number"),
    "infinity": ("patient-0,inf", DOSE, "'inf' is not a finite number"),
    "a bound": ("patient-0,<0.5", DOSE, "'<0.5' is not a finite number"),
    "other digits": ("patient-0,\uff11", DOSE, "is not a finite number"),
    "an underscore": ("patient-0,1_0", DOSE, "'1_0' is not a finite number"),
}


@each_of("line, schema, reason", REFUSED_ANSWERS.values())
def test_answers_that_may_mean_something_else_are_refused(
    line: str, schema: Schema, reason: str, tmp_path: Path
) -> None:
    labels, refused = parse(tmp_path, f"id,label\n{line}\n", schema)
    assert labels == [] and len(refused) == 1
    assert reason in refused[0]


def test_answers_in_an_excel_file_are_those_of_its_cells(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["ID", "Label", "note"], ["patient-0", 1], [10, 0.0, "x"], [None, None]):
        book.active.append(row)
    book.active.append(["Total", 2])
    book.save(tmp_path / "book.xlsx")
    content = (tmp_path / "book.xlsx").read_bytes()
    labels, refused = parse(tmp_path, content, NUMBERS, "in.xlsx")
    assert labels == [("patient-0", 1.0), ("10", 0.0)]
    assert refused == ["row 3: this site has no example 'Total'"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.txt", "id,label", "must end in .csv, .tsv or .xlsx"),
        ("in.csv", "name,label\npatient-3,ill", "in.csv has no 'id', only 'name', 'label'"),
        ("in.csv", "id,class\npatient-3,ill", "in.csv has no 'label'"),
        ("in.csv", "id,Label,LABEL\npatient-3,ill,well", "in.csv has no 'label'"),
        (
            "in.csv",
            "patient-3,ill",
            "in.csv has no 'id', only 'patient-3', 'ill'; the first",
        ),
        ("in.csv", "id,label\npatient-3", "line 2: 1 cells, but the header has 2"),
        ("in.csv", 'id,label\n"patient-3', "line 2: unexpected end of data"),
    ],
)
def test_a_file_that_is_no_list_of_labels_is_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        import_labels(*parts_of(make_queue(tmp_path)), path, "Ann")


def test_a_file_that_says_two_things_of_one_sample_at_once_is_refused(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, HEART)
    with pytest.raises(ValueError, match="two columns 'label'"):
        take(queue, tmp_path / "in.csv", ["id,label,label", "patient-3,ill,healthy"])
    assert len(queue.ledger.tasks(state="open")) == 3


def test_a_name_in_a_file_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, HEART)
    annotator = "Eve\n\x1b[2J" + "e" * 9999
    take(queue, tmp_path / "in.csv", ["id,label,annotator", f'patient-3,ill,"{annotator}"'])
    (answer,) = queue.ledger.history(3)
    assert answer.annotator.startswith("Eve [2Jeee")
    assert answer.annotator.isprintable()
    assert len(answer.annotator) == 200


def test_a_file_that_is_not_there_or_not_in_utf8_is_said(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    with pytest.raises(ValueError, match=r"none\.csv cannot be read"):
        import_labels(*parts_of(queue), tmp_path / "none.csv", "Ann")
    (tmp_path / "in.csv").write_bytes(b"id,label\npatient-3,\xff")
    with pytest.raises(ValueError, match=r"in\.csv: it is not in UTF-8"):
        import_labels(*parts_of(queue), tmp_path / "in.csv", "Ann")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]
)
def test_labels_of_every_unicode_encoding_are_read(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes("id,label\npatient-3,ill\npatient-1,ill\n".encode(encoding))
    assert import_labels(*parts_of(make_queue(tmp_path)), path, "Ann").recorded == 2


def test_capitals_in_a_header_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("ID,Label\npatient-3,ill\n")
    assert import_labels(*parts_of(make_queue(tmp_path)), path, "Ann").recorded == 1


def test_an_empty_list_is_exported_with_a_header_and_imported(tmp_path: Path) -> None:
    queue, path = make_queue(tmp_path, asked=()), tmp_path / "none.csv"
    assert export_tasks(queue, path) == 0
    assert import_labels(*parts_of(queue), path, "Ann") == Imported(0, 0, 0, ())


def test_numbers_of_thousands_of_digits_are_refused_in_our_words(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    long = "9" * 5000
    imported = take(queue, tmp_path / "a.csv", ["id,row,label", f"patient-3,{long},ill"])
    assert "is row 3 of this site, but the line has row 999" in imported.refused[0]
    assert len(imported.refused[0]) < 300


@pytest.mark.parametrize("kind", ["csv", "slips"])
def test_labels_are_read_from_no_pipe_and_no_endless_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(tmp_path)
    tool = LabelingTool() if kind == "slips" else None
    (tmp_path / f"pipe.{kind}").symlink_to(os.devnull)  # a pipe would block
    with pytest.raises(ValueError, match="is not a file but a pipe or a device"):
        import_labels(*parts_of(queue), tmp_path / f"pipe.{kind}", "Ann", tool=tool)
    monkeypatch.setattr(labels_files, "MOST_BYTES", 1 << 20)
    with (tmp_path / f"long.{kind}").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(ValueError, match=rf"long\.{kind} has more than 1 MiB"):
        import_labels(*parts_of(queue), tmp_path / f"long.{kind}", "Ann", tool=tool)
