"""Pixels of arrays: whole numbers become shares of the brightest value their type can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.float32]

BRIGHTEST = {"uint8": 255, "uint16": 65_535}
"""The largest value of each type of whole numbers that pixels are stored in."""
LARGE = 16.0
"""No image that was scaled to [0, 1] or about 0 in units of its deviation has such pixels."""


def as_features(x: npt.NDArray[Any], name: str) -> tuple[Features, str | None]:
    """Numbers as models take them, and a sentence on what was done to them, if anything.

    x: (n, ...).  Rows of two axes and more are images: uint8 is divided by 255 and uint16 by
    65,535, so that pixels lie in [0, 1].  Rows of one axis are lists of numbers, used as they are.
    Beyond 3.4e38 counts as infinite.
    Raises ValueError for images of other whole numbers, whose brightest value nobody knows.

    >>> as_features(np.full((1, 1, 1, 2), 51, dtype=np.uint8), "scans")[0].round(4).tolist()
    [[[[0.2, 0.2]]]]
    """
    is_image = x.ndim > 2
    if is_image and x.dtype.kind in "iu":
        if x.dtype.name not in BRIGHTEST:
            raise ValueError(
                f"{name}: images are {x.dtype} values, whose brightest is not known; give uint8, "
                "uint16, or floats scaled to [0, 1]"
            )
        brightest = BRIGHTEST[x.dtype.name]
        scaled = x.astype(np.float32)
        scaled /= np.float32(brightest)
        said = f"pixels are {x.dtype} and were divided by {brightest:,}: they lie in [0, 1]"
        return scaled, said
    with np.errstate(over="ignore"):
        numbers: Features = x.astype(np.float32)
    if x.ndim == 4 and numbers.size and np.nanmax(np.abs(numbers)) > LARGE:
        low = float(np.nanmin(numbers))
        high = float(np.nanmax(numbers))
        return numbers, (
            f"pixels lie between {low:g} and {high:g} and are used as they are; models learn "
            "little from such numbers: scale them to [0, 1], or give uint8"
        )
    return numbers, None
