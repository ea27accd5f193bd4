"""Encoders by networks that were pretrained on photographs.

Such networks expect colors with a certain mean and standard deviation.  The units of a dataset
vary: from 0 to 255, from 0 to 1, or standardized.  All sites therefore send aggregates of their
colors once, and images are standardized to the colors of photographs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.client import ClientCall
from fallow.core.composites import moments
from fallow.core.contract import Contract
from fallow.core.limits import PositiveInt, check_fields
from fallow.core.refusal import explain_errors
from fallow.core.types import State, Values
from fallow.core.values import Kind, Positive, Real
from fallow.core.view import View
from fallow.encoders.base import (
    Shape,
    describe_shape,
    digest_of_module,
    mean_and_variance,
    picture_blocks,
    round_digits,
    round_to_grid,
)

COLORS = 3
PHOTO_MEAN = (0.485, 0.456, 0.406)
PHOTO_DEVIATION = (0.229, 0.224, 0.225)
"""Mean and standard deviation of the colors of ImageNet, with white as 1."""
FAR = 10.0  # standard deviations at which colors are clipped, against outliers


@dataclass(frozen=True)
class PhotoNetwork:
    """A network for photographs, with mean and standard deviation of its colors (white is 1)."""

    module: nn.Module
    mean: tuple[float, ...] = PHOTO_MEAN
    deviation: tuple[float, ...] = PHOTO_DEVIATION


@dataclass(frozen=True, kw_only=True)
class PhotoEncoder(ABC):
    """Base class of encoders by pretrained networks for photographs.

    Parameters
    ----------
    size : int
        Pixels in each direction to which images are resized.  Grayscale images are repeated for
        three colors.
    batch : int
        Number of images at a time.
    normalize : bool
        Standardize colors to those of the pretraining data, from aggregates of the colors at the
        sites.  False: use the units of the dataset.
    half : bool
        Round features to float16.
    """

    size: PositiveInt = 224
    batch: PositiveInt = 64
    normalize: bool = True
    half: bool = False

    version: ClassVar[int] = 2
    contract: ClassVar[Contract] = Contract(title="Photographs")

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def load(self) -> PhotoNetwork:
        """Return the network; ValueError if its package or weights are missing."""

    def width(self, shape: Shape) -> int:
        check_photo(shape)
        return self.encode(torch.zeros((1, *shape)), {}).shape[1]

    def weights_digest(self) -> str:
        """Return a digest of the loaded weights, regardless of their source."""
        return digest_of_module(self.load().module)

    # -- server side ------------------------------------------------------------------------

    def fit(self, ask: Ask, shape: Shape) -> State:
        """Return ``mean``, ``deviation`` (c,) of all colors; nothing without ``normalize``."""
        if not self.normalize:
            return {}
        return fit_colors(ask, self.colors)

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples, and of the mean and the square of each color",
        returns=moments("columns", "squares", "colors"),
        takes={},
        when=lambda self: self.normalize,
        weighted_by="rows",
        over="all",
    )
    def colors(self, view: View) -> Values:
        return color_totals(view)

    def state_kinds(self, shape: Shape) -> dict[str, Kind]:
        """Return the kinds of the colors of images of ``shape``."""
        if not self.normalize:
            return {}
        return {"mean": Real(shape[0]), "deviation": Positive(shape[0])}

    def encode(self, x: Tensor, state: State) -> Tensor:
        return encode_photos(self.load(), x, state, self.size, self.batch)


# -- aggregates -----------------------------------------------------------------------------------


def color_totals(view: View) -> Values:
    """Return sums of the mean of each color and of its squares, over all images of a site."""
    rows = 0
    columns = torch.zeros((), dtype=torch.float64)  # (c,)
    squares = torch.zeros((), dtype=torch.float64)
    for block in picture_blocks(view):  # (b, c, h, w)
        rows += len(block)
        columns = columns + block.mean((2, 3)).sum(0)
        squares = squares + block.square().mean((2, 3)).sum(0)
    return {"rows": float(rows), "columns": columns, "squares": squares}


def fit_colors(ask: Ask, colors: ClientCall) -> State:
    """Return ``mean``, ``deviation`` (c,) of the colors of all images of all sites.

    Both are rounded, so that features are identical for every partition.  A constant color has
    deviation 1.
    """
    mean, variance = mean_and_variance(sum_of_all(ask, colors))  # (c,)
    deviation = round_digits(torch.where(variance > 0, variance, 1.0).sqrt())
    return {"mean": round_to_grid(mean / deviation) * deviation, "deviation": deviation}


# -- examples -------------------------------------------------------------------------------------


def encode_photos(
    network: PhotoNetwork, x: Tensor, state: State, size: int, batch: int
) -> Tensor:
    """Return the features of images (m, c, h, w), ``batch`` at a time: (m, D) float32.

    state: of `fit_colors`; empty: images are not standardized.
    """
    parts = []
    with torch.no_grad():
        for block in torch.split(x, batch):
            photos = to_photos(block, size)  # (b, 3, size, size)
            if state:
                photos = normalize_colors(photos, network, state)
            with explain_errors(
                f"the network does not support images of size {size} (",
                after="); set size to that of its pretraining",
                of=RuntimeError,
            ):
                features = network.module(photos)
            parts.append(features.flatten(1).float())
    return torch.cat(parts)


def to_photos(x: Tensor, size: int) -> Tensor:
    """Resize images (b, c, h, w) to ``size``, with three colors, float32.

    Raises ValueError for examples that are not images of one or three colors.
    """
    check_photo(tuple(x.shape[1:]))
    if x.shape[1] == 1:
        x = x.expand(-1, COLORS, -1, -1)
    if x.shape[2:] != (size, size):
        x = functional.interpolate(
            x, size=(size, size), mode="bicubic", align_corners=False, antialias=True
        )
    return x.float()


def normalize_colors(photos: Tensor, network: PhotoNetwork, state: State) -> Tensor:
    """Standardize images (b, 3, h, w) to the colors of the pretraining data of ``network``.

    Colors are converted from units of the dataset to standard deviations, to photographs with white
    as 1, and to the units of the network.
    """
    data_mean = _per_color(state["mean"])
    data_deviation = _per_color(state["deviation"])
    from_mean = ((photos - data_mean) / data_deviation).clamp(-FAR, FAR)
    lit = from_mean * _per_color(PHOTO_DEVIATION) + _per_color(PHOTO_MEAN)
    return (lit - _per_color(network.mean)) / _per_color(network.deviation)


def _per_color(values: Tensor | tuple[float, ...]) -> Tensor:
    """Return one number for all colors, or one each: (1 or 3, 1, 1) float32."""
    return torch.as_tensor(values, dtype=torch.float32)[:, None, None]


def check_photo(shape: Shape) -> None:
    """Raise ValueError unless the shape is that of an image of one or three colors."""
    if len(shape) != 3 or shape[0] not in (1, COLORS):
        raise ValueError(
            "this encoder needs images of one or three colors, and an example has the "
            f"shape {describe_shape(shape)}"
        )
