"""Opening of image files, the only module that lets Pillow detect a format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from fallow.core.optional import import_optional

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
