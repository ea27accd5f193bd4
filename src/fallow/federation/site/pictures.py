"""A site's own folder of images: ``class/*`` and ``unlabelled/*``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from fallow.data.own.images import UNLABELLED_FOLDER, images_below, read_images


@final
@dataclass(frozen=True)
class Pictures:
    """x: (n, channels, height, width) float32 in [-1, 1]; labels: "" = unlabelled."""

    x: Tensor
    labels: tuple[str, ...]
    files: tuple[Path, ...]


def read_pictures(folder: Path, channels: int | None = None) -> Pictures:
    """Every image below the folder, in the order of its name, whatever its class, so that one may
    be moved into the folder of its class; hidden files are passed over.

    channels: 1 or 3, as agreed; None: one where every image is grey.  Raises ValueError that names
    the file when one cannot be read, has another size than the others or leads out of the folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in class/*")
    files = sorted(
        images_below(folder, "*/*"), key=lambda file: (file.name, file.parent.name)
    )
    if not files:
        raise ValueError(
            f"{folder} holds no images; put them in a folder for each class and in "
            f"{UNLABELLED_FOLDER}/"
        )
    for file in files:
        check_inside(file, folder)
    x = torch.from_numpy(read_images(files, channels))
    labels = tuple(
        "" if f.parent.name == UNLABELLED_FOLDER else f.parent.name for f in files
    )
    return Pictures(x, labels, tuple(files))


def check_inside(file: Path, folder: Path) -> None:
    """Raise ValueError where a name or a link leads out of the folder: who may write there could
    have any file of the machine shown on the labelling page."""
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"{file} leads to {file.resolve()}, which is not in {folder}: put the image itself "
            "there"
        )
