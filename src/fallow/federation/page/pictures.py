"""The picture of a sample, as a browser shows it."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, final

from torch import Tensor

from fallow.data.optional import import_optional
from fallow.federation.site.rows import SiteRows

SHOWN = {  # what every browser shows as it is
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
SMALL = 256  # pixels a side; a smaller picture is scaled up, and its pixels stay squares


@final
@dataclass(frozen=True)
class Picture:
    """An image as the browser gets it."""

    content: bytes
    media_type: str


def picture(rows: SiteRows, row: int) -> Picture | None:
    """The file itself where browsers know its kind, else pixels as PNG, drawn from a row of the
    shape (1 or 3, h, w) where there is no file; None for a row that is no picture.

    Raises ValueError when the file is gone, is no image or is not the one that the site began with.
    """
    shown = rows.shown(row)
    if not isinstance(shown, Path):
        return _png(_drawn(rows.x[row])) if _is_picture(rows.x[row]) else None
    content = rows.content(row) or b""
    try:
        if kind := SHOWN.get(shown.suffix.lower()):
            return Picture(content, kind)
        images = import_optional("PIL.Image", "pillow", "showing this kind of image")
        with images.open(BytesIO(content)) as opened:
            return _png(opened.convert("RGBA" if "A" in opened.getbands() else "RGB"))
    except (OSError, SyntaxError) as error:
        raise ValueError(f"the image {shown.name} cannot be shown: {error}") from error


def size(rows: SiteRows, row: int) -> tuple[int, int] | None:
    """Width and height in pixels of what `picture` shows; None for what is no picture.

    Rows without a file are pictures when they have the shape of one.
    """
    x = rows.x[row]
    if not isinstance(rows.shown(row), Path):
        return (x.shape[2], x.shape[1]) if _is_picture(x) else None
    try:
        content = BytesIO(rows.content(row) or b"")
        with import_optional("PIL.Image", "pillow", "showing images").open(
            content
        ) as opened:
            width, height = opened.size
    except (OSError, SyntaxError, ValueError):
        return SMALL, SMALL  # the address of the picture says what is wrong with it
    return int(width), int(height)


def _is_picture(x: Tensor) -> bool:
    """Whether a row has the shape of a picture."""
    return x.dim() == 3 and len(x) in (1, 3) and min(x.shape[1:]) > 1


def _drawn(x: Tensor) -> Any:
    """Values from the smallest to the largest as black to white."""
    low, high = x.min(), x.max()
    grey = ((x - low) / (high - low).clamp_min(1e-12) * 255).round().byte().permute(1, 2, 0)
    image = import_optional("PIL.Image", "pillow", "showing images")
    return image.fromarray(
        grey.squeeze(2).numpy() if len(x) == 1 else grey.contiguous().numpy()
    )


def _png(image: Any) -> Picture:
    png = BytesIO()
    image.save(png, "PNG")
    return Picture(png.getvalue(), "image/png")
