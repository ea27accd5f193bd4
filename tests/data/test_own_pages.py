"""Files with several pages or frames: each is an example with ``pages="each"``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fallow as fl
from fallow.data import Dataset, open_dataset, read_rows
from fallow.data.example_spec import read_example_spec
from fallow.data.loaders import pixels
from fallow.data.loaders.images import read_images
from tests.data.test_own_images import dicom
from tests.each import each_of

images = pytest.importorskip("PIL.Image")
pydicom = pytest.importorskip("pydicom")
PAGES = 3
SAVED = {"shape": [1, 3, 4], "classes": ["a", "b"], "columns": []}


def write_pages(folder: Path, ending: str, levels: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    first, *others = [images.new("L", (4, 3), level) for level in levels]
    first.save(folder / f"{levels[0]}.{ending}", save_all=True, append_images=others)


def write_classes(folder: Path, ending: str) -> None:
    """Write six files of three pages in two classes; each page has its own gray."""
    for number in range(6):
        levels = [40 * number + 10 * page for page in range(PAGES)]
        write_pages(folder / "ab"[number % 2], ending, levels)


def groups_of(data: Dataset) -> list[set[int]]:
    assert data.groups is not None and data.groups_test is not None
    return [set(data.groups.tolist()), set(data.groups_test.tolist())]


@each_of("ending", ["tif", "gif", "webp", "png"])
def test_each_page_is_an_example_and_the_pages_of_a_file_are_a_group(
    ending: str, tmp_path: Path
) -> None:
    folder = tmp_path / ending
    write_classes(folder, ending)
    data = open_dataset(folder, pages="each")
    assert len(data.x) + len(data.x_test) == 6 * PAGES
    train, test = groups_of(data)
    assert len(train | test) == 6 and not train & test
    assert data.ids is not None
    at, name = next((i, name) for i, name in enumerate(data.ids) if name.endswith("#2"))
    first_level = int(name[2:].partition(".")[0])
    assert data.x[at, 0, 0, 0] == pytest.approx((first_level + 10) / 255, abs=0.02)
    assert data.classes[int(data.y[at])] == name[0]
    assert any("6 files with several pages" in note for note in data.notes)


def test_files_with_several_pages_are_refused_by_default(tmp_path: Path) -> None:
    write_classes(tmp_path, "tif")
    with pytest.raises(ValueError, match=r"it has 3 pages or frames; .*--pages each"):
        open_dataset(tmp_path)


def test_files_of_one_page_have_no_groups(tmp_path: Path) -> None:
    for number in range(8):
        write_pages(tmp_path / "ab"[number % 2], "png", [number])
    data = open_dataset(tmp_path, pages="each")
    assert data.groups is None and data.ids is not None
    assert not any("#" in name for name in data.ids)


def test_too_many_pages_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "MOST_PAGES", 2)
    write_classes(tmp_path, "tif")
    with pytest.raises(ValueError, match="it has 3 pages or frames, more than 2"):
        open_dataset(tmp_path, pages="each")


def test_targets_are_of_each_page(tmp_path: Path) -> None:
    lines = ["file,target"]
    for number in range(6):
        write_pages(tmp_path, "tif", [10 * number, 10 * number + 1])
        lines.append(f"{10 * number}.tif,{number}.5")
    (tmp_path / "targets.csv").write_text("\n".join(lines))
    data = fl.load(tmp_path, pages="each")
    y = sorted([*data.y.tolist(), *data.y_test.tolist()])
    assert y == [number + 0.5 for number in range(6) for _ in range(2)]


def test_each_page_is_predicted_as_in_training(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", "tif")
    data = fl.load(tmp_path / "train", pages="each")
    run = fl.run(
        fl.Federation(data, sites=1), "random", cycles=0, initial=12, progress=False
    )
    write_pages(tmp_path / "new", "tif", [40, 90, 200])
    write_pages(tmp_path / "new", "png", [50])
    run.save(tmp_path / "model")
    model = fl.load_model(tmp_path / "model")
    expected = run.predict_proba(
        np.array([40, 90, 200, 50]).repeat(12).reshape(4, 1, 3, 4) / 255
    )
    for trained in (run, model):
        assert trained.predict_proba(tmp_path / "new") == pytest.approx(expected)
    rows = read_rows(tmp_path / "new", run.saved["example_spec"])
    assert rows.names == ("40.tif#1", "40.tif#2", "40.tif#3", "50.png")


def test_the_use_of_pages_in_a_model_file_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pages is 'some'"):
        read_example_spec({**SAVED, "files": {"pages": "some"}})
    with pytest.raises(ValueError, match="'label' is no option of files"):
        read_example_spec({**SAVED, "files": {"label": "y"}})
    assert "files" not in read_example_spec(SAVED)


@each_of("channels", [1, 3, None])
def test_later_frames_of_a_gray_gif_are_gray(channels: int | None, tmp_path: Path) -> None:
    """Pillow returns them in color."""
    write_pages(tmp_path, "gif", [40, 50, 60])
    stack = read_images([tmp_path / "40.gif"], channels, pages="each")
    assert stack.x.shape == (3, channels or 1, 3, 4)
    assert (stack.x * 255).round()[:, 0, 0, 0].tolist() == [40, 50, 60]


def test_frames_of_a_gif_with_colors_are_not_gray(tmp_path: Path) -> None:
    first, second = [images.new("RGB", (4, 3), color) for color in ("gray", "red")]
    first.save(tmp_path / "a.gif", save_all=True, append_images=[second])
    with pytest.raises(ValueError, match=r"a\.gif.*color"):
        read_images([tmp_path / "a.gif"], 1, pages="each")


def write_frames(file: Path, frames: np.ndarray, **elements: object) -> None:
    """Write a DICOM file with several frames, (frames, h, w)."""
    dicom(file, frames[0], 12, **elements)  # type: ignore[arg-type]
    dataset = pydicom.dcmread(file)
    dataset.NumberOfFrames = len(frames)
    dataset.PixelData = frames.tobytes()
    dataset.save_as(file)


def test_each_frame_of_a_dicom_file_is_an_example(tmp_path: Path) -> None:
    for number in range(6):
        frames = np.arange(8, dtype=np.uint16).reshape(2, 2, 2) + 10 * number
        write_frames(tmp_path / "ab"[number % 2] / f"{number}.dcm", frames, slope=1.0)
    data = open_dataset(tmp_path, pages="each", physical_range=(0.0, 100.0))
    assert data.ids is not None
    at = data.ids.index("a/2.dcm#2")
    assert data.x[at, 0, 0, 0] == pytest.approx(0.24)
    with pytest.raises(ValueError, match=r"it has 2 frames; .*--pages each"):
        open_dataset(tmp_path)


def test_an_enhanced_file_has_the_slope_of_each_frame(tmp_path: Path) -> None:
    for number in range(6):
        file = tmp_path / "ab"[number % 2] / f"{number}.dcm"
        frames = np.full((2, 2, 2), 10 + number, dtype=np.uint16)
        write_frames(file, frames)
        dataset = pydicom.dcmread(file)
        dataset.Modality = "CT"
        groups = []
        for slope in (1.0, 2.0):
            rescale = pydicom.Dataset()
            rescale.RescaleSlope = slope
            rescale.RescaleIntercept = 0.0
            group = pydicom.Dataset()
            group.PixelValueTransformationSequence = [rescale]
            groups.append(group)
        dataset.PerFrameFunctionalGroupsSequence = groups
        dataset.save_as(file)
    data = open_dataset(tmp_path, pages="each", physical_range=(0.0, 100.0))
    assert data.ids is not None
    first = data.x[data.ids.index("a/2.dcm#1"), 0, 0, 0]
    second = data.x[data.ids.index("a/2.dcm#2"), 0, 0, 0]
    assert first == pytest.approx(0.12) and second == pytest.approx(0.24)


def test_a_window_for_display_is_named_and_not_applied(tmp_path: Path) -> None:
    for number in range(6):
        values = np.array([[0, 100], [200, 300 + number]], dtype=np.uint16)
        file = tmp_path / "ab"[number % 2] / f"{number}.dcm"
        windows = ([40, 50], [400, 80])
        dicom(file, values, 12, slope=1.0, WindowCenter=windows[0], WindowWidth=windows[1])
    data = open_dataset(tmp_path)
    (finding,) = [item for item in data.findings if "window for display" in item.sentence]
    assert "6 images with a window for display (1 different one" in finding.sentence
    assert finding.fix == "physical_range=(-160, 240)"
    assert data.physical_range == (0.0, 305.0)
    ranged = open_dataset(tmp_path, physical_range=(-160.0, 240.0))
    assert not any("window for display" in note for note in ranged.notes)
