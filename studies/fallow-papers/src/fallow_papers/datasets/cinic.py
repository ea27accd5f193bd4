"""CINIC-10 (Darlow et al., 2018) from its unpacked folder of images: ``part/class/*.png``."""

from __future__ import annotations

from fallow.catalog import DataFiles
from fallow.data.catalog.files import build_images, normalize_images
from fallow.data.catalog.photos import read_class_folders
from fallow.data.dataset import Dataset

# mean and standard deviation by channel of pixels / 255
CINIC10_SCALE = ((0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587))


def read_cinic10(files: DataFiles) -> Dataset:
    """Read the training and validation parts together, and the test part, sorted by class
    and name.

    Copies of training images among the test images are left out.
    """
    folder = files.find(files.edition.files[0])
    names = files.entry.class_names
    x, y = read_class_folders([folder / "train", folder / "valid"], names)
    x_test, y_test = read_class_folders([folder / "test"], names)
    return build_images(
        files,
        (normalize_images(x, CINIC10_SCALE), y),
        (normalize_images(x_test, CINIC10_SCALE), y_test),
        CINIC10_SCALE,
    )
