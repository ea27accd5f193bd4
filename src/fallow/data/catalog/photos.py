"""CIFAR: the binary version, folders of images, and Parquet; no pickles."""

from __future__ import annotations

import dataclasses
from io import BytesIO
from pathlib import Path

import numpy as np

from fallow.catalog import DataFiles
from fallow.catalog.entries import SMALL
from fallow.core.optional import import_optional
from fallow.core.refusal import explain_errors
from fallow.data.catalog.files import (
    Array,
    Scale,
    build_images,
    normalize_images,
    repeat_rows,
)
from fallow.data.dataset import Dataset
from fallow.data.loaders.pixels import ImageError, open_image
from fallow.storage.received import check_fits

CIFAR10_SCALE: Scale = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
SIDE = 32
PIXELS = 3 * SIDE * SIDE  # bytes of red, green and blue planes


def read_cifar10(files: DataFiles) -> Dataset:
    """Read CIFAR-10 from the records of its binary version."""
    return read_records(files, CIFAR10_SCALE)


def read_cifar10_small(files: DataFiles) -> Dataset:
    """Read the first `SMALL` training and test images of CIFAR-10, and decode no others."""
    small = read_records(files, CIFAR10_SCALE, limit=max(SMALL))
    train, test = SMALL
    return dataclasses.replace(
        small,
        x=small.x[:train],
        y=small.y[:train],
        x_test=small.x_test[:test],
        y_test=small.y_test[:test],
    )


def read_records(
    files: DataFiles,
    scale: Scale,
    *,
    n_labels: int = 1,
    limit: int | None = None,
    class_names: tuple[str, ...] = (),
) -> Dataset:
    """Read the binary version of CIFAR, in which the last member has the test images.

    n_labels: labels of a record, of which the last one is used. limit: number of records of
    each member to read; None: all. class_names: default, those of the catalog.
    """
    file = files.edition.files[0]
    record = n_labels + PIXELS
    n_bytes = -1 if limit is None else limit * record
    contents = files.read_members(file, n_bytes)
    parts = [_split(contents[name], record, name, files) for name in file.members]
    y_train = np.concatenate([y for _, y in parts[:-1]])
    pixels_train = [pixels for pixels, _ in parts[:-1]]
    pixels_test, y_test = parts[-1]
    first = files.first
    if first is None:
        x = normalize_images(np.concatenate(pixels_train), scale)
        x_test = normalize_images(pixels_test, scale)
    else:
        x = repeat_rows(normalize_images(pixels_train[0][:first], scale), len(y_train))
        x_test = repeat_rows(normalize_images(pixels_test[:first], scale), len(y_test))
    return build_images(files, (x, y_train), (x_test, y_test), scale, class_names)


def _split(content: bytes, record: int, name: str, files: DataFiles) -> tuple[Array, Array]:
    """Return pixels (n, 32, 32, 3) and labels (n,) of the records of a file."""
    if not content or len(content) % record:
        raise ValueError(
            f"{name} has {len(content):,} bytes, which is not a multiple of {record:,}, the "
            f"size of a record; unpack {files.edition.files[0].name} again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    y = records[:, -PIXELS - 1]
    if y.max() >= files.entry.classes:
        raise ValueError(
            f"{name} has the label {y.max()}, outside of 0..{files.entry.classes - 1}, so "
            f"it is not of {files.entry.name}"
        )
    planes = records[:, -PIXELS:].reshape(-1, 3, SIDE, SIDE)  # red, green, blue
    return planes.transpose(0, 2, 3, 1), y


def read_folders(files: DataFiles) -> Dataset:
    """Read CIFAR-10 from folders of images ``train/class/*.png`` and ``test/class/*.png``."""
    train, test = (files.find(file) for file in files.edition.files)
    x, y = read_class_folders([train], files.entry.class_names)
    x_test, y_test = read_class_folders([test], files.entry.class_names)
    return build_images(
        files,
        (normalize_images(x, CIFAR10_SCALE), y),
        (normalize_images(x_test, CIFAR10_SCALE), y_test),
        CIFAR10_SCALE,
    )


def read_class_folders(
    folders: list[Path], class_names: tuple[str, ...]
) -> tuple[Array, Array]:
    """Return pixels (n, 32, 32, 3) and labels (n,) of folders ``class/*.png``.

    Images are sorted by folder, class and name. Raises ValueError for a class without images.
    """
    images: list[Path] = []
    labels: list[int] = []
    for folder in folders:
        for label, name in enumerate(class_names):
            of_class = sorted((folder / name).glob("*.png"))
            if not of_class:
                raise ValueError(f"{folder / name} has no .png files; unpack them there")
            images += of_class
            labels += [label] * len(of_class)
    check_fits(folders[0], len(images) * PIXELS)
    pixels = np.empty((len(images), SIDE, SIDE, 3), dtype=np.uint8)
    for row, image in enumerate(images):
        pixels[row] = _decode(image, str(image))
    return pixels, np.array(labels, dtype=np.int64)


def read_parquet(files: DataFiles) -> Dataset:
    """Read CIFAR-10 from Parquet with the columns ``img`` (``bytes``) and ``label``."""
    parts = []
    for file in files.edition.files:
        pixels, y = _read_parquet(files.find(file), files.entry.classes)
        parts.append((normalize_images(pixels, CIFAR10_SCALE), y))
    return build_images(files, parts[0], parts[1], CIFAR10_SCALE)


def _read_parquet(path: Path, classes: int) -> tuple[Array, Array]:
    """Return pixels (n, 32, 32, 3) and labels (n,) of a Parquet file."""
    parquet = import_optional("pyarrow.parquet", "pyarrow", f"reading {path.name}")
    arrow = import_optional("pyarrow", "pyarrow", f"reading {path.name}")
    damaged = (arrow.ArrowException, OSError, KeyError, TypeError, ValueError)
    with (
        explain_errors(
            f"{path} cannot be read as Parquet with the columns img.bytes and label: ",
            of=damaged,
        ),
        parquet.ParquetFile(path) as table,
    ):
        n = table.metadata.num_rows
        check_fits(path, n * PIXELS)
        pixels = np.empty((n, SIDE, SIDE, 3), dtype=np.uint8)
        labels = np.empty(n, dtype=np.int64)
        row = 0
        for batch in table.iter_batches(batch_size=1024, columns=["img", "label"]):
            for image, label in zip(
                batch["img"].to_pylist(), batch["label"].to_pylist(), strict=True
            ):
                pixels[row] = _decode(BytesIO(image["bytes"]), f"row {row + 1}")
                labels[row] = label
                row += 1
    if row != n or n == 0 or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{path} has {row} images with labels from {labels.min(initial=0)} to "
            f"{labels.max(initial=0)}, not labels of 0..{classes - 1}; download it again"
        )
    return pixels, labels


def _decode(source: Path | BytesIO, name: str) -> Array:
    """Return pixels (32, 32, 3) uint8; gray images get three equal channels."""
    with (
        explain_errors(f"{name} could not be read as an image: ", of=ImageError),
        open_image(source, "reading a public dataset") as opened,
    ):
        width, height = opened.size
        if (width, height) == (SIDE, SIDE):
            pixels: Array = np.asarray(opened.convert("RGB"))
            return pixels
    raise ValueError(f"{name} has {width} x {height} pixels, not {SIDE} x {SIDE}")
