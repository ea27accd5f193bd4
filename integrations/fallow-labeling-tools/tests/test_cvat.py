"""Test the exchange of images and tags with CVAT through files."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.pictures import picture
from fallow.deployment.no_label import CANNOT_TELL, NONE_OF_THESE
from fallow.deployment.site.labeling_tools import Imported, LabelingTasks
from fallow.deployment.site.labels_files import write_with
from fallow.deployment.site.labels_io import (
    import_labels,
    list_choices,
    list_labels,
    list_open_tasks,
)
from fallow_labeling_tools import CVAT
from fallow_labeling_tools.cvat import read_annotations
from tests.deployment.label_queues import DIGITS, DOSE, make_queue, picture_rows


def export(queue: LabelQueue, path: Path) -> int:
    lines = list_open_tasks(queue.ledger, queue.schema, queue.rows)
    choices = list_choices(queue.schema, queue.plan)
    tasks = LabelingTasks(
        lines, choices, lambda row, number=0: picture(queue.rows, row, number)
    )
    write_with(CVAT(), path, tasks)
    return len(lines)


def export_of(*images: tuple[str, str]) -> str:
    """Return an export of CVAT: the images of a task with the tags of annotators."""
    inner = "".join(
        f'<image id="{n}" name="{name}" width="8" height="8">{output}</image>'
        for n, (name, output) in enumerate(images)
    )
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version>'
    task = "<meta><task><id>7</id><name>ask</name><image>no image</image></task></meta>"
    return f"{head}{task}{inner}</annotations>\n"


def tag(label: str) -> str:
    return f'<tag label="{label}" source="manual"></tag>'


def take(queue: LabelQueue, folder: Path, text: str) -> Imported:
    path = folder / "annotations.xml"
    path.write_text(text, encoding="utf-8")
    return import_labels(
        *(queue.ledger, queue.schema, queue.rows, path, "the team"),
        partial=True,
        tool=CVAT(),
    )


def test_images_go_out_with_their_labels_and_tags_come_back_once(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path))
    assert export(queue, tmp_path / "ask.zip") == 3
    with zipfile.ZipFile(tmp_path / "ask.zip") as archive:
        names = archive.namelist()
        assert archive.read(names[0]) == (tmp_path / "scan-3.png").read_bytes()
    assert names == [
        "000003-scan-3-png.png",
        "000001-scan-1-png.png",
        "000004-scan-4-png.png",
    ]
    labels = json.loads((tmp_path / "ask.labels.json").read_text())
    assert [label["name"] for label in labels] == [*DIGITS.classes, CANNOT_TELL.name]
    for file in ("ask.zip", "ask.labels.json"):
        assert (tmp_path / file).stat().st_mode & 0o077 == 0

    export_file = export_of(
        (names[0], tag(DIGITS.classes[1])),
        (names[1], tag(CANNOT_TELL.name)),
        (names[2], ""),
    )
    assert take(queue, tmp_path, export_file) == Imported(2, 0, 1, ())
    (answer,) = queue.ledger.history(3)
    assert (answer.value, answer.annotator, answer.kind) == (1.0, "the team", "imported")
    assert take(queue, tmp_path, export_file) == Imported(0, 2, 1, ())


def test_a_tag_states_that_no_class_fits_if_the_study_offers_it(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path))
    queue = replace(queue, plan=AnswerPlan(none_of_these=True))
    export(queue, tmp_path / "ask.zip")
    labels = json.loads((tmp_path / "ask.labels.json").read_text())
    assert labels[-1]["name"] == NONE_OF_THESE.name
    path = tmp_path / "annotations.xml"
    path.write_text(export_of(("000003-scan-3-png.png", tag(NONE_OF_THESE.name))))
    parts = (queue.ledger, queue.schema, queue.rows, path, "the team")
    assert import_labels(*parts, tool=CVAT(), plan=queue.plan).recorded == 1
    assert queue.ledger.requests.find_none_of_these() == {3}


def test_tags_that_are_wrong_twice_or_of_others_are_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path))
    first, second = DIGITS.classes[:2]
    result = take(
        queue,
        tmp_path,
        export_of(
            ("000003-scan-3-png.png", tag(first) + tag(second)),
            ("000001-scan-1-png.png", tag("elephant")),
            ("000003-other.png", tag(first)),
            ("000007-scan-7-png.png", tag(first)),
            ("000004-scan-4-png.png", tag(first) + tag(first)),
        ),
    )
    assert result.recorded == 1
    starts = (
        "tag 1: example 'scan-3.png' is",
        "tag 2: example 'scan-3.png' is",
        "tag 3: label 'elephant' is not one of the agreed classes",
        "tag 4: this site has no example '000003-other'",
        "tag 5: example 'scan-7.png' has no labeling task",
    )
    assert len(result.refused) == len(starts)
    for sentence, start in zip(result.refused, starts, strict=True):
        assert sentence.startswith(start)


BOMB = (
    '<!DOCTYPE annotations [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    "<annotations><image name='000003-scan-3-png.png'>&b;</image></annotations>"
)
OUTSIDE = '<!DOCTYPE annotations SYSTEM "file:///etc/passwd"><annotations></annotations>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "declares a document type or entities"),
        (OUTSIDE, "declares a document type or entities"),
        ("<annotations><image", "is not XML"),
        ("<html></html>", "is not an export of CVAT"),
        (
            export_of(("000003-scan-3-png.png", '<box label="x" xtl="0"/>')),
            "a box and no tag",
        ),
    ],
)
def test_a_file_that_is_no_export_or_means_harm_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path))
    with pytest.raises(ValueError, match=r"annotations\.xml: ") as error:
        take(queue, tmp_path, text)
    assert message in str(error.value)
    assert not queue.ledger.history(3)


def test_rows_that_are_no_images_are_not_exported_so(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE)
    with pytest.raises(ValueError, match="this study asks for numbers"):
        export(queue, tmp_path / "ask.zip")
    (tmp_path / "b").mkdir()
    queue = make_queue(tmp_path / "b")
    with pytest.raises(ValueError, match="has no image that CVAT shows"):
        export(queue, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


def test_a_tag_keeps_the_name_of_its_image_whatever_stands_around_it() -> None:
    deep = "<image name='b'><attribute><tag label='c'/></attribute></image>"
    assert read_annotations(f"<annotations>{deep}</annotations>".encode()) == [
        {"id": "b", "label": "", "location": "tag 1"}
    ]


def test_labels_and_predictions_are_not_exported_as_images(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path))
    queue.ledger.answer(3, 1.0, "Bo")
    queue_parts = (queue.ledger, queue.schema, queue.rows)
    for lines in (list_labels(*queue_parts), list_open_tasks(*queue_parts, guess=True)):
        choices = list_choices(DIGITS, queue.plan)
        tasks = LabelingTasks(
            lines, choices, lambda row, number=0: picture(queue.rows, row, number)
        )
        with pytest.raises(ValueError, match="omit --labels and --guess"):
            CVAT().format_tasks(tasks)


def test_a_file_in_an_unknown_encoding_is_refused_in_a_sentence(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    path = tmp_path / "labels.xml"
    path.write_bytes(b'<?xml version="1.0" encoding="nonsense"?><annotations/>')
    with pytest.raises(ValueError, match=r"labels\.xml: it is not XML: unknown encoding"):
        import_labels(queue.ledger, queue.schema, queue.rows, path, "Ann", tool=CVAT())
