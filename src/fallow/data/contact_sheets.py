"""Contact sheets: some images of a class at a site, as a small PNG file."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate

SIDE = 48
"""Longer side of a picture, in pixels."""
ACROSS = 2
"""Number of pictures beside each other."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOR_AND_ALPHA = 6
"""Color type of PNG."""


def draw_contact_sheet(x: Tensor, pixels: tuple[float, float]) -> str:
    """Draw images (n, 1 or 3, h, w) beside each other, as a PNG file in base64.

    pixels: values that are drawn as black and as white. The rest of the last line is transparent.
    """
    height, width = x.shape[2:]
    scale = SIDE / max(height, width)
    height, width = max(1, round(height * scale)), max(1, round(width * scale))
    mode = "area" if scale < 1 else "nearest"
    black, white = pixels
    resized = interpolate(x, size=(height, width), mode=mode)
    shares = ((resized - black) / (white - black)).clamp(0, 1)
    pictures = (shares * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    across = min(ACROSS, len(x))
    down = -(-len(x) // across)
    sheet = np.zeros((down * height, across * width, 4), dtype=np.uint8)
    for number, picture in enumerate(pictures):  # (height, width, 1 or 3)
        top = number // across * height
        left = number % across * width
        tile = sheet[top : top + height, left : left + width]
        tile[..., :3] = picture
        tile[..., 3] = 255
    return base64.b64encode(encode_png(sheet)).decode("ascii")


def find_pixel_range(x: Tensor) -> tuple[float, float]:
    """Return black and white: 0 and 1, or the range of pixels that were normalized.

    >>> (
    ...     find_pixel_range(torch.tensor([0.2, 0.5])),
    ...     find_pixel_range(torch.tensor([-1.0, 2.0])),
    ... )
    ((0.0, 1.0), (-1.0, 2.0))
    """
    low, high = x.aminmax()
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return float(low), float(high)


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode pixels (h, w, 4) with transparency as a PNG file; a site need not have pillow."""
    height, width, _ = pixels.shape
    no_filter = np.zeros((height, 1), dtype=np.uint8)
    lines = np.hstack([no_filter, pixels.reshape(height, -1)])
    header = struct.pack(">IIBBBBB", width, height, 8, COLOR_AND_ALPHA, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")
    return SIGNATURE + chunks


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)
