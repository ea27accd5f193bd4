"""scikit-learn's digits, each rotated by its own angle."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional

from fallow.catalog import DataFiles, find_entry
from fallow.core.streams import stream
from fallow.data.catalog.files import DIGITS_MEAN, DIGITS_STD, read_bundled
from fallow.data.dataset import Dataset

WIDEST = 45.0  # degrees to either side, at which a 6 is not yet a 9


def read_digit_angle(files: DataFiles) -> Dataset:
    """Read scikit-learn's digits, each rotated by its own angle; y: degrees,
    counter-clockwise.

    Angles are uniform in [-45, 45) and always the same.  Training and test examples are
    those of ``digits``.  The rotated digit is the natural site.
    """
    digits = read_bundled(dataclasses.replace(files, entry=find_entry("digits")))

    degrees = draw_degrees("training", len(digits.x))
    degrees_test = draw_degrees("test", len(digits.x_test))
    return dataclasses.replace(
        digits,
        name="digit_angle",
        x=turn(digits.x, degrees),
        y=degrees,
        x_test=turn(digits.x_test, degrees_test),
        y_test=degrees_test,
        classes=(),
        sites=digits.y,
        sites_test=digits.y_test,
        site_names=tuple(f"digit {name}" for name in digits.classes),
    )


def draw_degrees(part: str, n: int) -> Tensor:
    """Return angles in [-45, 45) degrees, (n,) float32, the same in every call for a part
    of the data.
    """
    gen = stream(0, "digit angle", part)
    draws = torch.rand(n, generator=gen, dtype=torch.float64)
    return ((2 * draws - 1) * WIDEST).float()


def turn(x: Tensor, degrees: Tensor) -> Tensor:
    """Rotate images of ``digits`` around their center, counter-clockwise.

    x: (n, 1, h, w) with h = w, normalized; degrees: (n,).  Pixels are interpolated, and
    pixels from outside the image are blank.
    """
    blank = -DIGITS_MEAN / DIGITS_STD
    angle = torch.deg2rad(degrees)
    zero = torch.zeros_like(angle)
    # source of each pixel, with the second axis pointing down
    origin = torch.stack(
        [
            torch.stack([angle.cos(), -angle.sin(), zero], dim=1),
            torch.stack([angle.sin(), angle.cos(), zero], dim=1),
        ],
        dim=1,
    )
    grid = functional.affine_grid(origin, list(x.shape), align_corners=False)
    return functional.grid_sample(x - blank, grid, align_corners=False) + blank
