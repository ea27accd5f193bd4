from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.catalog import find_entry, missing_files
from fallow.catalog.entries import ENTRIES
from fallow.data import Dataset, check_leak, load, open_dataset
from fallow.data.partition.partitions import Natural
from tests.data.published import (
    draw_pixels,
    encode_idx,
    pack_cifar10,
    write_cifar10,
    write_fashion_mnist,
    write_gzip,
    write_idx_images,
    write_writers,
)
from tests.each import each_of

DATA = os.environ.get("FALLOW_DATA")
needs_files = pytest.mark.skipif(
    not DATA, reason="FALLOW_DATA names no folder of data files"
)
BUNDLED = [entry.name for entry in ENTRIES if entry.source == "bundled"]
SMALL_FILES = ["heart"]


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_set_is_what_the_catalog_says(name: str) -> None:
    check_entry(name)


@needs_files
@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_set_from_a_file_is_what_the_catalog_says(name: str) -> None:
    require_files(name)
    check_entry(name)


def require_files(name: str) -> None:
    """Skip a test without the files of the dataset."""
    missing = missing_files(name)
    if missing:
        pytest.skip(f"FALLOW_DATA has no {missing[0]}: 'fallow datasets {name}'")


def check_entry(name: str) -> None:
    entry = find_entry(name)
    d = load(name)
    assert (d.name, d.task, d.n_classes) == (name, entry.task, entry.classes)
    assert tuple(d.x.shape[1:]) == entry.shape
    assert len(d.x) + len(d.x_test) == entry.rows
    assert (d.sites is not None) == bool(entry.sites) == (d.sites_test is not None)
    check_leak(d)
    again = load(name)
    assert torch.equal(d.x, again.x) and torch.equal(d.y_test, again.y_test)


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "iris"])
def test_a_classification_table_is_standardized_and_stratified(name: str) -> None:
    d = load(name)
    torch.testing.assert_close(d.x.mean(0), torch.zeros(d.x.shape[1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(d.x.std(0, correction=0), torch.ones(d.x.shape[1]))
    train = d.y.bincount() / len(d.y)
    test = d.y_test.bincount() / len(d.y_test)
    assert (train - test).abs().max() < 0.03


def test_digits_are_images_with_a_fixed_scale() -> None:
    d = load("digits")
    assert d.x.min() == pytest.approx(-0.3053 / 0.3760)
    assert d.x.max() == pytest.approx((1 - 0.3053) / 0.3760)
    assert abs(float(d.x.mean())) < 0.01 and abs(float(d.x.std()) - 1) < 0.01


def test_diabetes_is_regression_with_raw_columns() -> None:
    d = load("diabetes")
    assert d.classes == () and d.columns[:2] == ("age", "sex") and d.y.max() == 346


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"'fashion-mnist' is not .* did you mean 'fashion_mnist'"
    ):
        load("fashion-mnist")


def test_a_missing_file_or_folder_says_which_and_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FALLOW_DATA", raising=False)
    with pytest.raises(
        ValueError,
        match=r"mnist/train-images-idx3-ubyte.gz is needed, and no .*--data-dir or FALLOW_DATA",
    ):
        load("mnist")
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path))
    with pytest.raises(
        ValueError,
        match=r"'kegg': the file keggundirected/data.csv.gz is needed, which is not in .*"
        r"'fallow datasets kegg --fetch' downloads it",
    ):
        load("kegg")


def test_a_file_that_did_not_arrive_whole_is_named(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    for name in ("t10k-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        path = tmp_path / "fashion_mnist" / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        message = (
            rf"the file {name} in .* is incomplete or damaged \([\d,]+ bytes: .*copy it"
        )
        with pytest.raises(ValueError, match=message):
            load("fashion_mnist", tmp_path)
        path.write_bytes(whole)


def write_mnist(folder: Path) -> np.ndarray[Any, Any]:
    """Write three training and two test digits; one test digit is a training digit."""
    pixels = np.arange(4 * 28 * 28).astype(np.uint8).reshape(4, 28, 28)
    pixels[1] += 1
    pixels[2] += 2
    train = (pixels[:3], np.array([0, 1, 2]))
    test = (np.stack([pixels[1], 255 - pixels[0]]), np.array([1, 5]))
    write_idx_images(folder / "mnist", train, test)
    return pixels


def test_the_writers_of_qmnist_are_the_sites_of_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    mnist = tmp_path / "mnist"
    write_writers(mnist, "train", np.array([0, 1, 2]), np.array([12, 40, 12]))
    write_writers(mnist, "test", np.array([1, 5, 7]), np.array([40, 7, 9]))
    d = load("mnist", tmp_path)
    assert d.y_test.tolist() == [5] and "1 test examples" in d.notes[0]
    assert d.site_names == ("writer 7", "writer 12", "writer 40")
    assert d.sites is not None and d.sites.tolist() == [1, 2, 1]
    assert d.x[0, 0, 0, 1] == pytest.approx((1 / 255 - 0.1307) / 0.3081)
    write_writers(mnist, "train", np.array([0, 1, 3]), np.array([12, 40, 12]))
    with pytest.raises(ValueError, match="does not list the digits of MNIST"):
        load("mnist", tmp_path)


def test_mnist_without_writers_says_so_and_is_the_file_of_keras(tmp_path: Path) -> None:
    pixels = write_mnist(tmp_path)
    d = load("mnist", tmp_path)
    assert d.sites is None and "qmnist-train-labels-idx2-int.gz" in d.notes[0]
    keras = tmp_path / "keras"
    keras.mkdir()
    np.savez(
        keras / "mnist.npz",
        x_train=pixels[:3],
        y_train=np.array([0, 1, 2], dtype=np.uint8),
        x_test=np.stack([pixels[1], 255 - pixels[0]]),
        y_test=np.array([1, 5], dtype=np.uint8),
    )
    again = load("mnist", keras)
    assert torch.equal(again.x, d.x) and torch.equal(again.y_test, d.y_test)
    assert again.notes == d.notes


def test_unpacked_files_are_read_like_packed_ones(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    packed = load("fashion_mnist", tmp_path)
    for path in (tmp_path / "fashion_mnist").iterdir():
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert torch.equal(load("fashion_mnist", tmp_path).x, packed.x)
    write_cifar10(tmp_path)
    unpacked = load("cifar10", tmp_path)
    assert torch.equal(load("cifar10", pack_cifar10(tmp_path)).x, unpacked.x)


HEADER = bytes.fromhex("00000803 00000002 0000001c 0000001c")
WRONG_IDX = {
    "no IDX file": (b"P5 28 28", "begins with the bytes 50 35 20 32, not 00000803"),
    "labels": (encode_idx(np.arange(3)), "begins with the bytes 00 00 08 01"),
    "a header alone": (HEADER[:9], "ends within its header"),
    "too few images": (HEADER + bytes(784), r"declares the shape \(2, 28, 28\) .* fewer"),
    "too many images": (HEADER + bytes(3 * 784), "has more bytes"),
    "a size beyond the memory": (HEADER[:4] + b"\xff" * 12, "unpacks to .* of memory"),
    "fewer images than labels": (HEADER + bytes(2 * 784), "has 2 images, but .* 90 labels"),
}


@each_of("content, message", WRONG_IDX.values())
def test_a_damaged_idx_file_is_refused(
    content: bytes, message: str, tmp_path: Path
) -> None:
    write_fashion_mnist(tmp_path)
    write_gzip(tmp_path / "fashion_mnist" / "train-images-idx3-ubyte.gz", content)
    with pytest.raises(ValueError, match=message):
        load("fashion_mnist", tmp_path)


def test_a_label_without_a_class_is_refused(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    labels = tmp_path / "fashion_mnist" / "train-labels-idx1-ubyte.gz"
    write_gzip(labels, encode_idx(np.full(90, 10)))
    with pytest.raises(ValueError, match=r"has the label 10, outside of 0\.\.9"):
        load("fashion_mnist", tmp_path)
    write_cifar10(tmp_path)
    batch = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    batch.write_bytes(b"\x0a" + batch.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"test_batch.bin has the label 10, outside"):
        load("cifar10", tmp_path)


def test_the_pickles_of_cifar10_are_refused_with_the_binary_archive(
    tmp_path: Path,
) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    message = (
        r"cifar-10-batches-py is a Python pickle, which can run code and is never read; put the "
        r"file cifar-10-binary.tar.gz into .*'fallow datasets cifar10 --fetch' downloads it"
    )
    with pytest.raises(ValueError, match=message):
        load("cifar10", tmp_path)


def write_photos(folder: Path) -> tuple[Dataset, Path]:
    """Write CIFAR-10 as folders of images and as Parquet; return its binary version, and both."""
    image = pytest.importorskip("PIL.Image")
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (folder / "binary").mkdir()
    binary = load("cifar10", write_cifar10(folder / "binary", train=20, test=10))
    pixels = draw_pixels(30, 32, 32, 3)
    for part, begin, end in (("train", 0, 20), ("test", 20, 30)):
        rows = []
        for row in range(begin, end):
            label = (row - begin) % 10
            inside = folder / "folders" / "cifar10" / part / binary.classes[label]
            inside.mkdir(parents=True, exist_ok=True)
            path = inside / f"{row:04d}.png"
            image.fromarray(pixels[row]).save(path)
            rows.append({"img": {"bytes": path.read_bytes(), "path": None}, "label": label})
        inside = folder / "parquet" / "cifar10"
        inside.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(rows)
        parquet.write_table(table, inside / f"{part}-00000-of-00001.parquet")
    return binary, folder


def test_cifar10_is_the_same_from_folders_of_images_and_from_parquet(
    tmp_path: Path,
) -> None:
    binary, folder = write_photos(tmp_path)
    table = load("cifar10", folder / "parquet")
    assert torch.equal(table.x, binary.x) and torch.equal(table.y, binary.y)
    folders = load("cifar10", folder / "folders")  # sorted by class
    order = binary.y.sort(stable=True).indices
    assert torch.equal(folders.x, binary.x[order])
    assert torch.equal(folders.y_test, binary.y_test)


def test_a_damaged_image_or_table_of_cifar10_is_named(tmp_path: Path) -> None:
    _, folder = write_photos(tmp_path)
    image = next((folder / "folders").rglob("*.png"))
    image.write_bytes(b"no image")
    with pytest.raises(ValueError, match=rf"{image.name} could not be read as an image"):
        load("cifar10", folder / "folders")
    table = folder / "parquet" / "cifar10" / "test-00000-of-00001.parquet"
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(ValueError, match="cannot be read as Parquet with the columns img"):
        load("cifar10", folder / "parquet")


def write_octmnist(path: Path, **changes: Any) -> None:
    arrays: dict[str, Any] = {}
    for part, n in (("train", 8), ("val", 4), ("test", 4)):
        arrays[f"{part}_images"] = draw_pixels(n, 28, 28, seed=n + len(part))
        arrays[f"{part}_labels"] = (np.arange(n, dtype=np.uint8) % 4)[:, None]
    np.savez(path, **{**arrays, **changes})


def test_octmnist_is_read_by_name_and_by_path_with_its_classes(tmp_path: Path) -> None:
    write_octmnist(tmp_path / "octmnist.npz")
    d = load("octmnist", tmp_path)
    assert d.x.shape == (12, 1, 28, 28) and d.classes[3] == "normal"
    first = draw_pixels(8, 28, 28, seed=13)[0]
    torch.testing.assert_close(d.x[0, 0], torch.tensor(first / 127.5 - 1).float())
    assert "4 validation images were added" in d.notes[0]
    by_path = open_dataset(tmp_path / "octmnist.npz")
    assert by_path.name == "octmnist" and torch.equal(by_path.x, d.x)


WRONG_MEDMNIST: dict[str, tuple[dict[str, Any], str]] = {
    "another size": (
        {"val_images": draw_pixels(4, 64, 64)},
        "download the 28 x 28 version",
    ),
    "colors": ({"val_images": draw_pixels(4, 28, 28, 3)}, "with 1 channels"),
    "several labels": ({"val_labels": np.zeros((4, 2), np.uint8)}, "one label each"),
    "an unknown label": ({"val_labels": np.full((4, 1), 4, np.uint8)}, r"label 4, outside"),
}


@each_of("changes, message", WRONG_MEDMNIST.values())
def test_another_file_than_octmnist_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_octmnist(tmp_path / "octmnist.npz", **changes)
    with pytest.raises(ValueError, match=message):
        load("octmnist", tmp_path)


def test_images_of_a_named_set_are_normalized_alike_by_name_and_by_path(
    tmp_path: Path,
) -> None:
    write_fashion_mnist(tmp_path)
    write_cifar10(tmp_path)
    for name, path in (
        ("fashion_mnist", "fashion_mnist"),
        ("fashion_mnist", "fashion_mnist/train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-batches-bin"),
    ):
        d = open_dataset(tmp_path / path)
        assert d.name == name and torch.equal(d.x, load(name, tmp_path).x)


@needs_files
def test_heart_disease_has_four_hospitals_and_marks_its_missing_values() -> None:
    require_files("heart")
    d = load("heart")
    assert d.sites is not None and d.sites_test is not None
    assert torch.cat([d.sites, d.sites_test]).bincount().tolist() == [303, 294, 123, 200]
    assert torch.cat([d.y, d.y_test]).bincount().tolist() == [411, 509]
    assert sum(column.endswith("_missing") for column in d.columns) == 10
    assert "1759" in d.notes[0]


@pytest.mark.long
@needs_files
def test_the_writers_of_mnist_are_its_natural_sites() -> None:
    require_files("mnist")
    d = load("mnist")
    assert d.x.shape == (60000, 1, 28, 28) and d.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert d.sites is not None
    parts = Natural().split(d.y.numpy(), 0, np.random.default_rng(0), d.sites.numpy())
    sizes = [len(part) for part in parts]
    assert (len(sizes), min(sizes), max(sizes), sum(sizes)) == (539, 19, 131, 60000)


@each_of(
    "name, dataset",
    [
        ("cifar-10-batches-bin", "cifar10"),  # without its files
        ("cifar-10-batches-py", "cifar10"),  # pickles
        ("cifar-10-batches-bin/data_batch_1.bin", "cifar10"),
        ("processed.va.data", "heart"),
        ("photos", None),
        ("rows.txt", None),
    ],
)
def test_a_part_of_a_published_dataset_is_named_with_its_command(
    name: str, dataset: str | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    if path.suffix:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1")
    else:
        path.mkdir()
        (path / "batches.meta.txt").write_text("x")
    with pytest.raises(ValueError) as error:
        open_dataset(path, label="y" if path.suffix else None)
    assert (f"'fallow datasets {dataset}'" in str(error.value)) == (dataset is not None)
    assert "does not apply" not in str(error.value)
