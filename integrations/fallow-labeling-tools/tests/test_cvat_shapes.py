"""Test masks and other shapes from CVAT: of images, and of the slices of volumes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.pictures import picture
from fallow.deployment.site.annotation_files import import_annotations
from fallow.deployment.site.labeling_tools import Imported, LabelingTasks, LabelingTool
from fallow.deployment.site.labels_files import write_with
from fallow.deployment.site.labels_io import list_choices, list_open_tasks
from fallow_labeling_tools import CVAT
from tests.deployment.label_queues import make_queue
from tests.deployment.test_case_rows import SCANS, read_scans
from tests.deployment.test_cases_at_sites import study

NAMES = ("lesion", "liver")
MASK = '<mask label="lesion" left="1" top="2" width="2" height="2" rle="1, 3"/>'


@pytest.fixture
def queue(tmp_path: Path) -> LabelQueue:
    """Return a site with three volumes of two, three and five slices, of which two are asked."""
    return make_queue(tmp_path, SCANS, read_scans(tmp_path), asked=(2, 0))


def export(queue: LabelQueue, folder: Path) -> list[str]:
    """Export the open tasks, and return the names of their images."""
    tasks = LabelingTasks(
        list_open_tasks(queue.ledger, queue.schema, queue.rows),
        list_choices(queue.schema, queue.plan),
        lambda row, number=0: picture(queue.rows, row, number),
    )
    write_with(CVAT(), folder / "ask.zip", tasks)
    with zipfile.ZipFile(folder / "ask.zip") as archive:
        return archive.namelist()


def write(folder: Path, *images: tuple[str, str], size: tuple[int, int] = (4, 6)) -> Path:
    """Write an export of CVAT: names of images and their elements."""
    width, height = size
    parts = [
        f'<image id="{at}" name="{name}" width="{width}" height="{height}">{inner}</image>'
        for at, (name, inner) in enumerate(images)
    ]
    file = folder / "annotations.xml"
    file.write_text(f"<annotations><version>1.1</version>{''.join(parts)}</annotations>")
    return file


def take(queue: LabelQueue, file: Path, **more: Any) -> Imported:
    options = {"tool": CVAT(), **more}
    parts = (queue.ledger, queue.schema, queue.rows, file, NAMES, "Ann")
    return import_annotations(*parts, **options)


def test_a_volume_goes_out_as_its_slices_and_is_done_with_a_mask_in_one(
    queue: LabelQueue, tmp_path: Path
) -> None:
    names = export(queue, tmp_path)
    assert names == [
        *(f"000002-scan-2-tif-{number:04d}.png" for number in range(5)),
        *(f"000000-scan-0-tif-{number:04d}.png" for number in range(2)),
    ]
    images = [(name, MASK if name == names[3] else "") for name in names]
    outcome = take(queue, write(tmp_path, *images))
    assert outcome == Imported(recorded=1, same=0, empty=1, refused=())
    assert [task.row for task in queue.ledger.tasks(state="open")] == [0]
    images = [(name, MASK) for name in names[5:]]
    assert take(queue, write(tmp_path, *images)).recorded == 1


SHAPES = {
    "box": '<box label="liver" xtl="0" ytl="0.5" xbr="4.0" ybr="6"/>',
    "polygon": '<polygon label="liver" points="0.0,0.0;3.5,1;2,5.25"/>',
    "ellipse": '<ellipse label="lesion" cx="2" cy="3" rx="1.5" ry="2"/>',
    "mask": MASK,
}


@pytest.mark.parametrize("kind", SHAPES)
def test_each_shape_with_an_area_is_an_annotation(
    queue: LabelQueue, tmp_path: Path, kind: str
) -> None:
    name = export(queue, tmp_path)[0]
    assert take(queue, write(tmp_path, (name, SHAPES[kind]))).recorded == 1


WRONG = {
    '<mask label="lesion" left="4" top="2" width="2" height="2" rle="1, 3"/>': (
        "a mask from 4, 2 to 6, 4 is not inside its image of 4 x 6 pixels"
    ),
    '<box label="spleen" xtl="0" ytl="0" xbr="1" ybr="1"/>': (
        "a box has the label 'spleen', which is not expected"
    ),
    '<ellipse label="lesion" cx="2" cy="3" rx="0" ry="2"/>': "is not inside its image",
}


@pytest.mark.parametrize("shape", WRONG)
def test_a_wrong_shape_in_one_slice_changes_nothing(
    queue: LabelQueue, tmp_path: Path, shape: str
) -> None:
    first, second, *_ = export(queue, tmp_path)
    taken = take(queue, write(tmp_path, (first, MASK), (second, shape)))
    (refused,) = taken.refused
    assert refused.startswith("example 'scan-2.tif': ") and WRONG[shape] in refused
    assert len(queue.ledger.tasks(state="open")) == 2


def test_shapes_in_an_image_of_another_size_or_name_are_refused(
    queue: LabelQueue, tmp_path: Path
) -> None:
    name = export(queue, tmp_path)[0]
    (refused,) = take(queue, write(tmp_path, (name, MASK), size=(8, 8))).refused
    assert "its annotation has 8 x 8 pixels and its image 6 x 4" in refused
    (refused,) = take(queue, write(tmp_path, ("000002-scan-2-tif-0009.png", MASK))).refused
    assert "'000002-scan-2-tif-0009.png' has the name of no example" in refused
    assert len(queue.ledger.tasks(state="open")) == 2


UNREADABLE = {
    '<mask label="lesion" left="1" top="2" width="2" height="2" rle="1, 4"/>': (
        "a mask has runs of 5 pixels, 4 of them in the mask, and its frame 4"
    ),
    '<mask label="lesion" left="1" top="2" width="2" height="2" rle="4"/>': "0 of them",
    '<mask label="lesion" left="1" top="2" width="2" height="2" rle="5, -1"/>': "runs of",
    '<mask label="lesion" left="1" top="2" width="2" height="2" rle="1, x"/>': (
        "' x' is not a number"
    ),
    '<mask label="lesion" left="inf" top="2" width="2" height="2" rle="1, 3"/>': (
        "'inf' is not a number"
    ),
    '<box label="liver" xtl="0" ytl="0" xbr="1"/>': "ybr is missing",
    '<polygon label="liver" points="0,0;1,1"/>': "a polygon has no three points",
    '<polygon label="liver" points="0,0;1,1;2"/>': "a polygon has no three points",
    '<polyline label="liver" points="0,0;1,1;2,2"/>': "a polyline, which bounds no area",
}


@pytest.mark.parametrize("shape", UNREADABLE)
def test_a_shape_that_cannot_be_read_ends_in_one_sentence(
    queue: LabelQueue, tmp_path: Path, shape: str
) -> None:
    name = export(queue, tmp_path)[0]
    with pytest.raises(ValueError, match=r"annotations\.xml: image '0000") as error:
        take(queue, write(tmp_path, (name, shape)))
    assert UNREADABLE[shape] in str(error.value)


def test_a_file_of_a_tool_needs_its_name(queue: LabelQueue, tmp_path: Path) -> None:
    file = write(tmp_path, ("a.png", MASK), ("a.jpg", MASK))
    with pytest.raises(
        ValueError, match="name the labeling tool that wrote it with --tool"
    ):
        take(queue, file, tool=None)
    with pytest.raises(ValueError, match="this labeling tool reads no masks or boxes"):
        take(queue, file, tool=LabelingTool())
    with pytest.raises(ValueError, match=r"annotations\.xml has two images of one name"):
        take(queue, file)


@pytest.mark.long
def test_three_sites_select_volumes_and_are_done_with_masks_from_cvat(
    tmp_path: Path,
) -> None:
    made = study(tmp_path)
    restarts: list[str] = []

    def annotate(event: Event) -> None:
        if event["event"] != "labels":
            return
        for site, folder in made.sites.items():
            own = LabelQueue("scans", site, SCANS, folder.rows, made.ledgers[site])
            if not own.ledger.tasks(state="open"):
                continue
            drawn = tmp_path / f"{site}-{len(restarts)}"
            drawn.mkdir()
            images = [(name, MASK) for name in export(own, drawn)]
            assert take(own, write(drawn, *images)).refused == ()
            made.transport.alive[site] = made.host(site)  # the site dies with its answers
            restarts.append(site)

    assert made.program(notify=annotate).go()
    assert len(restarts) == 6
    for labels in made.labels().values():
        assert len({label.row for label in labels}) == 3
    for ledger in made.ledgers.values():
        assert {answer.annotator for task in ledger.tasks() for answer in task.answers} == {
            "Ann"
        }
    made.close()
