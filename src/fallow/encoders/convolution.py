"""Random filters on whitened patches, without sharing patches.

Coates, Ng: Learning Feature Representations with K-means, 2012, sections 3 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import PatchMoments
from fallow.core.contract import Contract
from fallow.core.limits import Finite, NonNegativeInt, PositiveInt
from fallow.core.streams import stream
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.values import Count, Kind, NonNegative, Positive, Real
from fallow.core.view import View
from fallow.encoders.base import (
    Shape,
    describe_shape,
    empty_sum,
    picture_blocks,
    round_digits,
    round_to_grid,
)

SHARE = (
    0.1  # share of the mean variance, added to that of each patch: flat patches stay flat
)
RIDGE = 0.1  # added to the variance in each direction, so that noise is not amplified
NUMBERS = 2**20  # numbers in the patches and responses of one batch: 4 MB stay in the cache
FILTERS = {False: 64, True: 128}
"""Number of filters, by whether images have more than one channel."""
SMALL = 16  # pixels in the shorter direction: smaller images have smaller patches


@explain_constructor
@final
@dataclass(frozen=True)
class Convolution:
    """Average the responses of random filters over the parts of an image.

    Patches are normalized in contrast and whitened, both by aggregates over all sites. An image
    multiplied by a constant, or shifted by one, has the same features.

    Parameters
    ----------
    filters : int, optional
        Number of filters. Default: 64 for images with one channel, 128 with more.
    patch : int, optional
        Height and width of a filter, in pixels. Default: 5, and 3 for images of less than 16 pixels.
    threshold : float
        Response that a filter must exceed before it counts, in standard deviations.
    grid : int
        Parts of the image in each direction. An image has filters x grid x grid features.
    seed : int
        Seed of the filters.
    half : bool
        Round features to float16.

    Notes
    -----
    Sites send the variance of their patches in a first exchange, and the mean and the second
    moments of normalized patches in another: with patches of 5 x 5 pixels in three colors 75 and
    75 x 75 numbers. No patch leaves its site.

    Filters are drawn instead of fitted by k-means, which would take many exchanges, and one
    rectifier replaces two.  The regularizer of the contrast is a share of the mean variance
    of patches; in the paper, it is a constant for pixels from 0 to 255.

    Examples
    --------
    >>> Convolution().width((1, 28, 28)), Convolution(256, patch=6).width((3, 32, 32))
    (1024, 4096)
    """

    filters: PositiveInt | None = None
    patch: PositiveInt | None = None
    threshold: Finite = 0.5
    grid: PositiveInt = 4
    seed: NonNegativeInt = 0
    half: bool = False

    version: ClassVar[int] = 2
    contract: ClassVar[Contract] = Contract(
        title="Convolution",
        paper="Learning Feature Representations with K-means",
        year=2012,
        authors="Coates, Adam and Ng, Andrew Y.",
    )

    def settle(self, shape: Shape) -> Convolution:
        """Return the same encoder with the defaults for images of ``shape``.

        Raises ValueError if images of that shape cannot be encoded.
        """
        if len(shape) != 3:
            raise ValueError(
                "Convolution encodes images, (channels, height, width), and an example "
                f"has the shape {describe_shape(shape)}; use fourier or identity"
            )
        filters = self.filters or FILTERS[shape[0] > 1]
        patch = self.patch or (3 if min(shape[1:]) < SMALL else 5)
        least = patch + self.grid - 1
        if min(shape[1:]) < least:
            raise ValueError(
                f"Convolution with patch={patch} and grid={self.grid} needs images of at "
                f"least {least} pixels in each direction, and these are "
                f"{describe_shape(shape)}"
            )
        return replace(self, filters=filters, patch=patch)

    def width(self, shape: Shape) -> int:
        filters, _ = self._sizes(shape)
        return filters * self.grid**2

    def _sizes(self, shape: Shape) -> tuple[int, int]:
        """Return the number of filters, and their height and width in pixels."""
        settled = self.settle(shape)
        return settled.filters or 1, settled.patch or 1

    # -- server side ------------------------------------------------------------------------

    def fit(self, ask: Ask, shape: Shape) -> State:
        """Fit the filters to the patches of all sites, in two exchanges.

        Returns ``contrast`` (), added to the variance of each patch, ``filters`` (filters, d) and
        ``bias`` (filters,), the response of each filter to the mean patch.
        """
        filters, patch = self._sizes(shape)
        spread = sum_of_all(ask, self.contrast)
        contrast = round_digits(SHARE * spread["variance"] / spread["rows"])
        if not float(contrast) > 0:
            contrast = torch.ones((), dtype=torch.float64)  # every patch is flat
        d = shape[0] * patch**2
        total = sum_of_all(ask, self.patches, contrast=contrast)
        mean = total["patches"] / total["rows"]  # (d,)
        upper = torch.triu_indices(d, d)
        second = empty_sum(d, d)
        second[upper[0], upper[1]] = total["moments"] / total["rows"]
        second = second.triu() + second.triu(1).T  # (d, d)
        variance = second - torch.outer(mean, mean)
        # whitening is (variance + 0.1 I)^(-1/2), by eigenvalues and their directions
        e, u = torch.linalg.eigh(variance + RIDGE * torch.eye(d, dtype=torch.float64))
        e = e.clamp_min(RIDGE)  # below: masked sums of low precision, or a site that lies
        whitening = (u / e.sqrt()) @ u.T
        # The last digits of aggregates depend on the order of sites.  Multiples of 2^-12 do not, so
        # features, and the file that stores them, are the same for every partition.
        drawn = round_to_grid(self._draw(filters, d) @ whitening)
        return {"contrast": contrast, "filters": drawn, "bias": round_to_grid(drawn @ mean)}

    def _draw(self, filters: int, d: int) -> Tensor:
        """Draw directions (filters, d) of length 1, float64."""
        draw = stream(self.seed, "convolution", filters, d)
        directions = torch.randn(filters, d, generator=draw, dtype=torch.float64)
        lengths: Tensor = torch.linalg.vector_norm(directions, dim=1, keepdim=True)
        return directions / lengths

    # -- client side ------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples, and of the mean variance of the patches of their images",
        returns={"rows": Count(of="rows"), "variance": NonNegative(is_wide=True)},
        takes={},
        weighted_by="rows",
        over="all",
    )
    def contrast(self, view: View) -> Values:
        """Return the number of images, and the sum of the mean variances of their patches."""
        images = 0
        variance = torch.zeros((), dtype=torch.float64)
        for patches in self._patches(view):
            images += len(patches)
            centered = patches - patches.mean(1, keepdim=True)
            variance = variance + centered.square().mean((1, 2)).sum()
        return {"rows": float(images), "variance": variance}

    @client.sum(
        "aggregates of numbers of examples, and of the mean and second moments of the patches of "
        "their images",
        returns=PatchMoments(),
        takes={"contrast": NonNegative()},
        weighted_by="rows",
        over="all",
    )
    def patches(self, view: View, contrast: Tensor) -> Values:
        """Return sums over images of the mean and second moments of their patches.

        Each image counts once.  ``contrast`` () is added to the variance of each patch.
        """
        images = 0
        means = torch.zeros((), dtype=torch.float64)
        seconds = torch.zeros((), dtype=torch.float64)
        for patches in self._patches(view):
            patches = normalize_contrast(patches, contrast)  # (b, d, places)
            places = patches.shape[2]
            flat = patches.transpose(1, 2).flatten(0, 1)  # (b * places, d)
            images += len(patches)
            means = means + flat.sum(0) / places
            seconds = seconds + flat.T @ flat / places
        d = len(means)
        upper = torch.triu_indices(d, d)
        return {
            "rows": float(images),
            "patches": means,
            "moments": seconds[upper[0], upper[1]],
        }

    def _patches(self, view: View) -> Iterator[Tensor]:
        """Yield patches (b, d, places) of all images, some images at a time.

        Raises ValueError without images.
        """
        is_empty = True
        for x in picture_blocks(view):
            shape = tuple(x.shape[1:])
            _, patch = self._sizes(shape)
            for images in torch.split(x, self._batch_size(shape)):
                is_empty = False
                yield functional.unfold(images, patch)
        if is_empty:
            raise ValueError("there are no examples to encode")

    def _batch_size(self, shape: Shape) -> int:
        """Return the number of images to process at a time."""
        filters, patch = self._sizes(shape)
        places = (shape[1] - patch + 1) * (shape[2] - patch + 1)
        numbers = places * (shape[0] * patch**2 + filters)
        return max(1, NUMBERS // numbers)

    def state_kinds(self, shape: Shape) -> dict[str, Kind]:
        """Return the kinds of the filters for images of ``shape``."""
        filters, patch = self._sizes(shape)
        return {
            "contrast": Positive(),
            "filters": Real((filters, shape[0] * patch**2)),
            "bias": Real(filters),
        }

    # -- all parties
    # -------------------------------------------------------------------------

    def encode(self, x: Tensor, state: State) -> Tensor:
        shape = tuple(x.shape[1:])
        responses = self._responses(shape, state)
        parts = []
        for images in torch.split(x, self._batch_size(shape)):
            maps = responses(images)
            parts.append(functional.adaptive_avg_pool2d(maps, self.grid).flatten(1))
        return torch.cat(parts)

    def network(self, shape: Shape, state: State) -> nn.Module:
        """Return a network that pools by products, because ONNX has no adaptive pooling."""
        responses = self._responses(shape, state)
        rows = pool_matrix(responses.high, self.grid)
        columns = pool_matrix(responses.wide, self.grid)
        return nn.Sequential(responses, Pooled(rows, columns))

    def _responses(self, shape: Shape, state: State) -> Responses:
        _, patch = self._sizes(shape)
        return Responses(
            state["filters"].float(),
            state["bias"].float() + self.threshold,
            state["contrast"].float(),
            patch,
            (shape[1] - patch + 1, shape[2] - patch + 1),
        )


@final
class Responses(nn.Module):
    """Rectified responses of the filters: images (b, *shape) -> maps (b, filters, high, wide).

    filters: (filters, d); level: (filters,) threshold of a response; contrast: (); size: height and
    width of the maps.
    """

    filters: Tensor
    level: Tensor
    contrast: Tensor

    def __init__(
        self,
        filters: Tensor,
        level: Tensor,
        contrast: Tensor,
        patch: int,
        size: tuple[int, int],
    ) -> None:
        super().__init__()
        tensors = {"filters": filters, "level": level[:, None], "contrast": contrast}
        for name, value in tensors.items():
            self.register_buffer(name, value)
        self.patch = patch
        self.high, self.wide = size

    def forward(self, images: Tensor) -> Tensor:
        # patches are centered later; around 0, float32 is most precise
        centered = (images - images.mean((1, 2, 3), keepdim=True)).float()
        patches = functional.unfold(centered, self.patch)  # (b, d, places)
        patches = normalize_contrast(patches, self.contrast)
        responses = self.filters @ patches
        if torch.is_grad_enabled():  # operations in place have no gradient
            responses = (responses - self.level).clamp(min=0)
        else:
            responses.sub_(self.level).clamp_(min=0)
        return responses.view(-1, len(self.filters), self.high, self.wide)


@final
class Pooled(nn.Module):
    """Means over the parts of each map: (b, filters, high, wide) -> (b, filters * grid * grid).

    rows: (grid, high); columns: (grid, wide).
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, rows: Tensor, columns: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, maps: Tensor) -> Tensor:
        return (self.rows @ maps @ self.columns.T).flatten(1)


def pool_matrix(size: int, grid: int) -> Tensor:
    """Return the weights of adaptive average pooling, (grid, size).

    >>> pool_matrix(3, 2)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """
    weights = torch.zeros(grid, size)
    for part in range(grid):
        first = part * size // grid
        end = -(-(part + 1) * size // grid)
        weights[part, first:end] = 1 / (end - first)
    return weights


def normalize_contrast(patches: Tensor, contrast: Tensor) -> Tensor:
    """Normalize patches (b, d, places) by mean and by the root of variance + ``contrast``."""
    centered = patches - patches.mean(1, keepdim=True)
    variance = centered.square().mean(1, keepdim=True)
    deviation = (variance + contrast).sqrt()
    if torch.is_grad_enabled():  # operations in place have no gradient
        return centered / deviation
    return centered.div_(deviation)
