"""Masks and boxes as files that make labeling tasks done."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fallow.data.dataset import DONE
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.schema import Schema
from fallow.deployment.site.annotation_files import MOST_OF_MASK, import_annotations
from fallow.deployment.site.labeling_tools import Imported, LabelingTool
from fallow.deployment.site.pictures import Originals
from fallow.deployment.site.rows import SiteRows
from tests.data.test_nifti import nifti
from tests.deployment.label_queues import HEART, make_queue
from tests.each import each_of

SCANS = Schema("images", "classification", classes=(DONE,), shape=(1, 8, 8))
NAMES = ("lesion", "liver")
HEIGHT = 6
WIDTH = 4
PIXELS = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
IMAGES = [
    {"id": row, "file_name": f"scan-{row}.jpg", "width": WIDTH, "height": HEIGHT}
    for row in range(4)
]
COCO: dict[str, Any] = {
    "info": {"year": 2024},
    "images": IMAGES,
    "categories": [{"id": 7, "name": "liver"}, {"id": 9, "name": "spleen"}],
    "annotations": [{"image_id": 1, "category_id": 7, "bbox": [0, 1, 4, 5.5], "id": 1}],
}


def make_site(folder: Path, schema: Schema = SCANS, **more: Any) -> LabelQueue:
    """Return a site with four images of 6 x 4 pixels, which asks for three of them."""
    images = folder / "images"
    images.mkdir()
    files = [images / f"scan-{row}.jpg" for row in range(4)]
    for file in files:
        Image.fromarray(PIXELS).save(file)
    rows = SiteRows(
        torch.zeros(4, 1, 8, 8),
        (None,) * 4,
        tuple(file.name for file in files),
        lambda row: files[row],
        originals=Originals.of(images, files),
    )
    return make_queue(folder, schema, rows, asked=(3, 1, 0), **more)


def write_mask(folder: Path, name: str, pixels: Any = PIXELS) -> Path:
    folder.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(folder / name)
    return folder


def write_coco(folder: Path, **changes: Any) -> Path:
    file = folder / "boxes.json"
    file.write_text(json.dumps(COCO | changes))
    return file


def take(queue: LabelQueue, path: Path, names: Any = NAMES, **more: Any) -> Imported:
    return import_annotations(
        queue.ledger, queue.schema, queue.rows, path, names, "Ann", **more
    )


def open_rows(queue: LabelQueue) -> list[int]:
    return [task.row for task in queue.ledger.tasks(state="open")]


def test_a_task_is_done_when_its_mask_exists(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    masks = tmp_path / "masks"
    write_mask(masks, "scan-1.png", PIXELS + np.uint8(2))
    write_mask(masks, "scan-2.png")  # nobody asked for it
    assert take(queue, masks) == Imported(recorded=1, same=0, empty=2, refused=())
    assert open_rows(queue) == [3, 0]
    write_mask(masks, "scan-0.png")
    assert take(queue, masks).recorded == 1
    assert {task.value for task in queue.ledger.tasks(state="answered")} == {0.0}


def test_a_task_is_done_when_its_image_has_boxes(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    outcome = take(queue, write_coco(tmp_path))
    assert outcome == Imported(recorded=1, same=0, empty=2, refused=())
    assert open_rows(queue) == [3, 0]


def test_one_wrong_annotation_changes_nothing_unless_others_are_wanted(
    tmp_path: Path,
) -> None:
    queue = make_site(tmp_path)
    masks = write_mask(tmp_path / "masks", "scan-0.png")
    write_mask(masks, "scan-1.png", PIXELS + np.uint8(3))
    assert take(queue, masks, dry_run=True).recorded == 1
    assert take(queue, masks).recorded == 0
    assert open_rows(queue) == [3, 1, 0]
    assert take(queue, masks, partial=True).recorded == 1
    assert open_rows(queue) == [3, 1]


@each_of(
    "pixels, sentence",
    [
        (PIXELS + np.uint8(3), "has the number 3, and labels are 0 (none) to 2 ('liver')"),
        (PIXELS.T, "has 4 x 6 pixels and its image 6 x 4"),
        (np.zeros((6, 4, 3), np.uint8), "no PNG image of whole numbers"),
    ],
)
def test_a_mask_has_the_size_and_the_labels_of_its_image(
    pixels: Any, sentence: str, tmp_path: Path
) -> None:
    folder = tmp_path / str(pixels.shape)
    folder.mkdir(exist_ok=True)
    site = folder / str(pixels.max())
    site.mkdir()
    queue = make_site(site)
    (refused,) = take(queue, write_mask(site / "masks", "scan-1.png", pixels)).refused
    assert refused.startswith("example 'scan-1.jpg': ")
    assert sentence in refused
    assert open_rows(queue) == [3, 1, 0]


def test_hostile_masks_are_refused_and_never_followed(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    masks = tmp_path / "masks"
    masks.mkdir()
    secret = write_mask(tmp_path / "secret", "mask.png") / "mask.png"
    (masks / "scan-1.png").symlink_to(secret)
    (masks / "scan-0.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"no chunk" * 9)
    (masks / "scan-3.png").mkdir()
    assert len(take(queue, masks).refused) == 3
    os.truncate(masks / "scan-0.png", MOST_OF_MASK + 1)
    assert "the limit for a mask" in str(take(queue, masks).refused)


def test_two_examples_of_one_name_cannot_have_annotations(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    twins = replace(queue.rows, ids=("a/1.jpg", "b/1.jpg", "2", "3"))
    queue = replace(queue, rows=twins)
    with pytest.raises(ValueError, match="2 examples would have the annotation '1'"):
        take(queue, write_coco(tmp_path))


def test_examples_without_image_need_only_an_annotation(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, replace(HEART, classes=(DONE,)), asked=(3, 1))
    masks = write_mask(tmp_path / "masks", "patient-3.png")
    assert take(queue, masks) == Imported(recorded=1, same=0, empty=1, refused=())


def test_nifti_masks_have_the_size_and_the_labels_of_their_images(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    masks = tmp_path / "masks"
    masks.mkdir()
    n = HEIGHT * WIDTH
    (masks / "scan-0.nii").write_bytes(nifti([2] * n, shape=(WIDTH, HEIGHT)))
    (masks / "scan-1.nii").write_bytes(nifti([3] * n, shape=(WIDTH, HEIGHT)))
    (masks / "scan-3.nii").write_bytes(nifti([1] * n, shape=(WIDTH, 2, 3)))
    outcome = take(queue, masks, partial=True)
    assert outcome.recorded == 1
    assert "the number 3" in str(outcome.refused)
    assert "3 slices and the example has 1" in str(outcome.refused)
    (masks / "scan-3.nii").write_bytes(nifti([1] * n, shape=(HEIGHT, WIDTH)))
    write_mask(masks, "scan-1.png")
    refused = str(take(queue, masks).refused)
    assert "has 4 x 6 pixels and its image 6 x 4" in refused
    assert "scan-1.png and scan-1.nii; remove one" in refused


def test_a_volume_may_be_the_mask_of_an_example_without_image(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, replace(HEART, classes=(DONE,)), asked=(3, 1))
    masks = tmp_path / "masks"
    masks.mkdir()
    packed = gzip.compress(nifti(np.ones(24), shape=(2, 3, 4)))
    (masks / "patient-3.nii.gz").write_bytes(packed)
    (masks / "patient-1.nii").write_bytes(nifti([0.5] * 6, code=16, kind="f4"))
    outcome = take(queue, masks, partial=True)
    assert outcome.recorded == 1
    assert "has the number 0.5" in str(outcome.refused)


class Numbered(LabelingTool):
    """Tool that numbers examples."""

    def name_example(self, row: int, name: str) -> str:
        return f"{row:03}-x"


def test_a_tool_names_the_images_of_its_annotations(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    images = [IMAGES[1] | {"file_name": "task/001-x.png"}]
    assert take(queue, write_coco(tmp_path, images=images), tool=Numbered()).recorded == 1
    assert open_rows(queue) == [3, 0]


def test_the_folder_of_the_images_is_no_folder_of_masks(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    png = tmp_path / "images" / "scan-1.png"
    Image.fromarray(PIXELS).save(png)
    queue = replace(queue, rows=replace(queue.rows, describe=lambda row: png))
    (refused,) = take(queue, tmp_path / "images").refused
    assert "is the image itself; give a folder of masks" in refused


@each_of(
    "change, sentence",
    [
        ({"category_id": 9}, "has the label 'spleen', which is not expected"),
        ({"category_id": 8}, "has the label None, which is not expected"),
        ({"bbox": [0, 0, 9, 2]}, "is not inside its image of 4 x 6"),
        ({"bbox": [0, 0, 0, 2]}, "is not inside its image"),
        ({"bbox": [float("nan"), 0, 1, 2]}, "is not inside its image"),
    ],
)
def test_a_box_lies_in_its_image_and_has_an_expected_label(
    change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    folder = tmp_path / str(hash(str(change)))
    folder.mkdir()
    queue = make_site(folder)
    box = COCO["annotations"][0] | change
    (refused,) = take(queue, write_coco(folder, annotations=[box])).refused
    assert sentence in refused


@each_of(
    "changes, sentence",
    [
        ({"images": 3}, "boxes.json is no COCO file: images: "),
        ({"annotations": [{"image_id": "1"}]}, "no COCO file: annotations.0.image_id: "),
        ({"images": [*IMAGES, IMAGES[0] | {"id": 8}]}, "two images of one name"),
    ],
)
def test_a_file_of_another_structure_is_named(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    folder = tmp_path / str(len(sentence))
    folder.mkdir()
    queue = make_site(folder)
    with pytest.raises(ValueError, match=sentence):
        take(queue, write_coco(folder, **changes))


def test_deeply_nested_and_missing_files_end_in_one_sentence(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"deep\.json is no COCO file"):
        take(queue, deep)
    with pytest.raises(ValueError, match="cannot be read"):
        take(queue, tmp_path / "absent.json")


def test_only_studies_with_the_label_done_take_annotations(tmp_path: Path) -> None:
    queue = make_site(tmp_path, HEART)
    with pytest.raises(ValueError, match="are healthy, ill, not 'done' alone"):
        take(queue, write_coco(tmp_path))


def test_each_label_is_named_once(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    for names in ((), ("liver", "liver")):
        with pytest.raises(ValueError, match="name each label of the annotations once"):
            take(queue, write_coco(tmp_path), names)


def test_an_annotator_has_one_annotation_of_an_example(tmp_path: Path) -> None:
    queue = make_site(tmp_path, answers=2)
    masks = write_mask(tmp_path / "masks", "scan-1.png")
    assert take(queue, masks).recorded == 1
    assert take(queue, masks).recorded == 0
    assert open_rows(queue) == [3, 1, 0]


def test_an_annotation_of_no_example_is_named_and_changes_nothing(tmp_path: Path) -> None:
    queue = make_site(tmp_path)
    masks = write_mask(tmp_path / "masks", "scan-1.png")
    write_mask(masks, "scan-l3.png")
    taken = take(queue, masks)
    (why,) = taken.refused
    assert why.startswith(
        "scan-l3.png has the name of no example of this site; did you mean"
    )
    image = {**IMAGES[1], "id": 9, "file_name": "pt4.png"}
    box = {"image_id": 9, "category_id": 7, "bbox": [0, 0, 1, 1]}
    taken = take(queue, write_coco(tmp_path, images=[image], annotations=[box]))
    (why,) = taken.refused
    assert why.startswith("the image 'pt4.png' has the name of no example of this site")
    assert open_rows(queue) == [3, 1, 0]
