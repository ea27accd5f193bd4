"""Reading a folder of images: ``site/class/*`` and ``site/unlabelled/*``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.data.optional import import_optional

UNLABELLED_FOLDER = "unlabelled"
GREY, COLOUR = ("1", "L"), ("P", "LA", "RGB", "RGBA", "CMYK", "YCbCr")


@final
@dataclass(frozen=True)
class Images:
    """Images of one's own, each with its label and its site."""

    x: npt.NDArray[np.float32]  # (n, channels, height, width), in [-1, 1]
    labels: tuple[str, ...]  # "" = unlabelled
    sites: tuple[str, ...]
    names: tuple[str, ...]  # site/class/file
    notes: tuple[str, ...]


def read_folder(folder: Path) -> Images:
    """Every image below the folder, in the order of its name; hidden files are passed over."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with images in site/class/*")
    files = images_below(folder, "*/*/*")
    if not files:
        raise ValueError(
            f"{folder} holds no images; put them in site/class/* or site/unlabelled/*"
        )
    x = read_images(files)
    parts = [file.relative_to(folder).parts for file in files]
    return Images(
        x,
        tuple("" if kind == UNLABELLED_FOLDER else kind for _, kind, _ in parts),
        tuple(site for site, _, _ in parts),
        tuple("/".join(part) for part in parts),
        (
            f"images read as {'grey' if x.shape[1] == 1 else 'colour'}, pixels scaled to [-1, 1]",
        ),
    )


def images_below(folder: Path, pattern: str) -> list[Path]:
    """The files of a pattern, in the order of their names; hidden ones are passed over."""
    return [
        file
        for file in sorted(folder.glob(pattern))
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def read_images(
    files: Sequence[Path], channels: int | None = None
) -> npt.NDArray[np.float32]:
    """Images of one size, (n, channels, height, width) in [-1, 1].

    channels: 1 or 3; None: 1 where every image is grey.  Raises ValueError that names the file when
    one cannot be read, has another size than the others, or has colours where grey is wanted.
    """
    loaded = [_pixels(file, channels) for file in files]
    for file, pixels in zip(files, loaded, strict=True):
        if pixels.shape[1:] != loaded[0].shape[1:]:
            raise ValueError(
                f"{file} has {_size(pixels.shape)} pixels and {files[0].name} has "
                f"{_size(loaded[0].shape)}; bring all images to one size"
            )
    channels = channels or max(len(pixels) for pixels in loaded)
    stack = np.stack([np.broadcast_to(p, (channels, *p.shape[1:])) for p in loaded])
    return ((stack / 255 - 0.5) / 0.5).astype(np.float32)


def _pixels(file: Path, channels: int | None) -> npt.NDArray[np.uint8]:
    """(1, h, w) uint8 of a grey image, (3, h, w) of any other."""
    image = import_optional("PIL.Image", "pillow", "reading a folder of images")
    try:
        with image.open(file) as opened:
            if opened.mode not in (*GREY, *COLOUR):
                raise ValueError(f"its kind of pixel, {opened.mode}, has more than 8 bits")
            is_grey = opened.mode in GREY
            if channels == 1 and not is_grey:
                raise ValueError("it has colours, and the others are grey")
            pixels = np.asarray(opened.convert("L" if is_grey else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:  # pillow's errors for broken files
        raise ValueError(f"{file} could not be read as an image: {error}") from error
    return pixels[None] if is_grey else pixels.transpose(2, 0, 1)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[2]} x {shape[1]}"
