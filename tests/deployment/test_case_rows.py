"""Cases at a site: slices that annotators see and answer together."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fallow.core.load_options import LoadOptions
from fallow.data.dataset import DONE
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.pictures import picture, sizes
from fallow.deployment.schema import Column, Schema, schema_of
from fallow.deployment.site.annotation_files import import_annotations
from fallow.deployment.site.case_rows import join_rows
from fallow.deployment.site.labels_io import list_open_tasks
from fallow.deployment.site.rows import SiteRows, read_rows
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.data.test_nifti import nifti
from tests.data.test_own_images import dicom
from tests.deployment.label_queues import enter, make_queue
from tests.each import each_of

CASES = ExperimentConfig(
    "cases",
    training=Spec("none", {"cases": "group"}),
    encoder=Spec("identity"),
    rounds=1,
    score_rounds=1,
)
SCANS = Schema("images", "classification", classes=(DONE,), shape=(1, 6, 4))
DEPTHS = {"scan-0": 2, "scan-1": 3, "scan-2": 5}
VISITS = Schema(
    "table",
    "classification",
    "y",
    ("no", "yes"),
    (Column("age"), Column("dose", "mg")),
    (2,),
)


def write_scans(folder: Path, depths: dict[str, int] = DEPTHS) -> Path:
    """Write a file of several pages for each scan; each page has the level of its number."""
    images = folder / "images" / "unlabeled"
    images.mkdir(parents=True)
    for name, depth in depths.items():
        pages = [Image.fromarray(np.full((6, 4), page, np.uint8)) for page in range(depth)]
        pages[0].save(images / f"{name}.tif", save_all=True, append_images=pages[1:])
    return images.parent


def read_scans(folder: Path) -> SiteRows:
    rows = read_rows(write_scans(folder), SCANS, LoadOptions(pages="each"))
    return join_rows(rows, SCANS, CASES)


@pytest.fixture
def queue(tmp_path: Path) -> LabelQueue:
    return make_queue(tmp_path, SCANS, read_scans(tmp_path), asked=(2, 0))


def test_each_file_of_several_pages_is_a_case(queue: LabelQueue) -> None:
    rows = queue.rows
    assert rows.ids == ("scan-0.tif", "scan-1.tif", "scan-2.tif")
    assert rows.of_case == ((0, 1), (2, 3, 4), (5, 6, 7, 8, 9))
    assert rows.cases is not None
    assert rows.cases.of_row.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert [file.name for file in rows.files(1)] == ["scan-1.tif"]
    (work, *_) = list_open_tasks(queue.ledger, queue.schema, rows)
    assert (work["id"], Path(str(work["file"])).name) == ("scan-2.tif", "scan-2.tif")


def test_the_page_shows_one_slice_of_a_case_at_a_time(queue: LabelQueue) -> None:
    assert sizes(queue.rows, 2) == [(4, 6)] * 5
    third = picture(queue.rows, 2, 2)
    assert third is not None
    assert third == picture(queue.rows.each or queue.rows, 7)
    assert picture(queue.rows, 2, 5) is None
    browser = enter(queue)
    browser.get("/sample/2")
    page = browser.shown.text
    assert page.count("<figure") == 5
    assert 'max="5" value="3"' in page
    assert '<div class="stack">' in page
    assert "Next slice" in page


def test_annotators_see_all_slices_of_which_some_are_features(tmp_path: Path) -> None:
    training = Spec("none", {"cases": "group", "every": 2, "central": 2})
    all_pages = read_rows(write_scans(tmp_path), SCANS, LoadOptions(pages="each"))
    rows = join_rows(all_pages, SCANS, replace(CASES, training=training))
    levels = (rows.x[:, 0, 0, 0] * 255).round().int().tolist()
    assert levels == [0, 1, 0, 2]  # of scans of 2, 3 and 5 slices
    assert rows.case_of == (0, 1, 2, 2)
    assert [len(own) for own in rows.of_case] == [2, 3, 5]
    assert rows.find_depth(2) == 5


def test_visits_of_a_patient_are_one_case_with_all_their_cells(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    file.write_text("patient,age,dose,y\nb,1,5,\na,2,6,yes\nb,3,7,no\n")
    rows = join_rows(read_rows(file, VISITS, LoadOptions(group="patient")), VISITS, CASES)
    assert rows.ids == ("b", "a")
    assert rows.labels == (0.0, 1.0)
    assert rows.describe(0) == (("age", "1 | 3", ""), ("dose", "5 | 7", "mg"))
    schema = schema_of(file, "y", trains=False, options=LoadOptions(group="patient"))
    assert [column.name for column in schema.columns] == ["age", "dose"]
    file.write_text("patient,age,dose,y\nb,1,5,yes\nb,3,7,no\n")
    with pytest.raises(ValueError, match="the case 'b' have the labels 'no' and 'yes'"):
        join_rows(read_rows(file, VISITS, LoadOptions(group="patient")), VISITS, CASES)
    with pytest.raises(ValueError, match="the rows have no groups"):
        join_rows(replace(rows, groups=None), VISITS, CASES)


def write_masks(folder: Path, shape: tuple[int, ...], number: int = 1) -> Path:
    """Write the mask of the third scan: a volume, or a folder of ``shape[2]`` images."""
    masks = folder / "masks"
    masks.mkdir(parents=True)
    (masks / "scan-2.nii").write_bytes(nifti([number] * math.prod(shape), shape))
    return masks


def take(queue: LabelQueue, path: Path) -> list[int]:
    """Import masks, and return the rows of the tasks that are done."""
    import_annotations(queue.ledger, queue.schema, queue.rows, path, ("lesion",), "Ann")
    return [task.row for task in queue.ledger.tasks(state="answered")]


def test_a_mask_of_all_slices_makes_a_case_done(queue: LabelQueue, tmp_path: Path) -> None:
    assert take(queue, write_masks(tmp_path, (4, 6, 5))) == [2]


def test_a_folder_of_masks_makes_a_case_done(queue: LabelQueue, tmp_path: Path) -> None:
    folder = tmp_path / "masks" / "scan-0"
    folder.mkdir(parents=True)
    mask = Image.fromarray(np.ones((6, 4), np.uint8))
    mask.save(folder / "1.png")
    assert take(queue, folder.parent) == []
    mask.save(folder / "2.png")
    assert take(queue, folder.parent) == [0]


def write_volumes(folder: Path) -> Path:
    """Write two volumes of 4 x 6 pixels with 3 and 2 slices, whose values are 0 to 100."""
    unlabeled = folder / "unlabeled"
    unlabeled.mkdir(parents=True)
    for name, depth in (("head.nii.gz", 3), ("neck.nii", 2)):
        values = np.linspace(0, 100, 24 * depth)
        content = nifti(values, (4, 6, depth), 16, "f4")
        (unlabeled / name).write_bytes(
            gzip.compress(content) if name.endswith(".gz") else content
        )
    return folder


def write_series(folder: Path, positions: tuple[float, ...], series: str = "1.2") -> Path:
    """Write a folder with a DICOM file for each slice, whose level is its number."""
    for number, position in enumerate(positions):
        dicom(
            folder / f"IM{number}.dcm",
            np.full((6, 4), number, np.uint16),
            bits=12,
            slope=1.0,
            SeriesInstanceUID=series,
            ImagePositionPatient=[0, 0, position],
            ImageOrientationPatient=[1, 0, 0, 0, 1, 0],
            PixelSpacing=[1, 1],
        )
    return folder


def test_a_folder_of_slices_is_a_case_in_the_order_of_their_places(tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    write_series(folder / "unlabeled" / "head", (9.0, 3.0, 6.0))
    write_series(folder / "unlabeled" / "neck", (1.0, 2.0), "1.3")
    options = LoadOptions(pages="each")
    schema = schema_of(folder, trains=False, options=options)
    rows = join_rows(read_rows(folder, schema, options), schema, CASES)
    assert rows.ids == ("head", "neck")
    assert rows.of_case == ((1, 2, 0), (3, 4))
    assert [file.name for file in rows.files(0)] == ["IM1.dcm", "IM2.dcm", "IM0.dcm"]
    assert rows.labels == (None, None)
    write_series(folder / "unlabeled" / "neck", (1.0, 2.0, 3.0, 5.0), "1.3")
    with pytest.raises(ValueError, match=r"the case 'neck' is no volume: .* add 1 missing"):
        join_rows(read_rows(folder, schema, options), schema, CASES)


def test_frames_in_a_folder_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "videos" / "calm" / "v1"
    folder.mkdir(parents=True)
    for number in range(8, 12):
        Image.fromarray(np.full((6, 4), number, np.uint8)).save(folder / f"f{number}.png")
    schema = replace(SCANS, classes=("calm", "wild"))
    rows = read_rows(tmp_path / "videos", schema, LoadOptions(pages="each"))
    cases = join_rows(rows, schema, CASES)
    assert cases.ids == ("v1",)
    assert cases.labels == (0.0,)
    assert [file.name for file in cases.files(0)] == [f"f{n}.png" for n in range(8, 12)]


def test_volumes_are_cases_of_slices_in_one_range_of_values(tmp_path: Path) -> None:
    folder = write_volumes(tmp_path / "scans")
    schema = schema_of(folder, trains=False, options=LoadOptions(pages="each"))
    assert schema.shape == (1, 6, 4)
    assert schema.physical_range == (0.0, 100.0)
    rows = join_rows(read_rows(folder, schema, LoadOptions(pages="each")), schema, CASES)
    assert rows.ids == ("head.nii.gz", "neck.nii")
    assert [float(rows.x.min()), float(rows.x.max())] == [0.0, 1.0]
    queue = make_queue(tmp_path, schema, rows, asked=(0, 1))
    shown = picture(rows, 0, 2)
    assert shown is not None
    with Image.open(BytesIO(shown.content)) as slice_shown:
        assert slice_shown.size == (4, 6)
        assert slice_shown.getpixel((0, 0)) == 255  # the last value: right and anterior
    masks = tmp_path / "masks"
    masks.mkdir()
    (masks / "head.nii.gz").write_bytes(nifti([1] * 72, (4, 6, 3, 1)))
    (masks / "neck.nii").write_bytes(nifti([1] * 48, (6, 4, 2)))
    done = import_annotations(
        queue.ledger, schema, rows, masks, ("lesion",), "Ann", partial=True
    )
    assert done.refused == (
        "example 'neck.nii': its mask has the shape [6, 4, 2] and its volume [4, 6, 2]; annotate "
        "the volume in its own shape",
    )
    assert done.recorded == 1


@each_of(
    "shape, number, sentence",
    [
        ((4, 6, 4), 1, "its mask has 4 slices and the example has 5; give a mask of all"),
        ((4, 6), 1, "its mask has 1 slice and the example has 5"),
        ((6, 4, 5), 1, "its annotation has 4 x 6 pixels and its image 6 x 4"),
        ((4, 6, 5), 3, "its mask has the number 3, and labels are 0"),
    ],
)
def test_a_mask_of_another_shape_or_label_changes_nothing(
    shape: tuple[int, ...], number: int, sentence: str, queue: LabelQueue, tmp_path: Path
) -> None:
    folder = tmp_path / sentence[:20]
    folder.mkdir(exist_ok=True)
    path = write_masks(folder / str(number) / str(len(shape)), shape, number)
    done: Any = import_annotations(
        queue.ledger, queue.schema, queue.rows, path, ("lesion",), "Ann"
    )
    assert done.recorded == 0
    assert sentence in done.refused[0]
