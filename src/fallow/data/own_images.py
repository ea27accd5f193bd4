"""Reading a folder of images: ``site/class/*`` and ``site/unlabelled/*``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.data.optional import optional

UNLABELLED_FOLDER = "unlabelled"
GREY, COLOUR = ("1", "L"), ("P", "LA", "RGB", "RGBA", "CMYK", "YCbCr")


@final
@dataclass(frozen=True)
class Images:
    x: npt.NDArray[np.float32]  # (n, channels, height, width), in [-1, 1]
    labels: tuple[str, ...]  # "" = unlabelled
    sites: tuple[str, ...]
    names: tuple[str, ...]  # site/class/file
    notes: tuple[str, ...]


def read_folder(folder: Path) -> Images:
    """Every image below the folder, in the order of its name; hidden files are passed over."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in site/class/*")
    files = sorted(
        file
        for file in folder.glob("*/*/*")
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    if not files:
        raise ValueError(f"{folder} holds no images; put them in site/class/* or site/unlabelled/*")
    loaded = [_pixels(file) for file in files]
    is_grey = all(pixels.ndim == 2 for pixels in loaded)
    size = loaded[0].shape[:2]
    for file, pixels in zip(files, loaded, strict=True):
        if pixels.shape[:2] != size:
            raise ValueError(
                f"{file} has {_size(pixels.shape)} pixels and {files[0].name} has "
                f"{_size(size)}; bring all images to one size"
            )
    if not is_grey:
        loaded = [np.stack([p] * 3, axis=2) if p.ndim == 2 else p for p in loaded]
    stack = np.stack(loaded)
    channels = stack[:, None] if is_grey else stack.transpose(0, 3, 1, 2)
    parts = [file.relative_to(folder).parts for file in files]
    return Images(
        ((channels / 255 - 0.5) / 0.5).astype(np.float32),
        tuple("" if kind == UNLABELLED_FOLDER else kind for _, kind, _ in parts),
        tuple(site for site, _, _ in parts),
        tuple("/".join(part) for part in parts),
        (f"images read as {'grey' if is_grey else 'colour'}, pixels scaled to [-1, 1]",),
    )


def _pixels(file: Path) -> npt.NDArray[np.uint8]:
    """(h, w) uint8 of a grey image, (h, w, 3) of any other."""
    image = optional("PIL.Image", "pillow", "reading a folder of images")
    try:
        with image.open(file) as opened:
            if opened.mode not in (*GREY, *COLOUR):
                raise ValueError(f"its kind of pixel, {opened.mode}, has more than 8 bits")
            return np.asarray(opened.convert("L" if opened.mode in GREY else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:  # pillow's errors for broken files
        raise ValueError(f"{file} could not be read as an image: {error}") from error


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
