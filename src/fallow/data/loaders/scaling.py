"""Scale of pixels: what a dataset did with them, and the same for examples to predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fallow.data.loaders.pixels import as_features, bring_to_shape

Features = npt.NDArray[np.float32]
WITHIN = 0.5
"""Part of the range of training by which new pixels may exceed it."""


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
) -> tuple[Features, str | None]:
    """Return examples (n, *shape) as they were in training, and a sentence about a conversion.

    Pixels that are whole numbers are normalized by ``scale``, if the dataset was.  pixel_range:
    smallest and largest number in training.  Raises ValueError for numbers on another scale.
    """
    shaped = bring_to_shape(x, shape)
    is_image = len(shape) == 3 and shaped.ndim == 4
    if is_image and scale is not None and shaped.dtype.kind in "iu":
        highest = int(shaped.max()) if shaped.size else 0
        if highest > scale.largest:
            raise ValueError(
                f"{name}: pixels go up to {highest}, and those of the training data to "
                f"{scale.largest:g}; give pixels on that scale"
            )
        return scale.normalize(
            shaped / scale.largest
        ), "pixels were normalized as in training"
    numbers, note = as_features(shaped, name)
    if is_image and pixel_range is not None and numbers.size:
        _check_range(numbers, name, scale, *pixel_range)
    return numbers, note


def _check_range(
    numbers: Features, name: str, scale: PixelScale | None, low: float, high: float
) -> None:
    """Raise ValueError for pixels on another scale than those of training."""
    lowest = float(np.nanmin(numbers))
    highest = float(np.nanmax(numbers))
    margin = WITHIN * (high - low)
    is_beyond = lowest < low - margin or highest > high + margin
    # pixels in [0, 1] are within the range of normalized ones
    is_share = scale is not None and low < 0 <= lowest and highest <= 1 < high
    if not is_beyond and not is_share:
        return
    advice = "divide them by the same number as the training data, or give uint8"
    if scale is not None:
        advice = "give whole numbers, which are normalized as in training"
    raise ValueError(
        f"{name}: pixels are between {lowest:g} and {highest:g}, and those of the training data "
        f"between {low:g} and {high:g}; {advice}"
    )
