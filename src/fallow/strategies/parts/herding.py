"""Greedy herding with a Gaussian kernel on features of unit length."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fallow.core.limits import Limits
from fallow.core.view import View
from fallow.strategies.parts.max_coverage import UnitFeatures, square_distances

NARROW, WIDE = 0.2, 1.0  # limits of a width that is chosen from the labeled examples


WIDTH = Limits(
    gt=0, is_finite=True, advice=", or None to choose it from the labeled examples"
)
"""Width of a kernel."""


def herd(view: View, model: str, weight: Tensor, width: float | None, n: int) -> Tensor:
    """Return the positions of ``n`` examples whose kernel covers the unlabeled pool best.

    weight: (m,) importance of covering each example; NaN counts as 0.  width: of the kernel
    exp(-(distance / width)²); None: by `choose_width`.
    """
    features = UnitFeatures.of(view, model)
    if width is None:
        width = choose_width(features.labeled)
    scale = -(width**2)

    def similarity(square: Tensor) -> Tensor:
        return square.div(scale).exp()

    return features.cover(similarity, weight, n, view.stream("ties"))


def choose_width(labeled: Tensor) -> float:
    """Return the smallest distance between labeled examples, within `NARROW` and `WIDE`.

    labeled: (l, d) of unit length.  `WIDE` with fewer than two.

    >>> choose_width(torch.tensor([[1.0, 0.0], [0.8, 0.6]]))
    0.63...
    """
    if len(labeled) < 2:
        return WIDE
    square = square_distances(labeled, labeled).fill_diagonal_(torch.inf)
    smallest = math.sqrt(float(square.min()))
    return min(max(smallest, NARROW), WIDE)
