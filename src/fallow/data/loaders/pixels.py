"""Image files, and images in arrays: order of dimensions, and scale of pixels.

No other module lets Pillow detect a format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fallow.core.optional import import_optional

Features = npt.NDArray[np.float32]
Channels = Literal["auto", "first", "last"]
CHANNELS: tuple[Channels, ...] = ("auto", "first", "last")
"""Order of dimensions: (n, channels, height, width) or (n, height, width, channels)."""
CHANNEL_COUNTS = (1, 3, 4)
"""Number of channels of gray images, color images, and color images with transparency."""

BRIGHTEST = {"uint8": 255, "uint16": 65_535}
"""Largest value of each integer type of pixels."""
LARGE = 16.0
"""Limit of pixels that are scaled to [0, 1] or standardized."""


def has_channels_last(shape: Sequence[int], name: str, channels: Channels = "auto") -> bool:
    """Return whether examples of this shape, (n, ...), are images with their channels last.

    auto: the last dimension is 1, 3 or 4, and both before it are larger. Raises ValueError
    if the first dimension may be the channels as well.

    >>> (
    ...     has_channels_last((5, 28, 28, 3), "scans"),
    ...     has_channels_last((5, 3, 28, 28), "scans"),
    ... )
    (True, False)
    """
    if channels not in CHANNELS:
        raise ValueError(f"{name}: channels is {channels!r}; give 'first' or 'last'")
    if len(shape) != 4 or channels == "first":
        return False
    if channels == "last":
        return True
    first, second, last = shape[1:]
    if last not in CHANNEL_COUNTS:
        return False
    if first in CHANNEL_COUNTS and min(first, second) >= last:
        raise ValueError(
            f"{name}: images of shape {(first, second, last)} have {first} channels if these come "
            f"first, and {last} if they come last; give channels='first' or channels='last'"
        )
    return min(first, second) > last


def bring_to_shape(x: npt.NDArray[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    """Convert images (n, height, width, channels) to the expected shape with channels
    first.

    Other examples are unchanged.

    >>> bring_to_shape(np.zeros((5, 8, 6, 3)), (3, 8, 6)).shape
    (5, 3, 8, 6)
    """
    is_moved = x.ndim == 4 and tuple(x.shape[1:]) != tuple(shape)
    if is_moved and (x.shape[3], *x.shape[1:3]) == tuple(shape):
        return np.moveaxis(x, 3, 1)
    return x


def describe_move(shape: Sequence[int]) -> str:
    """Describe that the channels of images (n, height, width, channels) were moved first."""
    height, width, n_channels = shape[1:]
    noun = "channel" if n_channels == 1 else "channels"
    return (
        f"images of shape {(height, width, n_channels)} were read as {n_channels} {noun} of "
        f"{height} x {width} pixels (channels last)"
    )


NUMERIC = "biuf"
"""Kinds of NumPy values that are real numbers."""


def as_features(x: npt.NDArray[Any], name: str) -> tuple[Features, str | None]:
    """Return numbers as model input, and a sentence about their conversion, if any.

    x: (n, ...). Examples with two or more dimensions are images: uint8 is divided by 255
    and uint16 by 65,535, so that pixels are in [0, 1]. Examples with one dimension are used
    unchanged. Numbers beyond 3.4e38 count as infinite. Raises ValueError for images of
    other integer types, whose maximum is unknown, and for values that are not real numbers.

    >>> as_features(np.full((1, 1, 1, 2), 51, dtype=np.uint8), "scans")[0].round(4).tolist()
    [[[[0.2, 0.2]]]]
    """
    if x.dtype.kind not in NUMERIC:
        raise ValueError(
            f"{name}: features are {x.dtype} values; give real numbers (texts: "
            "fl.texts_to_rows, columns of texts: fl.from_frame)"
        )
    is_image = x.ndim > 2
    if is_image and x.dtype.kind in "iu":
        if x.dtype.name not in BRIGHTEST:
            raise ValueError(
                f"{name}: images are {x.dtype} values with unknown maximum; give uint8, "
                "uint16, or floats scaled to [0, 1]"
            )
        brightest = BRIGHTEST[x.dtype.name]
        scaled = x.astype(np.float32)
        scaled /= np.float32(brightest)
        output = (
            f"pixels are {x.dtype} and were divided by {brightest:,}, so they are in [0, 1]"
        )
        return scaled, output
    with np.errstate(over="ignore"):
        numbers: Features = x.astype(np.float32)
    if x.ndim == 4 and numbers.size and np.nanmax(np.abs(numbers)) > LARGE:
        low = float(np.nanmin(numbers))
        high = float(np.nanmax(numbers))
        return numbers, (
            f"pixels are between {low:g} and {high:g} and are used unchanged; models "
            "train poorly on such numbers: scale them to [0, 1], or give uint8"
        )
    return numbers, None


FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that Pillow decodes itself.  It passes others to programs: PostScript to
Ghostscript.
"""


class ImageError(ValueError):
    """Reason why an image cannot be read, as a clause without the name of its file."""


@contextmanager
def open_image(source: Path | BytesIO, purpose: str) -> Iterator[Any]:  # an image of Pillow
    """Open an image of one of `FORMATS`, regardless of the file name.

    Raises ImageError, also for errors in the body of the ``with`` statement: Pillow decodes pixels
    when they are first used.
    """
    images = import_optional("PIL.Image", "pillow", purpose)
    unidentified = import_optional("PIL", "pillow", purpose).UnidentifiedImageError
    try:
        with images.open(source, formats=FORMATS) as image:
            yield image
    except unidentified as error:
        raise ImageError(f"its format is not supported ({', '.join(FORMATS)})") from error
    # Pillow's errors: for a size that a few bytes can claim, and for damaged files
    except (images.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise ImageError(str(error)) from error
