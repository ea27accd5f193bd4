"""Readers of named datasets: scikit-learn's, and files of a data folder (never pickles)."""

from __future__ import annotations

import lzma
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.optional import import_optional
from fallow.data.dataset import Dataset, drop_leaks, repeat_row
from fallow.data.loaders.archive import load_arrays, read_header
from fallow.data.loaders.scaling import PixelScale
from fallow.data.partition.shares import hold_out
from fallow.data.reading import list_notes
from fallow.data.tables import fill_missing, standardize
from fallow.storage.received import check_fits

Array = npt.NDArray[Any]
Reader = Callable[[Path | None], Dataset]
"""Reader of a dataset in the data folder."""

Scale = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation by channel of pixels / 255."""
MNIST_SCALE = ((0.1307,), (0.3081,))
FASHION_SCALE = ((0.286,), (0.353,))
CIFAR10_SCALE = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
SMALL = (2000, 500)
"""Numbers of training and test images of the small CIFAR-10."""
HAR_TEST_PERSONS = (1, 3, 8, 9, 11, 12, 17, 19, 23)  # the official ones, counted from 0


def read_array(folder: Path | None, file: str) -> Array:
    """Return the array of a .npy.xz file."""
    with unpacking(find_file(folder, file)) as path:
        with lzma.open(path) as stream:
            shape, dtype = _read_checked_header(stream, path)
            check_fits(path, math.prod(shape) * dtype.itemsize)
        with lzma.open(path) as stream:
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def read_first(folder: Path | None, file: str, n: int) -> tuple[Array, int]:
    """Return the first ``n`` examples of a .npy.xz file, and their total number.

    The rest is not decompressed.
    """
    with unpacking(find_file(folder, file)) as path, lzma.open(path) as stream:
        shape, dtype = _read_checked_header(stream, path)
        row_shape = shape[1:]
        wanted = min(n, shape[0])
        n_bytes = wanted * math.prod(row_shape) * dtype.itemsize
        check_fits(path, n_bytes)
        raw = stream.read(n_bytes)
    first: Array = np.frombuffer(raw, dtype).reshape(wanted, *row_shape).copy()
    return first, shape[0]


def _read_checked_header(
    stream: IO[bytes], path: Path
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of an array of numbers that is stored by rows.

    Raises ValueError for any other: -1 would read everything.
    """
    shape, is_by_columns, dtype = read_header(stream)
    if is_by_columns or dtype.hasobject or not shape or min(shape) < 0:
        raise ValueError(
            f"{path} is damaged: its array has the shape {shape} and the type {dtype}"
        )
    return shape, dtype


def read_arrays(folder: Path | None, file: str) -> dict[str, Array]:
    """Return the arrays of a .npz file by name."""
    with unpacking(find_file(folder, file)) as path:
        return load_arrays(path)


@contextmanager
def unpacking(path: Path) -> Iterator[Path]:
    """Convert errors of a truncated or damaged file to a ValueError."""
    try:
        yield path
    except (EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"the file {path.name} in {path.parent} is incomplete or damaged "
            f"({path.stat().st_size:,} bytes: {error}); copy it there again"
        ) from error


def find_file(folder: Path | None, file: str) -> Path:
    """Return the path of a file in the data folder, or raise ValueError with a remedy."""
    where = "and no data folder is set"
    if folder is not None:
        path = folder / file
        if path.is_file():
            return path
        where = f"which is not in {folder}"
    raise ValueError(
        f"the file {file} is needed, {where}; set --data-dir or FALLOW_DATA to its folder"
    )


def normalize_images(pixels: Array, scale: Scale) -> Tensor:
    """uint8 (n, h, w) or (n, h, w, c) -> float32 (n, c, h, w), (pixel / 255 - mean) / std."""
    if pixels.ndim == 3:
        pixels = pixels[..., None]  # one channel: (n, h, w, 1)
    channels = pixels.transpose(0, 3, 1, 2)  # (n, c, h, w)
    mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in scale)
    x = torch.from_numpy(np.ascontiguousarray(channels)).float()
    return x.div_(255).sub_(mean).div_(std)  # in place: CIFAR-10 is 0.7 GB


def pixel_scale(scale: Scale) -> PixelScale:
    """Return the normalization of `normalize_images`."""
    return PixelScale(255, *scale)


def repeat_rows(x: Tensor, n: int) -> Tensor:
    """Repeat the examples: (k, ...) -> (n, ...).  A single example is not copied."""
    if len(x) == 1:
        return repeat_row(x, n)
    return x[torch.arange(n) % len(x)]


def to_labels(y: Array) -> Tensor:
    return torch.from_numpy(y.astype(np.int64))


def read_mnist(folder: Path | None) -> Dataset:
    """Read MNIST; the writer of every digit (QMNIST) is its site."""
    z = read_arrays(folder, "mnist.npz")
    writer_of_row = np.concatenate([z["writer_train"], z["writer_test"]])
    writers, site = np.unique(writer_of_row, return_inverse=True)
    n = len(z["x_train"])
    dataset = Dataset(
        name="mnist",
        scale=pixel_scale(MNIST_SCALE),
        x=normalize_images(z["x_train"], MNIST_SCALE),
        y=to_labels(z["y_train"]),
        x_test=normalize_images(z["x_test"], MNIST_SCALE),
        y_test=to_labels(z["y_test"]),
        classes=tuple("0123456789"),
        sites=to_labels(site[:n]),
        sites_test=to_labels(site[n:]),
        site_names=tuple(f"writer {writer}" for writer in writers),
    )
    return drop_leaks(dataset)


def read_fashion_mnist(folder: Path | None, first: int | None = None) -> Dataset:
    """Read Fashion-MNIST; first: see `_read_images`."""
    z = read_arrays(folder, "fashion_mnist_labels.npz")
    x = _read_images(folder, ["fashion_mnist_images.npy.xz"], FASHION_SCALE, first)
    n = len(z["y_train"])
    dataset = Dataset(
        name="fashion_mnist",
        x=x[:n],
        y=to_labels(z["y_train"]),
        x_test=x[n:],
        y_test=to_labels(z["y_test"]),
        classes=to_names(z["class_names"]),
    )
    if first is None:
        dataset = drop_leaks(dataset)
    return dataset


def read_cifar10(folder: Path | None, first: int | None = None) -> Dataset:
    """Read CIFAR-10: training images 0..19999, and the other 30,000 if their file is
    present; first: see `_read_images`.
    """
    z = read_arrays(folder, "cifar10_labels.npz")
    train = ["cifar10_train_a.npy.xz"]
    notes: tuple[str, ...] = ()
    if folder is not None and (folder / "cifar10_train_b.npy.xz").is_file():
        train.append("cifar10_train_b.npy.xz")
    else:
        notes = ("20,000 of the 50,000 training images: cifar10_train_b.npy.xz is missing",)
    x = _read_images(folder, train, CIFAR10_SCALE, first)
    dataset = Dataset(
        name="cifar10",
        x=x,
        y=to_labels(z["y_train"][: len(x)]),
        scale=pixel_scale(CIFAR10_SCALE),
        x_test=_read_images(folder, ["cifar10_test.npy.xz"], CIFAR10_SCALE, first),
        y_test=to_labels(z["y_test"]),
        classes=to_names(z["class_names"]),
        findings=list_notes(notes),
    )
    if first is None:
        dataset = drop_leaks(dataset)
    return dataset


def read_cifar10_small(folder: Path | None) -> Dataset:
    """Read the first `SMALL` training and test images of CIFAR-10, and decompress no others."""
    z = read_arrays(folder, "cifar10_labels.npz")
    train, test = SMALL
    x, _ = read_first(folder, "cifar10_train_a.npy.xz", train)
    x_test, _ = read_first(folder, "cifar10_test.npy.xz", test)
    return drop_leaks(
        Dataset(
            name="cifar10_small",
            scale=pixel_scale(CIFAR10_SCALE),
            x=normalize_images(x, CIFAR10_SCALE),
            y=to_labels(z["y_train"][: len(x)]),
            x_test=normalize_images(x_test, CIFAR10_SCALE),
            y_test=to_labels(z["y_test"][: len(x_test)]),
            classes=to_names(z["class_names"]),
        )
    )


def _read_images(
    folder: Path | None, files: list[str], scale: Scale, first: int | None
) -> Tensor:
    """Return the images of files, one file after the other: (n, c, h, w).

    first: the number of images to read, which are repeated in place of all.
    """
    if first is None:
        parts = [normalize_images(read_array(folder, file), scale) for file in files]
        return torch.cat(parts)
    heads = [read_first(folder, file, first) for file in files]
    total = sum(rows for _, rows in heads)
    return repeat_rows(normalize_images(heads[0][0], scale), total)


def read_har(folder: Path | None) -> Dataset:
    """Read human activity: 30 persons are the sites; the 9 official test persons are the
    test set.
    """
    z = read_arrays(folder, "har_features.npz")
    x = torch.from_numpy(z["X"])
    y = to_labels(z["y"])
    person = to_labels(z["client"])
    is_test = torch.isin(person, torch.tensor(HAR_TEST_PERSONS))
    dataset = Dataset(
        name="har",
        x=x[~is_test],
        y=y[~is_test],
        x_test=x[is_test],
        y_test=y[is_test],
        classes=to_names(z["class_names"]),
        sites=person[~is_test],
        sites_test=person[is_test],
        site_names=tuple(f"person {number}" for number in range(30)),
        columns=to_names(z["feature_names"]),
    )
    return standardize(drop_leaks(dataset))


def read_heart(folder: Path | None) -> Dataset:
    """Read heart disease (yes or no) in 4 hospitals; for missing values see
    ``fill_missing``.
    """
    z = read_arrays(folder, "heart_disease.npz")
    sick = (z["y"] > 0).astype(np.int64)
    return standardize(
        table_with_test_rows(
            "heart",
            z,
            sick,
            classes=("healthy", "disease"),
            site_names=to_names(z["client_names"]),
        )
    )


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


def to_names(array: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, array))


DIGITS_MEAN = 0.3053  # of all pixels / 16
DIGITS_STD = 0.3760
DIGITS_SCALE = PixelScale(16, (DIGITS_MEAN,), (DIGITS_STD,))


def bundled_reader(name: str) -> Reader:
    """Return a reader of scikit-learn's ``load_<name>``; the 20 % test set is fixed by the
    name.
    """

    def read(folder: Path | None) -> Dataset:
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

    return read
