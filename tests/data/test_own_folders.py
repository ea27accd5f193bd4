"""Folders of images: splits, empty classes, names, places without meaning."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fallow.data import Dataset, from_folder
from fallow.deployment.site.pictures import read_pictures
from tests.data.kinds import quietly
from tests.each import each_of

images = pytest.importorskip("PIL.Image")
WARNING = "warning"


def write(folder: Path, names: str, first: int = 0) -> Path:
    """Write images under the given names, with pixels that all differ."""
    for number, name in enumerate(names.split()):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((4, 4), 5 * (first + number), np.uint8)
        images.fromarray(pixels).save(file, "PNG")
    return folder


def warnings_of(data: Dataset) -> str:
    return " | ".join(f.sentence for f in data.findings if f.severity == WARNING)


PAIR = "{0}/cat/1.png {0}/cat/2.png {0}/dog/3.png {0}/dog/4.png"
SPLITS = {  # folders -> training and test examples, and the note
    "train and test": (("train", "test"), 4, 4, "the test set is the folder test/"),
    "other names": (("Training", "testing"), 4, 4, "the test set is the folder testing/"),
    "validation": (("train", "val"), 4, 4, "the test set is the folder val/"),
    "sets": (("training_set", "test_set"), 4, 4, "the test set is the folder test_set/"),
    "years": (("train2017", "val2017"), 4, 4, "the test set is the folder val2017/"),
    "images": (("Train-images", "Test"), 4, 4, "the test set is the folder Test/"),
    "development": (("train", "dev"), 4, 4, "the test set is the folder dev/"),
    "evaluation": (("train", "eval"), 4, 4, "the test set is the folder eval/"),
    "holdout": (("train", "holdout"), 4, 4, "the test set is the folder holdout/"),
    "all three": (
        ("train", "valid", "test"),
        8,
        4,
        "4 validation images were added to the training images",
    ),
}


@each_of("folders, train, test, sentence", SPLITS.values())
def test_existing_splits_are_used(
    folders: tuple[str, ...], train: int, test: int, sentence: str, tmp_path: Path
) -> None:
    root = tmp_path / "-".join(folders)
    for number, name in enumerate(folders):
        write(root, PAIR.format(name), 4 * number)
    data = from_folder(root)
    assert (len(data.x), len(data.x_test)) == (train, test)
    assert data.classes == ("cat", "dog") and data.sites is None
    assert sentence in data.notes
    values = (data.x_test[:, 0, 0, 0] * 255 / 5).round().tolist()
    assert sorted(values) == list(range(4 * len(folders) - 4, 4 * len(folders)))


def test_splits_of_sites_keep_the_sites_and_unlabeled_images(tmp_path: Path) -> None:
    for number, site in enumerate(("north", "south")):
        write(tmp_path, PAIR.format(f"train/{site}"), 8 * number)
        write(tmp_path, PAIR.format(f"test/{site}"), 8 * number + 4)
    write(tmp_path, "train/north/unlabeled/x.png", 40)
    data = from_folder(tmp_path)
    assert data.site_names == ("north", "south")
    assert (len(data.x), len(data.x_test)) == (9, 8)
    assert int((~data.is_labeled).sum()) == 1
    assert data.sites_test is not None and data.sites_test.bincount().tolist() == [4, 4]


def test_unlabeled_images_may_lie_beside_the_splits(tmp_path: Path) -> None:
    write(tmp_path, PAIR.format("train"))
    write(tmp_path, PAIR.format("test"), 4)
    write(tmp_path, "unlabeled/x.png unlabeled/y.png", 20)
    data = from_folder(tmp_path)
    assert (len(data.x), int((~data.is_labeled).sum())) == (6, 2)
    assert warnings_of(data) == ""


def test_classes_may_be_called_train_and_test(tmp_path: Path) -> None:
    names = " ".join(
        f"{kind}/{n}.png" for n in range(4) for kind in ("car", "test", "train")
    )
    data = from_folder(write(tmp_path, names))
    assert data.classes == ("car", "test", "train")


def test_a_further_folder_beside_splits_is_named_and_makes_no_sites(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "test", "extra")):
        write(tmp_path, PAIR.format(name), 4 * number)
    write(tmp_path, "samples/x.png", 20)
    data = from_folder(tmp_path)
    assert data.classes == ("cat", "dog") and data.sites is None
    assert (len(data.x), len(data.x_test)) == (4, 4)
    sentence = "5 images outside class/* in train and test left out, such as "
    assert sentence in warnings_of(data)


SPLITS_AS_CLASSES = {
    "below classes": ("cat/{0}", "dog/{0}"),
    "below sites and classes": ("north/cat/{0}", "south/cat/{0}"),
    "between sites and classes": ("north/{0}/cat", "south/{0}/cat"),
}


@each_of("folders", SPLITS_AS_CLASSES.values())
def test_splits_below_classes_are_refused_with_the_layout(
    folders: tuple[str, ...], tmp_path: Path
) -> None:
    root = tmp_path / folders[0].replace("/", "-")
    for number, name in enumerate(folders):
        names = f"{name}/1.png".format("train") + " " + f"{name}/2.png".format("test")
        write(root, names, 2 * number)
    with pytest.raises(ValueError, match=r"train/class/\* and test/class/\*"):
        from_folder(root)


def test_folders_of_patients_are_named_before_they_become_classes(tmp_path: Path) -> None:
    names = [
        f"{kind}/p{kind[0]}{n}/{k}.png"
        for kind in ("benign", "malignant")
        for n in range(4)
        for k in range(2)
    ]
    write(tmp_path / "patients", " ".join(names))
    assert (
        "each of 8 classes is at one site only, such as 'pb0' at 'benign'"
        in warnings_of(from_folder(tmp_path / "patients"))
    )
    names = [f"{kind}/patient_{n}/0.png" for kind in ("ill", "well") for n in range(4)]
    assert "such as 'patient_0': the sites may be classes" in warnings_of(
        from_folder(write(tmp_path / "both", " ".join(names)))
    )
    names = [f"{kind}/20{n}/0.png" for kind in ("ill", "well") for n in (20, 21, 22)]
    assert "named as patients or dates, such as '2020'" in warnings_of(
        from_folder(write(tmp_path / "years", " ".join(names)))
    )
    names = [f"{site}/{kind}/{k}.png" for site in "ab" for kind in "xyz" for k in range(3)]
    assert warnings_of(from_folder(write(tmp_path / "sites", " ".join(names)))) == ""


UNLABELED = ("unlabel" + "led", "Unlabeled", "UNLABELED")


@each_of("name", UNLABELED)
def test_other_writings_of_unlabeled_are_no_class(name: str, tmp_path: Path) -> None:
    root = tmp_path / name
    write(root, f"cat/1.png cat/2.png dog/3.png dog/4.png cat/5.png {name}/x.png")
    data = from_folder(root)
    assert data.classes == ("cat", "dog") and int((~data.is_labeled).sum()) == 1
    assert f"images in folders {name!r} are unlabeled" in data.notes
    assert read_pictures(root).labels.count("") == 1


def test_the_same_image_in_training_and_test_is_refused(tmp_path: Path) -> None:
    write(tmp_path, PAIR.format("train"))
    write(tmp_path, PAIR.format("test"), 3)
    with pytest.raises(ValueError, match="1 of 4 test examples are also training examples"):
        from_folder(tmp_path)


def test_an_empty_class_folder_is_a_class(tmp_path: Path) -> None:
    write(
        tmp_path, " ".join(f"{kind}/{n}.png" for n in range(5) for kind in ("cat", "dog"))
    )
    for name in ("bird", "unlabeled", "__MACOSX", ".cache"):
        (tmp_path / name).mkdir()
    data = from_folder(tmp_path)
    assert data.classes == ("bird", "cat", "dog")
    assert "1 class has a folder and no image: bird" in data.notes


def test_empty_classes_that_are_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    write(tmp_path, " ".join(f"{kind}/{n}.png" for n in range(5) for kind in (2, 9)))
    (tmp_path / "10").mkdir()
    assert from_folder(tmp_path).classes == ("2", "9", "10")


def test_two_unicode_forms_of_a_folder_are_one_class_and_one_site(tmp_path: Path) -> None:
    site, name = "Zürich", "Fraktur-é"
    write(
        tmp_path,
        " ".join(f"{site}/{kind}/{n}.png" for n in range(4) for kind in (name, "b")),
    )
    decomposed = unicodedata.normalize("NFD", f"{site}/{name}/x.png")
    write(tmp_path, f"{decomposed} Chur/b/y.png Chur/b/z.png", 20)
    data = from_folder(tmp_path)
    assert data.classes == (name, "b") or data.classes == ("b", name)
    assert data.site_names == ("Chur", site)
    assert sum("in 2 Unicode forms are one name" in text for text in data.notes) == 2


def test_images_at_another_depth_are_counted(tmp_path: Path) -> None:
    names = " ".join(f"north/{kind}/{n}.png" for n in range(5) for kind in ("cat", "dog"))
    write(tmp_path, f"{names} stray.png cat/lost.png north/cat/deep/x.png")
    (tmp_path / "README.txt").write_text("about the images")
    (tmp_path / "south").mkdir()
    data = from_folder(tmp_path)
    assert "3 images outside site/class/* left out, such as stray.png" in warnings_of(data)
    assert "1 site folder without images left out: south" in warnings_of(data)


def test_links_are_followed_and_those_that_lead_nowhere_are_no_images(
    tmp_path: Path,
) -> None:
    names = " ".join(f"{kind}/{n}.png" for n in range(5) for kind in ("cat", "dog"))
    write(tmp_path / "rows", names)
    write(tmp_path / "other", "x.png", 40)
    (tmp_path / "rows" / "bird").symlink_to(tmp_path / "other")
    (tmp_path / "rows" / "cat" / "gone.png").symlink_to(tmp_path / "missing.png")
    (tmp_path / "rows" / "loop").symlink_to(tmp_path / "rows")
    data = from_folder(tmp_path / "rows")
    assert "bird" in data.classes
    assert "1 link to no file left out: cat/gone.png" in warnings_of(data)


def test_a_site_with_the_name_of_training_images_is_a_warning(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "rest")):
        write(tmp_path, PAIR.format(name), 4 * number)
    data = quietly(lambda: from_folder(tmp_path))
    assert data.sites is not None
    assert "the folders train and rest are sites, and 'train' may have" in warnings_of(data)


FILES = {  # format, size and mode of the images of two classes -> what tells the class
    "format": (("png", "JPG"), (4, 4), ["L", "L"], "the format of a file tells its class"),
    "size": (
        ("png", "png"),
        (4, 8),
        ["L", "L"],
        "the size of a file tells its class (4 x 4 in 'a'",
    ),
    "color": (
        ("png", "png"),
        (4, 4),
        ["L", "RGB"],
        "the color of a file tells its class (gray in 'a', color in 'b')",
    ),
    "one of both": (("jpg", "jpeg"), (4, 4), ["L", "L"], ""),
}


@each_of("endings, widths, modes, part", FILES.values())
def test_files_that_tell_the_class_are_a_warning(
    endings: tuple[str, str],
    widths: tuple[int, int],
    modes: Sequence[str],
    part: str,
    tmp_path: Path,
) -> None:
    root = tmp_path / "-".join(map(str, (*endings, *widths, *modes)))
    for number in range(12):
        at = number % 2
        file = root / "ab"[at] / f"{number}.{endings[at]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((widths[at], widths[at]), 20 * number, np.uint8)
        images.fromarray(pixels).convert(modes[at]).save(file)
    output = warnings_of(quietly(lambda: from_folder(root)))
    assert part in output and bool(part) == ("tells its class" in output)
