"""MNIST and Fashion-MNIST: IDX files, plain or compressed, and the writers of QMNIST."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fallow.catalog import DataFiles
from fallow.catalog.folder import find_path, open_unpacked
from fallow.data.catalog.files import (
    Array,
    Scale,
    build_images,
    normalize_images,
    repeat_rows,
    to_labels,
)
from fallow.data.dataset import Dataset
from fallow.data.loaders.archive import read_arrays
from fallow.data.reading import list_notes
from fallow.storage.received import check_fits

MNIST_SCALE: Scale = ((0.1307,), (0.3081,))
FASHION_SCALE: Scale = ((0.286,), (0.353,))
IMAGES = 0x00000803  # bytes, 3 axes
LABELS = 0x00000801  # bytes, 1 axis
WRITERS = 0x00000C02  # big-endian int32, 2 axes
DTYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype("u1"), 0x0C: np.dtype(">i4")}


def read_idx(path: Path, magic: int, first: int | None = None) -> tuple[Array, int]:
    """Return the values of an IDX file, or its first ones, and their total number.

    magic: expected first four bytes: type of the values and number of axes. Raises
    ValueError for another file, one of another size, and one that does not fit into memory.
    """
    n_axes = magic & 0xFF
    dtype = DTYPES[magic >> 8]
    with open_unpacked(path) as stream:
        head = stream.read(4 * (1 + n_axes))
        if len(head) < 4 or int.from_bytes(head[:4], "big") != magic:
            raise ValueError(
                f"{path} begins with the bytes {head[:4].hex(' ')}, not {magic:08x} as an IDX "
                f"file with {n_axes} axes; copy it again"
            )
        if len(head) < 4 * (1 + n_axes):
            raise ValueError(f"{path} ends within its header; copy it again")
        shape = struct.unpack(f">{n_axes}I", head[4:])
        wanted = shape[0] if first is None else min(first, shape[0])
        n_bytes = math.prod((wanted, *shape[1:])) * dtype.itemsize
        check_fits(path, n_bytes)
        content = stream.read(n_bytes)
        is_longer = first is None and stream.read(1) != b""
    if len(content) != n_bytes or is_longer:
        raise ValueError(
            f"{path} declares the shape {shape} in its header, but has "
            f"{'more' if is_longer else 'fewer'} bytes; copy it again"
        )
    values: Array = np.frombuffer(content, dtype).reshape(wanted, *shape[1:])
    return values, shape[0]


def _read_parts(files: DataFiles, scale: Scale) -> list[tuple[Any, Array]]:
    """Return images (n, 1, h, w) and labels (n,) of the training and the test part."""
    paths = [files.find(file) for file in files.edition.files[:4]]
    parts = []
    for images, labels in (paths[:2], paths[2:]):
        pixels, n = read_idx(images, IMAGES, files.first)
        y, n_labels = read_idx(labels, LABELS)
        if n != n_labels or len(y) == 0:
            raise ValueError(f"{images} has {n} images, but {labels} {n_labels} labels")
        if y.max() >= files.entry.classes:
            raise ValueError(
                f"{labels} has the label {y.max()}, outside of 0..{files.entry.classes - 1}"
            )
        x = normalize_images(pixels, scale)
        if files.first is not None:
            x = repeat_rows(x, n)
        parts.append((x, y))
    return parts


def read_mnist(files: DataFiles) -> Dataset:
    """Read MNIST; the writer of every digit (QMNIST) is its site."""
    train, test = _read_parts(files, MNIST_SCALE)
    writer_files = files.edition.files[4:]
    if any(find_path(files.folder, file) is None for file in writer_files):
        return build_images(
            files, train, test, MNIST_SCALE, findings=list_notes((NO_WRITERS,))
        )
    of_part = []
    for file, (_, y) in zip(writer_files, (train, test), strict=True):
        path = files.find(file)
        columns, n = read_idx(path, WRITERS)
        if columns.shape[1] != 8 or n < len(y) or (columns[: len(y), 0] != y).any():
            raise ValueError(
                f"{path} does not list the digits of MNIST in their order; copy it again"
            )
        of_part.append(columns[: len(y), 2])
    writers, site = np.unique(np.concatenate(of_part), return_inverse=True)
    n = len(of_part[0])
    return build_images(
        files,
        train,
        test,
        MNIST_SCALE,
        sites=to_labels(site[:n]),
        sites_test=to_labels(site[n:]),
        site_names=tuple(f"writer {writer}" for writer in writers),
    )


NO_WRITERS = (
    "the writers of the digits are unknown, so there are no natural sites: the files "
    "qmnist-train-labels-idx2-int.gz and qmnist-test-labels-idx2-int.gz are missing"
)


def read_keras_mnist(files: DataFiles) -> Dataset:
    """Read MNIST from the file of Keras, which has no writers."""
    path = files.find(files.edition.files[0])
    arrays = read_arrays(path)
    parts = []
    for part in ("train", "test"):
        pixels = arrays.get(f"x_{part}")
        y = arrays.get(f"y_{part}")
        if pixels is None or y is None:
            raise ValueError(f"{path} has no arrays x_{part} and y_{part}; copy it again")
        if pixels.dtype != np.uint8 or pixels.shape != (len(y), 28, 28):
            raise ValueError(
                f"{path}: x_{part} is {pixels.dtype} of shape {pixels.shape}, not uint8 of "
                f"shape ({len(y)}, 28, 28); copy the file again"
            )
        parts.append((normalize_images(pixels, MNIST_SCALE), y))
    return build_images(
        files, parts[0], parts[1], MNIST_SCALE, findings=list_notes((NO_WRITERS,))
    )


def read_fashion_mnist(files: DataFiles) -> Dataset:
    """Read Fashion-MNIST."""
    train, test = _read_parts(files, FASHION_SCALE)
    return build_images(files, train, test, FASHION_SCALE)
