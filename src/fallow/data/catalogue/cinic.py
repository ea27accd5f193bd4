"""CINIC-10 (Darlow et al., 2018) from its unpacked folder of images: ``part/class/*.png``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fallow.data.catalogue.files import Array, images, labels
from fallow.data.dataset import Dataset, drop_leaks
from fallow.data.optional import import_optional

FOLDER, SIDE = "cinic-10", 32
CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
# mean and standard deviation by channel of pixels / 255
CINIC10_SCALE = ((0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587))


def read_cinic10(folder: Path | None) -> Dataset:
    """Its training and validation parts together, and its test part, in the order of class and
    name.  Copies of training images among the test images are left out."""
    x, y = _part(folder, ("train", "valid"))
    x_test, y_test = _part(folder, ("test",))
    return drop_leaks(
        Dataset(
            "cinic10",
            images(x, CINIC10_SCALE),
            labels(y),
            images(x_test, CINIC10_SCALE),
            labels(y_test),
            classes=CLASSES,
        )
    )[0]


def _part(folder: Path | None, parts: tuple[str, ...]) -> tuple[Array, Array]:
    """Pixels (n, 32, 32, 3) and classes (n,) of some of the parts."""
    found = [
        (file, c)
        for part in parts
        for c, name in enumerate(CLASSES)
        for file in _files(folder, f"{part}/{name}")
    ]
    pixels = np.empty((len(found), SIDE, SIDE, 3), dtype=np.uint8)
    for row, (file, _) in enumerate(found):
        pixels[row] = _pixels(file)
    return pixels, np.array([c for _, c in found], dtype=np.int64)


def _files(folder: Path | None, inside: str) -> list[Path]:
    found = sorted((folder / FOLDER / inside).glob("*.png")) if folder else []
    if not found:
        where = (
            f"{folder / FOLDER / inside} has none" if folder else "no data folder is given"
        )
        raise ValueError(
            f"the .png files of CINIC-10 are needed, and {where}; set --data-dir or FALLOW_DATA to "
            f"the folder that holds {FOLDER}/train, valid and test"
        )
    return found


def _pixels(file: Path) -> Array:
    """(32, 32, 3) uint8; the few grey images in three equal channels."""
    image = import_optional("PIL.Image", "pillow", "reading CINIC-10")
    try:
        with image.open(file) as opened:
            made = np.asarray(opened.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:  # pillow's errors for broken files
        raise ValueError(f"{file} could not be read as an image: {error}") from error
    if made.shape != (SIDE, SIDE, 3):
        raise ValueError(
            f"{file} has {made.shape[1]} x {made.shape[0]} pixels, not {SIDE} x {SIDE}; it is not "
            "CINIC-10's"
        )
    return made
