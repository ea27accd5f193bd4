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
GRAY, COLOR = 0, 2
"""Color types of PNG."""


def draw_contact_sheet(x: Tensor, pixels: tuple[float, float]) -> str:
    """Draw images (n, 1 or 3, h, w) beside each other, as a PNG file in base64.

    pixels: values that are drawn as black and as white.
    """
    height, width = x.shape[2:]
    scale = SIDE / max(height, width)
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    mode = "area" if scale < 1 else "nearest"
    black, white = pixels
    gray = ((interpolate(x, size=size, mode=mode) - black) / (white - black)).clamp(0, 1)
    pictures = (gray * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    across = min(ACROSS, len(x))
    down = -(-len(x) // across)
    sheet = np.zeros((down * size[0], across * size[1], x.shape[1]), dtype=np.uint8)
    for number, picture in enumerate(pictures):
        top = number // across * size[0]
        left = number % across * size[1]
        sheet[top : top + size[0], left : left + size[1]] = picture
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
    """Encode pixels (h, w, 1 or 3) as a PNG file; a site need not have pillow."""
    height, width, channels = pixels.shape
    color = GRAY if channels == 1 else COLOR
    lines = np.zeros((height, 1 + width * channels), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(
        height, -1
    )  # behind the filter of the line, which is none
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")
    return SIGNATURE + chunks


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)
