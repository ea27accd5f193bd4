"""CINIC-10 (Darlow et al., 2018) from its unpacked folder of images: ``part/class/*.png``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fallow.core.refusal import explain_errors
from fallow.data.catalog.files import Array, normalize_images, to_labels
from fallow.data.dataset import Dataset, drop_leaks
from fallow.data.loaders.pixels import ImageError, open_image

FOLDER = "cinic-10"
SIDE = 32  # pixels
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
    """Read the training and validation parts together, and the test part, sorted by class
    and name.

    Copies of training images among the test images are left out.
    """
    x, y = _part(folder, ("train", "valid"))
    x_test, y_test = _part(folder, ("test",))
    dataset = Dataset(
        name="cinic10",
        x=normalize_images(x, CINIC10_SCALE),
        y=to_labels(y),
        x_test=normalize_images(x_test, CINIC10_SCALE),
        y_test=to_labels(y_test),
        classes=CLASSES,
    )
    return drop_leaks(dataset)


def _part(folder: Path | None, parts: tuple[str, ...]) -> tuple[Array, Array]:
    """Return pixels (n, 32, 32, 3) and classes (n,) of some of the parts."""
    files: list[Path] = []
    classes: list[int] = []
    for part in parts:
        for c, name in enumerate(CLASSES):
            of_class = _files(folder, f"{part}/{name}")
            files += of_class
            classes += [c] * len(of_class)
    pixels = np.empty((len(files), SIDE, SIDE, 3), dtype=np.uint8)
    for row, file in enumerate(files):
        pixels[row] = _pixels(file)
    return pixels, np.array(classes, dtype=np.int64)


def _files(folder: Path | None, inside: str) -> list[Path]:
    where = "no data folder is set"
    if folder is not None:
        result = sorted((folder / FOLDER / inside).glob("*.png"))
        if result:
            return result
        where = f"{folder / FOLDER / inside} has none"
    raise ValueError(
        f"the .png files of CINIC-10 are needed, and {where}; set --data-dir or "
        f"FALLOW_DATA to the folder with {FOLDER}/train, valid and test"
    )


def _pixels(file: Path) -> Array:
    """Return pixels (32, 32, 3) uint8; the few gray images have three equal channels."""
    with (
        explain_errors(f"{file} could not be read as an image: ", of=ImageError),
        open_image(file, "reading CINIC-10") as opened,
    ):
        pixels = np.asarray(opened.convert("RGB"))
    if pixels.shape != (SIDE, SIDE, 3):
        height, width = pixels.shape[:2]
        raise ValueError(
            f"{file} has {width} x {height} pixels, not {SIDE} x {SIDE}, so it is not "
            "from CINIC-10"
        )
    return pixels
