"""Images of an example in a form that browsers show."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any, final

import torch
from torch import Tensor

from fallow.core.optional import import_optional
from fallow.data.loaders.dicom import DICOM_FILES, has_mark
from fallow.data.loaders.nifti import is_nifti
from fallow.data.loaders.pixels import ImageError, measure_image, open_image, show_image
from fallow.deployment.labeling_page.languages import Mistake
from fallow.deployment.site.rows import SiteRows

SHOWN = {  # formats that every browser supports, by their names in Pillow
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "GIF": "image/gif",
    "WEBP": "image/webp",
    "BMP": "image/bmp",
}
CHANNELS = {1: 1, 3: 3, 2: 1, 6: 3}
"""Channels of a row, and of each of its one or two images."""
LINE = 38
"""Characters per line of a placeholder."""
SMALL = 256  # pixels per side; smaller images are enlarged without interpolation


@final
@dataclass(frozen=True)
class Picture:
    """An image as it is sent to the browser."""

    content: bytes
    media_type: str


def picture(rows: SiteRows, row: int, view: int = 0) -> Picture | None:
    """Return one of a row's images, or of the rows of a case, or None if there is none.

    The file is sent unchanged if browsers show the same pixels as the network reads. Otherwise
    these are sent as PNG. A row of shape (channels, h, w) without a file is drawn, and so is a DICOM
    image, in the range of values that the sites agreed on.

    Raises ValueError if the file is missing, is not an image, or has changed since the site
    started.
    """
    if rows.each is not None:
        own = rows.of_case[row]
        return picture(rows.each, own[view]) if view < len(own) else None
    files = rows.files(row)
    if not files:
        drawn = _views_of(rows.x[row])
        if view >= len(drawn):
            return None
        return _png(_draw(drawn[view]))
    if view >= len(files):
        return None
    shown = files[view]
    if _is_page(rows, row):  # a file of many pages is not read for each
        return _png(_draw(rows.x[row], low=0.0, high=1.0))
    content = rows.content(row, view) or b""
    if _is_drawn(rows, shown, content):
        return _png(_draw(rows.x[row], low=0.0, high=1.0))
    try:
        with open_image(BytesIO(content), "displaying images") as opened:
            media_type = SHOWN.get(opened.format)
            levels = show_image(opened)
            if media_type is not None and not levels.changes and not levels.is_deep:
                return Picture(content, media_type)
            return _png(levels.as_8_bits)
    except ImageError as error:
        raise Mistake(
            "the image %(name)s cannot be displayed: %(why)s", name=shown.name, why=error
        ) from error


def placeholder(why: str) -> Picture:
    """Return an image that explains why another image cannot be displayed."""
    lines = wrap(why, LINE)
    texts = [
        f'<text x="8" y="{20 + 16 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    height = max(SMALL, 20 + 16 * len(lines))
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SMALL} {height}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{SMALL}" height="{height}" fill="#eee"/>{"".join(texts)}</svg>'
    )
    return Picture(drawn.encode(), "image/svg+xml")


def sizes(rows: SiteRows, row: int) -> list[tuple[int, int]]:
    """Return the width and height in pixels of each image of a row, or [] without images.

    Rows without a file are images if they have the shape of one image or of two side by side.
    The images of a case have the size of the first, as only one of them is shown.
    """
    if rows.each is not None:
        own = rows.of_case[row]
        return sizes(rows.each, own[0])[:1] * len(own)
    files = rows.files(row)
    if files:
        return [_size_of_file(rows, row, view) for view in range(len(files))]
    return [(x.shape[2], x.shape[1]) for x in _views_of(rows.x[row])]


def _size_of_file(rows: SiteRows, row: int, view: int) -> tuple[int, int]:
    shape = tuple(rows.x[row].shape)
    if _is_page(rows, row):
        return shape[2], shape[1]
    try:
        content = rows.content(row, view) or b""
        if _is_drawn(rows, rows.files(row)[view], content):
            return shape[2], shape[1]
        with open_image(BytesIO(content), "displaying images") as opened:
            width, height = measure_image(opened)
    except ValueError:
        return SMALL, SMALL  # the address of the image returns the error
    return width, height


def _is_page(rows: SiteRows, row: int) -> bool:
    """Return whether an image is one of several pages of its file."""
    return bool(rows.is_page) and rows.is_page[row]


def _is_drawn(rows: SiteRows, file: Path, content: bytes) -> bool:
    """Return whether an image is drawn from its row: DICOM or NIfTI in a folder of images."""
    is_scan = file.suffix.lower() in DICOM_FILES or has_mark(content) or is_nifti(file)
    return rows.views is None and is_scan


def _views_of(x: Tensor) -> list[Tensor]:
    """Split an array into images: (channels, h, w) -> each (1 or 3, h, w).

    One channel is a grayscale image and three are a color image. Two and six channels are two
    images. Other shapes are not images.

    >>> [tuple(view.shape) for view in _views_of(torch.zeros(2, 8, 8))]
    [(1, 8, 8), (1, 8, 8)]
    """
    if x.dim() != 3 or len(x) not in CHANNELS or min(x.shape[1:]) <= 1:
        return []
    return list(torch.split(x, CHANNELS[len(x)]))


def _draw(
    x: Tensor, low: float | None = None, high: float | None = None
) -> Any:  # a Pillow image; Pillow may not be installed
    """Scale values from black, ``low``, to white, ``high``. ``x`` has shape (1 or 3, h, w).

    The default is the range of the values.
    """
    if low is None or high is None:
        low = float(x.min())
        high = float(x.max())
    share = (x - low) / max(high - low, 1e-12)  # in [0, 1]
    values = (share * 255).round().byte().permute(1, 2, 0)  # (h, w, 1 or 3)
    if len(x) == 1:
        values = values.squeeze(2)  # (h, w): gray
    images = import_optional("PIL.Image", "pillow", "displaying images")
    return images.fromarray(values.contiguous().numpy())


def _png(image: Any) -> Picture:  # a Pillow image
    png = BytesIO()
    image.save(png, "PNG")
    return Picture(png.getvalue(), "image/png")
