"""Image files, and images in arrays: order of dimensions, and scale of pixels.

No other module lets Pillow detect a format.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from fallow.core.optional import import_optional
from fallow.data.reading import Finding, note, warning

Features = npt.NDArray[np.float32]
Channels = Literal["auto", "first", "last"]
CHANNELS: tuple[Channels, ...] = ("auto", "first", "last")
"""Order of dimensions: (n, channels, height, width) or (n, height, width, channels)."""
CHANNEL_COUNTS = (1, 3, 4)
"""Number of channels of gray images, color images, and color images with transparency."""

BRIGHTEST = {"uint8": 255, "uint16": 65_535}
"""Largest value of each integer type of pixels."""
MOST_OF_12_BITS = 4095
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


def find_doubtful_order(shape: Sequence[int], channels: Channels) -> list[Finding]:
    """Return a warning if images read with their channels first seem to have them last.

    The last dimension is the smallest one: images are wider than they have channels.

    >>> len(find_doubtful_order((5, 16, 16, 13), "auto"))
    1
    >>> find_doubtful_order((5, 64, 4, 4), "auto")
    []
    """
    if channels != "auto" or len(shape) != 4:
        return []
    first, second, last = shape[1:]
    if not 1 < last < min(first, second):
        return []
    sentence = (
        f"images of shape {(first, second, last)} were read as {first} channels of {second} x "
        f"{last} pixels (channels first)"
    )
    return [
        warning(
            sentence,
            f"channels='last' for {last} channels of {first} x {second} pixels, or channels='first'",
        )
    ]


NUMERIC = "biuf"
"""Kinds of NumPy values that are real numbers."""


def as_features(x: npt.NDArray[Any], name: str) -> tuple[Features, Finding | None]:
    """Return numbers as model input, and a finding about their conversion, if any.

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
        division = (
            f"pixels are {x.dtype} and were divided by {brightest:,}, so they are in [0, 1]"
        )
        highest = int(x.max()) if x.size else 0
        if x.dtype.name == "uint16" and 0 < highest <= MOST_OF_12_BITS:
            dark = (
                f"{division}; the largest is {highest}, so images of 8 to 12 bits are dark"
            )
            return scaled, warning(dark, "scale the pixels to all bits, or give uint8")
        return scaled, note(division)
    with np.errstate(over="ignore"):
        numbers: Features = x.astype(np.float32)
    if x.ndim == 4 and numbers.size and np.nanmax(np.abs(numbers)) > LARGE:
        low = float(np.nanmin(numbers))
        high = float(np.nanmax(numbers))
        sentence = (
            f"pixels are between {low:g} and {high:g} and are used unchanged; models "
            "train poorly on such numbers: scale them to [0, 1], or give uint8"
        )
        return numbers, note(sentence)
    return numbers, None


FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that Pillow decodes itself.  It passes others to programs: PostScript to
Ghostscript.
"""


DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    struct.error,
    zlib.error,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    NotImplementedError,
)
"""Errors of Pillow for damaged files."""
GRAY = ("1", "L", "LA")
COLOR = ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
DEEP = ("I;16", "I;16B", "I;16L", "I")
"""Pillow's names for gray, color, and gray with 16 bits."""
ORIENTATION = 0x0112
SIDEWAYS = (5, 6, 7, 8)
"""Tag of the orientation in EXIF and TIFF, and its values that exchange width and height."""
INTERPRETATION = 262
"""Tag of TIFF: 0 if the lowest number is white."""
PNG_MARK = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
PNG_HEAD = 26
PNG_GRAY = (0, 4)
"""Begin of a PNG file, its length with size, bits and color type, and the types of gray."""
MOST_PROFILE = 1 << 22
"""Limit of a color profile in bytes; larger ones are ignored."""


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
        with warnings.catch_warnings():
            # Pillow's, of damaged metadata and large images
            warnings.simplefilter("ignore")
            with images.open(source, formats=FORMATS) as image:
                yield image
    except unidentified as error:
        if isinstance(source, Path) and not source.stat().st_size:
            raise ImageError("the file is empty") from error
        raise ImageError(f"its format is not supported ({', '.join(FORMATS)})") from error
    # Pillow's errors: for a size that a few bytes can claim, and for damaged files
    except (images.DecompressionBombError, *DAMAGED) as error:
        raise ImageError(str(error) or "it is damaged") from error


@final
@dataclass(frozen=True)
class ShownImage:
    """Image as a viewer shows it.

    Attributes
    ----------
    image
        Image of Pillow with the mode L or RGB, or one of `DEEP`.
    changes : tuple of str
        How the numbers differ from those in the file, such as "turned upright".
    """

    image: Any
    changes: tuple[str, ...] = ()

    @property
    def is_gray(self) -> bool:
        return str(self.image.mode) != "RGB"

    @property
    def is_deep(self) -> bool:
        """Whether the pixels have more than 8 bits."""
        return self.image.mode in DEEP

    @property
    def levels(self) -> npt.NDArray[np.uint8] | npt.NDArray[np.float64]:
        """Pixels (1 or 3, height, width): uint8, or float64 from 0 to 255 for more bits."""
        if self.is_deep:
            deep: npt.NDArray[np.float64] = np.asarray(self.image).astype(np.float64)
            return deep[None] * 255 / BRIGHTEST["uint16"]
        pixels: npt.NDArray[np.uint8] = np.asarray(self.image)
        if self.is_gray:
            return pixels[None]  # of (h, w)
        return pixels.transpose(2, 0, 1)  # of (h, w, 3)

    @property
    def as_8_bits(self) -> Any:
        """Image of Pillow with the mode L or RGB, for a display."""
        if not self.is_deep:
            return self.image
        images = import_optional("PIL.Image", "pillow", "displaying images")
        return images.fromarray(self.levels[0].round().astype(np.uint8))


MOST_PAGES = 1000
"""Limit of the pages of a file."""


def count_pages(image: Any) -> int:
    """Return the number of pages or frames of an image of `open_image`.

    A photograph of format MPO has further views of the same scene, which do not count.
    """
    if image.format == "MPO":
        return 1
    return int(getattr(image, "n_frames", 1))


def list_pages(image: Any) -> Iterator[ShownImage]:
    """Yield each page of an image of `open_image`.  Raises ImageError for too many."""
    n_pages = count_pages(image)
    if n_pages > MOST_PAGES:
        raise ImageError(f"it has {n_pages:,} pages or frames, more than {MOST_PAGES:,}")
    for page in range(n_pages):
        image.seek(page)
        yield show_image(image, is_page=True)


def show_image(image: Any, *, is_page: bool = False) -> ShownImage:
    """Return an image of `open_image` as a viewer shows it.

    It is turned by its orientation, put on white where it is transparent, and converted to
    sRGB by its color profile. is_page: whether the current page of several is meant. Raises
    ImageError for several pages or frames, and for pixels that are not gray or colors of 8 bits,
    or gray of 16 bits.
    """
    n_pages = count_pages(image)
    if n_pages > 1 and not is_page:
        raise ImageError(
            f"it has {n_pages} pages or frames; save each as a file of its own, or load the training "
            "images with --pages each (pages=), which makes each an example"
        )
    if image.mode not in (*GRAY, *COLOR, *DEEP):
        raise ImageError(
            f"its pixel format {image.mode} is not supported; save it as PNG with 8 bits, or "
            "with 16 bits if it is gray"
        )
    changes: list[str] = []
    orientation = _find_orientation(image)
    image.load()  # Pillow turns a TIFF image here
    if orientation != 1:
        changes.append("turned upright")
        if image.format != "TIFF":
            operations = import_optional("PIL.ImageOps", "pillow", "turning images")
            image = operations.exif_transpose(image)
    if image.mode in DEEP:
        return ShownImage(_invert_if_white_is_zero(image), tuple(changes))
    profile = image.info.get("icc_profile")
    has_gray = image.mode in GRAY or _has_gray_palette(image) or _is_gray_frame(image)
    if image.has_transparency_data:
        changes.append("put on white where they are transparent")
        image = _put_on_white(image)
    if image.mode == "YCbCr" or (image.mode in ("P", "1") and not has_gray):
        image = image.convert("RGB")
    elif has_gray:
        image = image.convert("L")
    if profile:
        transform = _build_transform(profile, image.mode)
        if transform is not None:
            changes.append("converted from their color profile to sRGB")
            image = transform.apply(image)
    if has_gray:
        return ShownImage(image.convert("L"), tuple(changes))
    return ShownImage(image.convert("RGB"), tuple(changes))


def measure_png(head: bytes) -> tuple[tuple[int, ...], bool] | None:
    """Return (channels, height, width) and whether pixels have more than 8 bits; None if the
    first `PNG_HEAD` bytes of a file are not those of a PNG image.

    Pillow takes ten times as long, and most folders of many images are PNG.
    """
    if len(head) < PNG_HEAD or not head.startswith(PNG_MARK):
        return None
    width, height, depth, color = struct.unpack(">IIBB", head[16:26])
    is_gray = color in PNG_GRAY
    channels = 1 if is_gray else 3
    return (channels, height, width), is_gray and depth > 8


def measure_image(image: Any) -> tuple[int, int]:
    """Return (width, height) of an image as `show_image` returns it, without decoding it."""
    width, height = image.size
    # Pillow exchanges the sizes of a TIFF image itself
    if image.format != "TIFF" and _find_orientation(image) in SIDEWAYS:
        return height, width
    return width, height


def _find_orientation(image: Any) -> int:
    """Return the orientation, from 1 (upright) to 8; 1 if the metadata is damaged."""
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except DAMAGED:  # viewers ignore damaged metadata
        return 1
    if isinstance(orientation, int) and 1 <= orientation <= 8:
        return orientation
    return 1


def _has_gray_palette(image: Any) -> bool:
    if image.mode != "P":
        return False
    colors = np.frombuffer(image.palette.tobytes(), dtype=np.uint8)
    width = len(image.palette.mode)
    colors = colors[: len(colors) // width * width].reshape(-1, width)[:, :3]
    return bool((colors == colors[:, :1]).all())


def _is_gray_frame(image: Any) -> bool:
    """Return whether a frame of a GIF is gray: Pillow returns all but the first in color."""
    if image.format != "GIF" or image.mode not in ("RGB", "RGBA"):
        return False
    colors: npt.NDArray[np.uint8] = np.asarray(image)[..., :3]
    return bool((colors == colors[..., :1]).all())


def _put_on_white(image: Any) -> Any:
    """Return an RGB image on a white background."""
    images = import_optional("PIL.Image", "pillow", "reading images")
    transparent = image.convert("RGBA")
    background = images.new("RGBA", image.size, "white")
    background.alpha_composite(transparent)
    return background.convert("RGB")


def _invert_if_white_is_zero(image: Any) -> Any:
    """Check an image with more than 8 bits, and invert it if the lowest number is white."""
    low, high = image.getextrema()
    if low < 0 or high > BRIGHTEST["uint16"]:
        raise ImageError(
            "its pixels have a sign or more than 16 bits; save it with 16 bits"
        )
    tags = getattr(image, "tag_v2", {})
    if tags.get(INTERPRETATION) != 0:
        return image
    images = import_optional("PIL.Image", "pillow", "reading images")
    inverted = BRIGHTEST["uint16"] - np.asarray(image).astype(np.uint16)
    return images.fromarray(inverted)


@lru_cache(maxsize=16)
def _build_transform(profile: bytes, mode: str) -> Any:
    """Return the transform from a color profile to sRGB, None if there is nothing to convert.

    Viewers ignore damaged profiles, and those of other colors than the image has.
    """
    if len(profile) > MOST_PROFILE:
        return None
    colors = import_optional("PIL.ImageCms", "pillow", "reading images")
    try:
        source = colors.ImageCmsProfile(BytesIO(profile))
        if "sRGB" in colors.getProfileDescription(source):
            return None
        return colors.buildTransform(source, colors.createProfile("sRGB"), mode, "RGB")
    except (colors.PyCMSError, *DAMAGED):
        return None
