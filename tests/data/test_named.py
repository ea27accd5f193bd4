from __future__ import annotations

import io
import lzma
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.data import check_leak, find_entry, load
from fallow.data.catalog.named import ENTRIES, missing_files
from fallow.data.partition.partitions import Natural

DATA = os.environ.get("FALLOW_DATA")
needs_files = pytest.mark.skipif(
    not DATA, reason="FALLOW_DATA names no folder of data files"
)
BUNDLED = [entry.name for entry in ENTRIES if entry.source == "bundled"]
SMALL_FILES = ["har", "heart"]


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_set_is_what_the_catalog_says(name: str) -> None:
    check_entry(name)


@needs_files
@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_set_from_a_file_is_what_the_catalog_says(name: str) -> None:
    if not all((Path(str(DATA)) / file).is_file() for file in find_entry(name).files):
        pytest.skip(f"the file of {name} is not in FALLOW_DATA")
    check_entry(name)


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
        ValueError, match=r"mnist.npz is needed, and no .*--data-dir or FALLOW_DATA"
    ):
        load("mnist")
    monkeypatch.setenv("FALLOW_DATA", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"'kegg': the file tab_keggundirected.npz is needed, which"
    ):
        load("kegg")


@pytest.mark.parametrize("file", ["cifar10_train_a.npy.xz", "cifar10_labels.npz"])
def test_a_file_that_did_not_arrive_whole_is_named(tmp_path: Path, file: str) -> None:
    pictures = np.zeros((3, 32, 32, 3), np.uint8)
    packed = io.BytesIO()
    np.save(packed, pictures)
    for part in ("train_a", "train_b", "test"):
        name = f"cifar10_{part}.npy.xz"
        (tmp_path / name).write_bytes(lzma.compress(packed.getvalue()))
    labels = np.zeros(6, np.uint8)
    np.savez(
        tmp_path / "cifar10_labels.npz",
        y_train=labels,
        y_test=labels[:3],
        class_names=["a"],
    )
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[: len(whole) // 2])
    assert missing_files("cifar10", tmp_path) == []
    message = rf"the file {re.escape(file)} in .* is incomplete or damaged \(\d+ bytes: .*copy it there"
    with pytest.raises(ValueError, match=message):
        load("cifar10", tmp_path)


def test_a_data_folder_is_read_without_pickles_and_its_leaks_are_dropped(
    tmp_path: Path,
) -> None:
    pixels = np.arange(4 * 28 * 28).astype(np.uint8).reshape(4, 28, 28)
    pixels[1] += 1
    pixels[2] += 2
    np.savez(
        tmp_path / "mnist.npz",
        x_train=pixels[:3],
        y_train=np.array([0, 1, 2], dtype=np.uint8),
        x_test=np.stack([pixels[1], 255 - pixels[0]]),
        y_test=np.array([1, 5], dtype=np.uint8),
        writer_train=np.array([12, 40, 12]),
        writer_test=np.array([40, 7]),
    )
    d = load("mnist", tmp_path)
    assert d.y_test.tolist() == [5] and "1 test examples" in d.notes[0]
    assert d.site_names == ("writer 7", "writer 12", "writer 40")
    assert d.sites is not None and d.sites.tolist() == [1, 2, 1]
    assert d.x[0, 0, 0, 1] == pytest.approx((1 / 255 - 0.1307) / 0.3081)


@needs_files
def test_heart_disease_has_four_hospitals_and_marks_its_missing_values() -> None:
    d = load("heart")
    assert d.sites is not None and d.sites_test is not None
    assert torch.cat([d.sites, d.sites_test]).bincount().tolist() == [303, 294, 123, 200]
    assert torch.cat([d.y, d.y_test]).bincount().tolist() == [411, 509]
    assert sum(column.endswith("_missing") for column in d.columns) == 10
    assert "1759" in d.notes[0]


@needs_files
def test_the_test_persons_of_har_are_the_official_nine() -> None:
    d = load("har")
    assert d.sites is not None and d.sites_test is not None
    assert set(d.sites_test.tolist()) == {1, 3, 8, 9, 11, 12, 17, 19, 23}
    assert not set(d.sites.tolist()) & set(d.sites_test.tolist())
    assert torch.cat([d.y, d.y_test]).bincount().tolist() == [
        1722,
        1544,
        1406,
        1777,
        1906,
        1944,
    ]


@pytest.mark.long
@needs_files
def test_the_writers_of_mnist_are_its_natural_sites() -> None:
    d = load("mnist")
    assert d.x.shape == (60000, 1, 28, 28) and d.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert d.sites is not None
    parts = Natural().split(d.y.numpy(), 0, np.random.default_rng(0), d.sites.numpy())
    sizes = [len(part) for part in parts]
    assert (len(sizes), min(sizes), max(sizes), sum(sizes)) == (539, 19, 131, 60000)
