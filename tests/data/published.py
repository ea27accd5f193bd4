"""Small versions of public image datasets, as their publishers distribute them."""

from __future__ import annotations

import gzip
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from fallow.catalog.entries import CIFAR10_BATCHES

Array = np.ndarray[Any, Any]
TRAIN = 90
TEST = 30
CODES = {"u1": 0x08, ">i4": 0x0C}


def draw_pixels(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encode_idx(values: Array, dtype: str = "u1") -> bytes:
    """Return an IDX file: type and number of axes, sizes, values."""
    head = struct.pack(">BBBB", 0, 0, CODES[dtype], values.ndim)
    sizes = struct.pack(f">{values.ndim}I", *values.shape)
    return head + sizes + values.astype(dtype).tobytes()


def write_gzip(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0))


def write_idx_images(
    folder: Path, train: tuple[Array, Array], test: tuple[Array, Array]
) -> Path:
    """Write images (n, 28, 28) and labels (n,) in the layout of MNIST."""
    for part, (images, labels) in (("train", train), ("t10k", test)):
        write_gzip(folder / f"{part}-images-idx3-ubyte.gz", encode_idx(images))
        write_gzip(folder / f"{part}-labels-idx1-ubyte.gz", encode_idx(labels))
    return folder


def write_writers(folder: Path, part: str, y: Array, writer: Array) -> None:
    """Write a label file of QMNIST: class, collection, writer, and five others."""
    columns = np.zeros((len(y), 8), dtype=np.int64)
    columns[:, 0] = y
    columns[:, 2] = writer
    write_gzip(folder / f"qmnist-{part}-labels-idx2-int.gz", encode_idx(columns, ">i4"))


def write_fashion_mnist(folder: Path, train: int = TRAIN, test: int = TEST) -> Path:
    pixels = draw_pixels(train + test, 28, 28)
    labels = np.arange(train + test) % 10
    write_idx_images(
        folder / "fashion_mnist",
        (pixels[:train], labels[:train]),
        (pixels[train:], labels[train:]),
    )
    return folder


def encode_cifar10(pixels: Array, labels: Array) -> bytes:
    """Return records of images (n, 32, 32, 3): a label, then red, green and blue planes."""
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return np.concatenate([labels[:, None].astype(np.uint8), planes], axis=1).tobytes()


def cifar10_parts(train: int = TRAIN, test: int = TEST) -> dict[str, bytes]:
    """Return the content of the six files; training images are the first ``train`` of all."""
    pixels = draw_pixels(train + test, 32, 32, 3)
    labels = np.concatenate([np.arange(train) % 10, np.arange(test) % 10])
    bounds = [*np.linspace(0, train, 6).astype(int), train + test]
    contents = {}
    for name, begin, end in zip(CIFAR10_BATCHES, bounds[:-1], bounds[1:], strict=True):
        contents[name] = encode_cifar10(pixels[begin:end], labels[begin:end])
    return contents


def write_cifar10(folder: Path, train: int = TRAIN, test: int = TEST) -> Path:
    """Write the unpacked binary version of a small CIFAR-10."""
    for name, content in cifar10_parts(train, test).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def pack_cifar10(folder: Path) -> Path:
    """Replace the folder of `write_cifar10` by its archive."""
    inside = folder / "cifar-10-batches-bin"
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(inside, arcname=inside.name)
    for file in inside.iterdir():
        file.unlink()
    inside.rmdir()
    return folder
