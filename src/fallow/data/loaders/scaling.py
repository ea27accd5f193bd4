"""Scale of pixels: what a dataset did with them, and the same for examples to predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fallow.data.loaders.pixels import LARGE, as_features, bring_to_shape
from fallow.data.reading import Finding, warning

Features = npt.NDArray[np.float32]
WITHIN = 0.5
"""Part of the range of training by which new pixels may exceed it."""
NORMALIZED = 0.25
"""Part of the largest pixel below whose negative normalized pixels are."""
DIM = 100
"""Ratio of the largest pixels in training and of new ones on another scale."""
FEWER_BITS = 8
"""Ratio of the largest pixels of 16 bits in training and of those with fewer bits."""


@final
@dataclass(frozen=True)
class PixelScale:
    """Normalization of the images of a dataset: (pixel / largest - mean) / std.

    mean, std: one number for each channel.
    """

    largest: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalize(self, shares: npt.NDArray[Any]) -> Features:
        """Normalize pixels in [0, 1]: (n, channels, height, width)."""
        mean = np.array(self.mean, dtype=np.float32).reshape(1, -1, 1, 1)
        std = np.array(self.std, dtype=np.float32).reshape(1, -1, 1, 1)
        normal: Features = (shares.astype(np.float32) - mean) / std
        return normal


def scale_as_trained(
    x: npt.NDArray[Any],
    shape: Sequence[int],
    name: str,
    scale: PixelScale | None = None,
    pixel_range: Sequence[float] | None = None,
) -> tuple[Features, Finding | None]:
    """Return examples (n, *shape) as they were in training, and what may be wrong with them.

    Pixels that are whole numbers are normalized by ``scale``, if the dataset was, and are used
    unchanged by a model of pixels up to 255.  pixel_range: smallest and largest number in training.
    Raises ValueError for numbers on another scale.
    """
    shaped = bring_to_shape(x, shape)
    is_image = len(shape) == 3 and shaped.ndim == 4
    is_whole = shaped.dtype.kind in "iu"
    if is_image and scale is not None and is_whole:
        highest = int(shaped.max()) if shaped.size else 0
        if highest > scale.largest:
            raise ValueError(
                f"{name}: pixels go up to {highest}, and those of the training data to "
                f"{scale.largest:g}; give pixels on that scale"
            )
        return scale.normalize(shaped / scale.largest), None
    if not is_image or pixel_range is None or not shaped.size:
        return as_features(shaped, name)
    low, high = pixel_range
    if is_whole and high > LARGE:
        return _keep_unchanged(shaped, name, low, high)
    numbers, _ = as_features(shaped, name)
    return numbers, _compare_pixels(numbers, shaped.dtype, name, scale, low, high)


def _keep_unchanged(
    whole: npt.NDArray[Any], name: str, low: float, high: float
) -> tuple[Features, Finding | None]:
    """Return whole numbers for a model of pixels that were used unchanged."""
    numbers = whole.astype(np.float32)
    return numbers, _compare_pixels(numbers, numbers.dtype, name, None, low, high)


def _compare_pixels(
    numbers: Features,
    kind: np.dtype[Any],
    name: str,
    scale: PixelScale | None,
    low: float,
    high: float,
) -> Finding | None:
    """Return a warning of pixels that may be on another scale than those of training.

    kind: type of the pixels in the file.  Raises ValueError if they are.
    """
    lowest, highest = find_range(numbers)
    is_normalized = low < -NORMALIZED * high
    # pixels in [0, 1] are within the range of normalized ones
    is_share = is_normalized and lowest >= 0 and 0 < highest <= 1
    is_known_share = is_share and (scale is not None or kind.kind in "iu")
    sentence = (
        f"{name}: pixels are between {lowest:g} and {highest:g}, and those of the training data "
        f"between {low:g} and {high:g}"
    )
    if is_on_another_scale(numbers, low, high) or is_known_share:
        advice = "divide them by the same number as the training data, or give uint8"
        if scale is not None:
            advice = "give whole numbers, which are normalized as in training"
        elif is_normalized:
            advice = "normalize them as the training data"
        raise ValueError(f"{sentence}; {advice}")
    has_fewer_bits = kind.name == "uint16" and 0 < highest < high / FEWER_BITS
    if is_share or has_fewer_bits:
        return warning(sentence, "give pixels on that scale")
    return None


def is_on_another_scale(pixels: Features, low: float, high: float) -> bool:
    """Return whether images (n, c, h, w) exceed a range, or use less than a hundredth of it.

    >>> dark = np.full((1, 1, 2, 2), 0.004, dtype=np.float32)
    >>> is_on_another_scale(dark, 0.0, 1.0), is_on_another_scale(200 * dark, 0.0, 1.0)
    (True, False)
    """
    lowest, highest = find_range(pixels)
    margin = WITHIN * (high - low)
    is_beyond = lowest < low - margin or highest > high + margin
    is_dim = low >= 0 and lowest >= 0 and 0 < DIM * highest <= high
    return is_beyond or is_dim


def find_range(pixels: Features) -> tuple[float, float]:
    """Return the smallest and the largest number that is not NaN."""
    lowest = float(np.fmin.reduce(pixels, axis=None))
    highest = float(np.fmax.reduce(pixels, axis=None))
    return lowest, highest
