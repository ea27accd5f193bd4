"""Test labeling tasks and labels as JSON files of Label Studio."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.site import labels_files
from fallow.deployment.site.labeling_tools import Imported, JsonObject, LabelingTasks
from fallow.deployment.site.labels_files import write_with
from fallow.deployment.site.labels_io import (
    import_labels,
    list_choices,
    list_labels,
    list_open_tasks,
)
from fallow_labeling_tools import CVAT, LabelStudio
from tests.deployment.label_queues import DOSE, HEART, make_queue


def parts_of(queue: LabelQueue) -> tuple[Any, Any, Any]:
    return queue.ledger, queue.schema, queue.rows


def take(queue: LabelQueue, path: Path) -> Imported:
    return import_labels(*parts_of(queue), path, "Cy", tool=LabelStudio())


def export(queue: LabelQueue, path: Path, lines: Sequence[JsonObject]) -> None:
    choices = list_choices(queue.schema, queue.plan)
    tasks = LabelingTasks(lines, choices, lambda row, number=0: None)
    assert write_with(LabelStudio(), path, tasks) == [path]


def task(row: int, *annotations: Any, **data: Any) -> dict[str, Any]:
    """Return a task of Label Studio's full JSON export, with its number in ``id``."""
    return {
        "id": 40 + row,
        "data": {"id": f"patient-{row}", "row": row, **data},
        "annotations": list(annotations),
        "predictions": [],
        "meta": {},
    }


def annotate(value: dict[str, Any], by: Any = None, tag: str = "label", **more: Any) -> Any:
    part = {
        "from_name": tag,
        "to_name": "sample",
        "type": next(iter(value)),
        "value": value,
    }
    return {"result": [part], "completed_by": by, "was_cancelled": False, **more}


def test_the_full_json_of_label_studio_is_taken(tmp_path: Path) -> None:
    queue, path = make_queue(tmp_path, asked=(3, 1, 4, 0, 5)), tmp_path / "tasks.json"
    comment = {"from_name": "note", "type": "textarea", "value": {"text": ["see scan"]}}
    with_note = annotate({"choices": ["healthy"]}, 7)
    with_note["result"].append(comment)
    path.write_text(
        json.dumps(
            [
                task(
                    3, annotate({"choices": ["ill"]}, {"id": 1, "email": "ann@h.example"})
                ),
                task(1, with_note),
                task(
                    4,
                    annotate(
                        {"choices": ["cannot tell"]},
                        {"id": 2, "first_name": "Bo"},
                        tag="any",
                    ),
                ),
                task(0, annotate({"choices": ["ill"]}, was_cancelled=True)),
                task(5),
            ]
        )
    )
    assert take(queue, path) == Imported(3, 0, 2, ())
    outcome = [
        (g.annotator, g.value) for row in (3, 1, 4) for g in queue.ledger.history(row)
    ]
    assert outcome == [("ann@h.example", 1.0), ("annotator 7", 0.0), ("Bo", None)]


@pytest.mark.parametrize("value", [{"number": 2.5}, {"text": ["2.5"]}, {"text": "2,5"}])
def test_numbers_of_label_studio_are_taken(value: dict[str, Any], tmp_path: Path) -> None:
    queue, path = make_queue(tmp_path, DOSE), tmp_path / "tasks.json"
    path.write_text(json.dumps([task(3, annotate(value))]))
    assert take(queue, path).recorded == 1
    assert [(g.annotator, g.value) for g in queue.ledger.history(3)] == [("Cy", 2.5)]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            annotate({"rectanglelabels": ["ill"], "x": 1}),
            "entry 1: an annotation holds 'rectangl",
        ),
        (
            {
                "result": [
                    annotate({"choices": ["ill"]}, tag="a")["result"][0],
                    annotate({"choices": ["ill"]}, tag="b")["result"][0],
                ]
            },
            "entry 1: an annotation fills in 2 tags; name the one that counts 'label'",
        ),
    ],
)
def test_an_annotation_that_is_no_label_is_named(
    annotation: Any, message: str, tmp_path: Path
) -> None:
    queue, path = make_queue(tmp_path), tmp_path / "tasks.json"
    path.write_text(json.dumps([task(3, annotation)]))
    with pytest.raises(ValueError, match=message):
        take(queue, path)


def test_two_choices_for_one_sample_are_refused_with_their_line(tmp_path: Path) -> None:
    queue, path = make_queue(tmp_path), tmp_path / "tasks.json"
    path.write_text(json.dumps([task(3, annotate({"choices": ["ill", "healthy"]}))]))
    imported = take(queue, path)
    assert imported.refused[0].startswith(
        "entry 1: label 'ill, healthy' is not one of the agreed"
    )


@pytest.mark.parametrize("schema", [HEART, DOSE])
def test_tasks_of_label_studio_go_out_with_features_and_come_back_with_labels(
    schema: Any, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = make_queue(tmp_path / "a", schema), make_queue(tmp_path / "b", schema)
    path = tmp_path / "tasks.json"
    export(first, path, list_open_tasks(*parts_of(first)))
    assert len(json.loads(path.read_text())) == 3
    assert path.stat().st_mode & 0o077 == 0
    data = json.loads(path.read_text())[0]["data"]
    assert (data["id"], data["row"]) == ("patient-3", 3)
    assert data["features"] == {"age (years)": "43", "sex": "male", "chol (mg/dl)": "209"}
    assert take(second, path) == Imported(0, 0, 3, ())
    first.ledger.answer(3, 1.0, "Bo")
    first.ledger.answer(1, None, "Bo")
    export(first, path, list_labels(*parts_of(first)))
    assert len(json.loads(path.read_text())) == 2
    assert take(second, path) == Imported(2, 0, 0, ())
    values = [(g.annotator, g.value) for row in (3, 1) for g in second.ledger.history(row)]
    assert values == [("Bo", 1.0), ("Bo", None)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "in.json: it is not JSON"),
        ('{"data": {}}', "in.json: it is not a list of objects"),
        ("[1]", "in.json: it is not a list of objects"),
        ("[" * 100_000, "in.json: it is not JSON"),
        ('[{"id": 9}]', "entry 1: a task has no object 'data'"),
        ('[{"data": {}, "annotations": 5}]', "entry 1: 'annotations' of a task is not a"),
        ('[{"data": {"id": "a", "id": "b"}}]', "'id' twice"),
        (f'[{{"data": {{"row": {"9" * 5000}}}}}]', "a number that is too long for JSON"),
        ("[\xff]", "is not in UTF-8"),
    ],
)
def test_a_file_that_is_no_export_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    queue = make_queue(tmp_path)
    (tmp_path / "in.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        take(queue, tmp_path / "in.json")
    assert len(queue.ledger.tasks(state="open")) == 3


@pytest.mark.parametrize("tool", [CVAT(), LabelStudio()])
def test_files_are_read_from_no_pipe_and_up_to_a_bound(
    tool: CVAT | LabelStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(tmp_path)
    (tmp_path / "pipe").symlink_to(os.devnull)  # a pipe would block
    with pytest.raises(ValueError, match="is not a file but a pipe or a device"):
        import_labels(*parts_of(queue), tmp_path / "pipe", "Ann", tool=tool)
    monkeypatch.setattr(labels_files, "MOST_BYTES", 1 << 20)
    with (tmp_path / "long").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(ValueError, match="long has more than 1 MiB"):
        import_labels(*parts_of(queue), tmp_path / "long", "Ann", tool=tool)
