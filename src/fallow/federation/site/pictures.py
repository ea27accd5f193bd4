"""A site's own folder of images: ``class/*`` and ``unlabelled/*``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from fallow.data.optional import optional
from fallow.data.own_images import COLOUR, GREY, UNLABELLED_FOLDER


@final
@dataclass(frozen=True)
class Pictures:
    """x: (n, channels, height, width) float32 in [-1, 1]; labels: "" = unlabelled."""

    x: Tensor
    labels: tuple[str, ...]
    files: tuple[Path, ...]


def read_pictures(folder: Path, channels: int | None = None) -> Pictures:
    """Every image below the folder, in the order of its name; hidden files are passed over.

    channels: 1 or 3, as agreed; None: one where every image is grey.  Raises ValueError that names
    the file when one cannot be read or has another size than the others.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in class/*")
    files = tuple(file for file in sorted(folder.glob("*/*"))
                  if file.is_file() and not _is_hidden(file, folder))  # fmt: skip
    if not files:
        raise ValueError(
            f"{folder} holds no images; put them in a folder for each class and in "
            f"{UNLABELLED_FOLDER}/"
        )
    loaded = [_pixels(file, channels) for file in files]
    channels = channels or (1 if all(p.shape[0] == 1 for p in loaded) else 3)
    for file, pixels in zip(files, loaded, strict=True):
        if pixels.shape[1:] != loaded[0].shape[1:]:
            raise ValueError(
                f"{file} has {_size(pixels)} pixels and {files[0].name} has {_size(loaded[0])}; "
                "bring all images to one size"
            )
    stack = torch.stack([pixels.expand(channels, -1, -1) for pixels in loaded])
    labels = tuple("" if f.parent.name == UNLABELLED_FOLDER else f.parent.name for f in files)
    return Pictures((stack / 255 - 0.5) / 0.5, labels, files)


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _pixels(file: Path, channels: int | None) -> Tensor:
    """(channels, h, w) float32 from 0 to 255; grey images have one channel."""
    image = optional("PIL.Image", "pillow", "reading a folder of images")
    try:
        with image.open(file) as opened:
            if opened.mode not in (*GREY, *COLOUR):
                raise ValueError(f"its kind of pixel, {opened.mode}, has more than 8 bits")
            is_grey = opened.mode in GREY
            if channels == 1 and not is_grey:
                raise ValueError("it has colours, and the agreed images are grey")
            pixels = torch.from_numpy(np.array(opened.convert("L" if is_grey else "RGB")))
    except (OSError, ValueError, SyntaxError) as error:  # pillow's errors for broken files
        raise ValueError(f"{file} could not be read as an image: {error}") from error
    return pixels.float()[None] if is_grey else pixels.float().permute(2, 0, 1)


def _size(pixels: Tensor) -> str:
    return f"{pixels.shape[2]} x {pixels.shape[1]}"
