"""Third-party layouts: MedMNIST's arrays, and images with a table of targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fallow as fl
from fallow.data import from_folder, from_npz
from fallow.deployment.schema import schema_of
from fallow.deployment.site.rows import read_rows
from tests.data.kinds import quietly
from tests.each import each_of


def write_medmnist(path: Path, **changes: Any) -> Path:
    """Write a file in the layout of MedMNIST; a change of None omits an array."""
    rng = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for part, n in (("train", 30), ("val", 8), ("test", 10)):
        arrays[f"{part}_images"] = rng.integers(0, 256, (n, 12, 12), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(n) % 2).astype(np.uint8)[:, None]
    arrays.update(changes)
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_a_file_of_medmnist_is_read_as_it_is(tmp_path: Path) -> None:
    dataset = fl.load(write_medmnist(tmp_path / "pneumonia.npz"))
    assert (tuple(dataset.x.shape), tuple(dataset.x_test.shape)) == (
        (38, 1, 12, 12),
        (10, 1, 12, 12),
    )
    assert dataset.classes == ("0", "1")
    assert float(dataset.x.max()) <= 1
    assert "8 validation images were added to the training images" in " ".join(
        dataset.notes
    )
    run = fl.run(fl.Federation(dataset, sites=2), "random", cycles=0)
    assert len(run.records)


def test_colored_images_of_medmnist_have_their_channels_last(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    colors = {
        f"{part}_images": rng.integers(0, 256, (n, 12, 12, 3), dtype=np.uint8)
        for part, n in (("train", 30), ("val", 8), ("test", 10))
    }
    path = write_medmnist(tmp_path / "blood.npz", **colors)
    assert tuple(from_npz(path).x.shape) == (38, 3, 12, 12)
    (moved,) = [note for note in fl.load(path).notes if "channels last" in note]
    assert moved.startswith("images of shape (12, 12, 3) were read as 3 channels")


def test_test_images_that_are_training_images_are_left_out_in_words(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    train = rng.integers(0, 256, (30, 12, 12), dtype=np.uint8)
    path = write_medmnist(tmp_path / "x.npz", train_images=train, test_images=train[:10])
    with pytest.raises(ValueError, match="all 10 test examples are also training examples"):
        fl.load(path)
    mixed = np.concatenate([train[:3], rng.integers(0, 256, (7, 12, 12), dtype=np.uint8)])
    path = write_medmnist(tmp_path / "y.npz", train_images=train, test_images=mixed)
    dataset = fl.load(path)
    assert len(dataset.x_test) == 7
    assert "3 test examples that are also training examples were left out" in dataset.notes


WRONG_MEDMNIST: dict[str, tuple[dict[str, Any], str]] = {
    "no labels": ({"train_labels": None}, r"but no array 'train_labels'"),
    "no test images": (
        {"test_images": None, "test_labels": None},
        "but no array 'test_images'",
    ),
    "several labels": (
        {"train_labels": np.zeros((30, 14), int)},
        "14 labels for each image",
    ),
}


@pytest.mark.parametrize("name", WRONG_MEDMNIST)
def test_a_file_of_medmnist_that_lacks_something_is_refused(
    name: str, tmp_path: Path
) -> None:
    changes, sentence = WRONG_MEDMNIST[name]
    with pytest.raises(ValueError, match=sentence):
        fl.load(write_medmnist(tmp_path / "x.npz", **changes))


def write_images(folder: Path, n: int = 24) -> Path:
    """Write images to one folder, and the brightness of each to targets.csv."""
    (folder / "scans").mkdir(parents=True)
    lines = ["file,target,site"]
    for row in range(n):
        pixels = np.full((10, 10), 10 * row, np.uint8)
        pixels[0, 0] = row + 1
        Image.fromarray(pixels).save(folder / "scans" / f"{row:02}.png")
        lines.append(f"scans/{row:02}.png,{row / 2},{'ab'[row % 2]}")
    (folder / "targets.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_table_of_files_and_targets_makes_images_a_regression_set(tmp_path: Path) -> None:
    dataset = fl.load(write_images(tmp_path / "scans"))
    assert dataset.task == "regression"
    assert tuple(dataset.x.shape[1:]) == (1, 10, 10)
    assert dataset.site_names == ("a", "b")
    assert dataset.ids is not None
    row = dataset.ids.index("scans/03.png")
    assert float(dataset.y[row]) == 1.5
    assert "regression targets were read from targets.csv" in dataset.notes
    run = fl.run(fl.Federation(dataset), "random", cycles=0)
    assert run.predict(dataset.x_test).dtype == float


@each_of("column", ["target", "label", "Label", "class"])
def test_a_table_of_files_may_have_classes(column: str, tmp_path: Path) -> None:
    folder = write_images(tmp_path / column)
    lines = [f"scans/{row:02}.png,{'no' if row % 2 else 'yes'}" for row in range(23)]
    lines.append("scans/23.png,")
    (folder / "targets.csv").write_text("\n".join([f"file,{column}", *lines]) + "\n")
    dataset = from_folder(folder)
    assert dataset.classes == ("no", "yes")
    assert dataset.ids is not None
    assert dataset.y[dataset.ids.index("scans/23.png")] == -1
    assert "labels were read from targets.csv" in dataset.notes


@each_of("column", ["filename", "image_id", "Image"])
def test_a_table_of_images_may_have_other_columns(column: str, tmp_path: Path) -> None:
    folder = tmp_path / column
    folder.mkdir()
    for row in range(24):
        pixels = np.full((4, 4), 9 * row, np.uint8)
        Image.fromarray(pixels).save(folder / f"i{row:02}.png")
    suffix = ".png" if column == "filename" else ""
    lines = [f"i{row:02}{suffix},{'ab'[row % 2]},p{row // 2},9" for row in range(22)]
    head = f"{column},label,patient,age"
    (folder / "labels.csv").write_text("\n".join([head, *lines]))
    dataset = quietly(lambda: fl.load(folder, group="patient"))
    assert dataset.classes == ("a", "b") and dataset.n_groups == 11
    assert "labels.csv: the columns age were not read" in dataset.notes
    assert "2 images left out, because labels.csv does not list them" in dataset.notes
    with pytest.raises(ValueError, match="images have no 'nurse'"):
        fl.load(folder, group="nurse")


LISTS = {  # header and line of image i of class a or b -> column of labels
    "HAM10000": ("lesion_id,image_id,dx,age", "L{lesion},i{i:02},{kind},40", "label"),
    "ISIC 2019": ("image,a,b", "i{i:02},{is_a:.1f},{is_b:.1f}", "label"),
    "ISIC 2020": ("image_name,diagnosis", "i{i:02},{kind}", "label"),
    "files": ("filename,label", "i{i:02}.png,{kind}", "label"),
    "paths": ("path,label", "part_{part}/i{i:02}.png,{kind}", "label"),
    "another column": ("image_id,age,benign", "i{i:02},40,{kind}", "benign"),
}


def write_list(folder: Path, header: str, line: str, n: int = 24) -> Path:
    """Write images of two classes to two folders, and a table that lists them."""
    lines = [header]
    for i in range(n):
        file = folder / f"part_{i % 2}" / f"i{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), 9 * i, np.uint8)).save(file)
        is_a = i % 3 == 0
        facts = {"i": i, "lesion": i // 2, "part": i % 2, "kind": "ab"[not is_a]}
        lines.append(line.format(**facts, is_a=is_a, is_b=not is_a))
    (folder / "list.csv").write_text("\n".join(lines))
    return folder


@each_of("header, line, label", LISTS.values())
def test_lists_are_read_alike_in_simulations_and_at_sites(
    header: str, line: str, label: str, tmp_path: Path
) -> None:
    folder = write_list(tmp_path / header, header, line)
    data = quietly(lambda: fl.load(folder, label=None if label == "label" else label))
    assert data.classes == ("a", "b") and len(data.x) + len(data.x_test) == 24
    agreed = schema_of(folder, label)
    assert agreed.classes == ("a", "b") and agreed.shape == (1, 4, 4)
    rows = read_rows(folder, agreed)
    assert rows.ids == tuple(f"i{i:02}.png" for i in range(24))
    assert rows.labels == tuple(float(i % 3 != 0) for i in range(24))
    assert data.ids is not None
    label_of = dict(zip(rows.ids, rows.labels, strict=True))
    for name, y in zip(data.ids, data.y.tolist(), strict=True):
        assert y == label_of[f"{Path(name).stem}.png"]
    groups = [f.fix for f in data.findings if "of one patient" in f.sentence]
    assert groups == ["group='lesion_id'"] * ("lesion" in header)


@each_of("line", ["i{i:02},p{lesion},{is_a:d}", "i{i:02},p{lesion},{is_a:d}.0"])
def test_targets_of_a_list_that_are_0_and_1_are_classes(line: str, tmp_path: Path) -> None:
    folder = write_list(tmp_path, "image_name,patient_id,target", line)  # as ISIC 2020
    data = quietly(lambda: fl.load(folder))
    assert data.classes == ("0", "1")
    agreed = schema_of(folder)
    assert agreed.classes == ("0", "1")
    expected = tuple(float(i % 3 == 0) for i in range(24))
    assert read_rows(folder, agreed).labels == expected
    table = folder / "list.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:-1], lines[-1].rpartition(",")[0] + ","]))
    assert read_rows(folder, agreed).labels == (*expected[:-1], None)
    table.write_text(table.read_text().replace(lines[1], lines[1].replace("1", "0.5")))
    with pytest.raises(ValueError):
        read_rows(folder, agreed)


def test_targets_and_empty_labels_of_a_list_are_read_at_a_site(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "scans")
    with pytest.raises(ValueError, match=r"targets.csv lists images of 2 sites"):
        schema_of(folder)
    table = folder / "targets.csv"
    lines = [line.rpartition(",")[0] for line in table.read_text().splitlines()]
    table.write_text("\n".join(lines).replace("03.png,1.5", "03.png,"))
    agreed = schema_of(folder)
    assert agreed.task == "regression"
    assert read_rows(folder, agreed).labels[2:5] == (1.0, None, 2.0)
    table.write_text(table.read_text().replace(",2.0", ",NA"))
    assert read_rows(folder, agreed).labels[2:5] == (1.0, None, None)
    table.write_text("file,label\nscans/00.png,no\nscans/01.png,maybe\n")
    agreed = replace(agreed, task="classification", classes=("no", "yes"))
    with pytest.raises(ValueError, match=r"targets.csv, scans/01.png: label 'maybe'"):
        read_rows(folder, agreed)


def test_two_images_of_one_listed_name_are_refused(tmp_path: Path) -> None:
    folder = write_list(tmp_path, "image_id,label", "i{i:02},{kind}")
    (folder / "part_0" / "i01.png").write_bytes(
        (folder / "part_1" / "i01.png").read_bytes()
    )
    with pytest.raises(ValueError, match="lists 'i01', and several images have that name"):
        from_folder(folder)
    with pytest.raises(ValueError, match="has no table with a column 'dx'"):
        fl.load(write_list(tmp_path / "a", "image_id,age", "i{i:02},4"), label="dx")


def test_images_of_another_shape_are_squeezed_with_a_warning(tmp_path: Path) -> None:
    for row in range(12):
        shape = (4, 8) if row % 4 else (8, 4)
        file = tmp_path / "ab"[row % 2] / f"{row}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full(shape, 9 * row, np.uint8)).save(file)
    assert "3 images of another shape squeezed" in " ".join(from_folder(tmp_path).notes)


def test_an_empty_target_is_unlabeled_and_decimal_commas_are_read(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "scans")
    lines = ["file;target"]
    lines += [f"scans/{row:02}.png;{row},5" for row in range(23)]
    lines += ["scans/23.png;"]
    (folder / "targets.csv").write_text("\n".join(lines) + "\n")
    dataset = from_folder(folder)
    assert dataset.ids is not None
    assert np.isnan(float(dataset.y[dataset.ids.index("scans/23.png")]))
    assert float(dataset.y.nan_to_num(0).max()) > 20
    assert dataset.site_names == ()


WRONG_LISTS = {
    "a file that is not there": ("file,target\nscans/99.png,1\n", "has no such file"),
    "a file elsewhere": ("file,target\n../targets.csv,1\n", "has no such file"),
    "a file twice": ("file,target\nscans/01.png,1\nscans/01.png,2\n", "more than once"),
    "a number and a text": (
        "file,target\nscans/01.png,1.5\nscans/02.png,low\n",
        "some labels are numbers and others texts",
    ),
}


@pytest.mark.parametrize("name", WRONG_LISTS)
def test_a_wrong_list_is_refused_in_words(name: str, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "scans")
    text, sentence = WRONG_LISTS[name]
    (folder / "targets.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        from_folder(folder)


def test_two_lists_are_refused_and_a_folder_without_any_says_how(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "scans")
    (folder / "again.csv").write_text((folder / "targets.csv").read_text())
    with pytest.raises(ValueError, match="2 tables with files and targets"):
        from_folder(folder)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"a table with the columns file and label"):
        from_folder(tmp_path / "none")


@each_of("name", ["basel.csv", "site=basel/part.parquet"])
def test_a_folder_of_tables_is_refused_with_the_way_out(name: str, tmp_path: Path) -> None:
    file = tmp_path / name[:5] / name
    file.parent.mkdir(parents=True)
    file.write_text("age,y\n")
    for label in (None, "y"):
        with pytest.raises(ValueError, match=rf"has tables, such as {name}; join them"):
            fl.load(tmp_path / name[:5], label=label)
