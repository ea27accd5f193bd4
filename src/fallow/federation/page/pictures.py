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
    shown = rows.describe(row)
    if not isinstance(shown, Path):
        x = rows.x[row]
        if not _is_picture(x):
            return None
        return _png(_draw(x))
    content = rows.content(row) or b""
    media_type = SHOWN.get(shown.suffix.lower())
    if media_type is not None:
        return Picture(content, media_type)
    images = import_optional("PIL.Image", "pillow", "showing this kind of image")
    try:
        with images.open(BytesIO(content)) as opened:
            mode = "RGB"
            if "A" in opened.getbands():  # it lets what is behind it through
                mode = "RGBA"
            return _png(opened.convert(mode))
    except (OSError, SyntaxError) as error:
        raise ValueError(f"the image {shown.name} cannot be shown: {error}") from error


def size(rows: SiteRows, row: int) -> tuple[int, int] | None:
    """Width and height in pixels of what `picture` shows; None for what is no picture.

    Rows without a file are pictures when they have the shape of one.
    """
    x = rows.x[row]
    if not isinstance(rows.describe(row), Path):
        if not _is_picture(x):
            return None
        return x.shape[2], x.shape[1]
    try:
        content = BytesIO(rows.content(row) or b"")
        images = import_optional("PIL.Image", "pillow", "showing images")
        with images.open(content) as opened:
            width, height = opened.size
    except (OSError, SyntaxError, ValueError):
        return SMALL, SMALL  # the address of the picture says what is wrong with it
    return int(width), int(height)


def _is_picture(x: Tensor) -> bool:
    """Whether a row has the shape of a picture."""
    return x.dim() == 3 and len(x) in (1, 3) and min(x.shape[1:]) > 1


def _draw(x: Tensor) -> Any:  # an image of Pillow, which may not be installed
    """Values from the smallest to the largest as black to white.  x: (1 or 3, h, w)."""
    low = x.min()
    high = x.max()
    share = (x - low) / (high - low).clamp_min(1e-12)  # in [0, 1]
    values = (share * 255).round().byte().permute(1, 2, 0)  # (h, w, 1 or 3)
    if len(x) == 1:
        values = values.squeeze(2)  # (h, w): grey
    images = import_optional("PIL.Image", "pillow", "showing images")
    return images.fromarray(values.contiguous().numpy())


def _png(image: Any) -> Picture:  # an image of Pillow
    png = BytesIO()
    image.save(png, "PNG")
    return Picture(png.getvalue(), "image/png")
