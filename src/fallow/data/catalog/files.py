"""Readers of named datasets: scikit-learn's, MedMNIST, tables; shared parts of all readers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.catalog import DataFiles
from fallow.core.optional import import_optional
from fallow.data.dataset import Dataset, drop_leaks, repeat_row
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.scaling import PixelScale
from fallow.data.partition.shares import hold_out
from fallow.data.reading import list_notes
from fallow.data.tables import fill_missing, standardize
from fallow.storage.received import decode_text

Array = npt.NDArray[Any]
Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation by channel of pixels / 255."""


def normalize_images(pixels: Array, scale: Scale) -> Tensor:
    """uint8 (n, h, w) or (n, h, w, c) -> float32 (n, c, h, w), (pixel / 255 - mean) / std."""
    if pixels.ndim == 3:
        pixels = pixels[..., None]  # one channel: (n, h, w, 1)
    channels = pixels.transpose(0, 3, 1, 2)  # (n, c, h, w)
    mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in scale)
    x = torch.from_numpy(np.require(channels, requirements=["C", "W"])).float()
    return x.div_(255).sub_(mean).div_(std)  # in place: CIFAR-10 is 0.7 GB


def repeat_rows(x: Tensor, n: int) -> Tensor:
    """Repeat the examples: (k, ...) -> (n, ...).  A single example is not copied."""
    if len(x) == 1:
        return repeat_row(x, n)
    return x[torch.arange(n) % len(x)]


def to_labels(y: Array) -> Tensor:
    return torch.from_numpy(y.astype(np.int64))


def to_names(array: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, array))


def build_images(
    files: DataFiles,
    train: tuple[Tensor, Array],
    test: tuple[Tensor, Array],
    scale: Scale,
    class_names: tuple[str, ...] = (),
    **fields: Any,
) -> Dataset:
    """Create a dataset of images; test images that are training images are left out.

    train, test: images (n, c, h, w) and labels (n,). scale: normalization of the images.
    class_names: default, those of the catalog. fields: further fields of the dataset.
    """
    dataset = Dataset(
        name=files.entry.name,
        x=train[0],
        y=to_labels(train[1]),
        x_test=test[0],
        y_test=to_labels(test[1]),
        classes=class_names or files.entry.class_names,
        scale=PixelScale(255, *scale),
        **fields,
    )
    if files.first is None:
        dataset = drop_leaks(dataset)
    return dataset


MEDMNIST_SCALE: Scale = ((0.5,), (0.5,))  # of the package medmnist


def read_medmnist(files: DataFiles) -> Dataset:
    """Read a dataset of MedMNIST; its validation images are training images."""
    path = files.find(files.edition.files[0])
    arrays = read_arrays(path)
    parts: dict[str, tuple[Array, Array]] = {}
    for part in ("train", "val", "test"):
        names = (f"{part}_images", f"{part}_labels")
        absent = [name for name in names if name not in arrays]
        if absent:
            raise ValueError(f"{path} has no array {absent[0]!r}, so it is not of MedMNIST")
        images, labels = (arrays[name] for name in names)
        _check_medmnist(path, part, images, labels, files)
        parts[part] = (images, labels[:, 0])
    x = np.concatenate([parts["train"][0], parts["val"][0]])
    y = np.concatenate([parts["train"][1], parts["val"][1]])
    x_test, y_test = parts["test"]
    count = len(parts["val"][1])
    sentence = f"{count:,} validation images were added to the training images"
    return build_images(
        files,
        (normalize_images(x, MEDMNIST_SCALE), y),
        (normalize_images(x_test, MEDMNIST_SCALE), y_test),
        MEDMNIST_SCALE,
        findings=list_notes((sentence,)),
    )


def _check_medmnist(
    path: Path, part: str, images: Array, labels: Array, files: DataFiles
) -> None:
    channels, height, width = files.entry.shape
    shape: tuple[int, ...] = (len(images), height, width)
    if channels > 1:
        shape = (*shape, channels)
    are_images = images.dtype == np.uint8 and images.shape == shape
    are_labels = labels.dtype.kind == "u" and labels.shape == (len(images), 1)
    if not are_images or not are_labels:
        raise ValueError(
            f"{path}: {part}_images are {images.dtype} of shape {images.shape} and "
            f"{part}_labels {labels.dtype} of shape {labels.shape}, not images "
            f"{height} x {width} of uint8 with {channels} channels and one label each; "
            "download the 28 x 28 version"
        )
    if len(labels) and labels.max() >= files.entry.classes:
        raise ValueError(
            f"{path} has the label {labels.max()}, outside of 0..{files.entry.classes - 1}"
        )


HEART_COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal"),
)
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va_long_beach")
TEXT_LIMIT = 1 << 20


def read_heart(files: DataFiles) -> Dataset:
    """Read heart disease (yes or no) in 4 hospitals; for missing values see
    ``fill_missing``.
    """
    (file,) = files.edition.files
    cells: list[list[float]] = []
    client: list[int] = []
    for hospital, member in enumerate(file.members):
        with files.open(file, member) as stream:
            text = decode_text(stream.read(TEXT_LIMIT))
        for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
            cells.append(_parse_heart(row, f"{member}: row {number}"))
            client.append(hospital)
    table = np.array(cells, dtype=np.float32)
    z = {
        "X": table[:, :-1],
        "client": np.array(client),
        "feature_names": np.array(HEART_COLUMNS),
    }
    sick = (table[:, -1] > 0).astype(np.int64)
    return standardize(
        table_with_test_rows(
            "heart", z, sick, classes=files.entry.class_names, site_names=HOSPITALS
        )
    )


def _parse_heart(row: list[str], where: str) -> list[float]:
    if len(row) != len(HEART_COLUMNS) + 1:
        raise ValueError(
            f"{where} has {len(row)} cells, not {len(HEART_COLUMNS) + 1}; copy the file again"
        )
    try:
        return [float("nan" if cell == "?" else cell) for cell in row]
    except ValueError as error:
        raise ValueError(
            f"{where} contains a text ({error}); copy the file again"
        ) from error


def table_with_test_rows(
    name: str,
    z: dict[str, Array],
    y: Array,
    classes: tuple[str, ...],
    site_names: tuple[str, ...],
) -> Dataset:
    """Return a table without official test examples, with a 20 % test set fixed by the
    name.
    """
    x = z["X"]
    if "feature_names" in z:
        columns = to_names(z["feature_names"])
    else:
        columns = tuple(f"x{c}" for c in range(x.shape[1]))
    train, test = hold_out(name, torch.from_numpy(x), y)
    x_train, x_test, columns, notes = fill_missing(x[train], x[test], columns)
    sites = None
    sites_test = None
    if "client" in z:
        sites = to_labels(z["client"][train])
        sites_test = to_labels(z["client"][test])
    return Dataset(
        name=name,
        x=torch.from_numpy(x_train),
        y=torch.from_numpy(y[train]),
        x_test=torch.from_numpy(x_test),
        y_test=torch.from_numpy(y[test]),
        classes=classes,
        columns=columns,
        site_names=site_names,
        sites=sites,
        sites_test=sites_test,
        findings=list_notes(notes),
    )


DIGITS_MEAN = 0.3053  # of all pixels / 16
DIGITS_STD = 0.3760
DIGITS_SCALE = PixelScale(16, (DIGITS_MEAN,), (DIGITS_STD,))


def read_bundled(files: DataFiles) -> Dataset:
    """Read scikit-learn's ``load_<name>``; the 20 % test set is fixed by the name."""
    name = files.entry.name
    sets = import_optional("sklearn.datasets", "scikit-learn", f"the data set {name}")
    table = getattr(sets, f"load_{name}")()
    x = torch.from_numpy(np.ascontiguousarray(table.data, dtype=np.float32))
    columns = to_names(table.feature_names)
    if "target_names" in table:
        classes = to_names(table.target_names)
        y = table.target.astype(np.int64)
    else:
        classes = ()
        y = table.target.astype(np.float32)
    if name == "digits":
        x = ((x / 16 - DIGITS_MEAN) / DIGITS_STD).reshape(-1, 1, 8, 8)
        columns = ()
    train, test = hold_out(name, x, y)
    dataset = Dataset(
        name=name,
        x=x[train],
        y=torch.from_numpy(y[train]),
        x_test=x[test],
        y_test=torch.from_numpy(y[test]),
        classes=classes,
        columns=columns,
        scale=DIGITS_SCALE if name == "digits" else None,
    )
    if classes and x.ndim == 2:  # not for regression
        return standardize(dataset)
    return dataset
