"""Random filters on whitened patches (Coates, Ng: Learning Feature Representations with K-means,
2012), sections 3 and 5, where no patch leaves its site."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn import functional

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.contract import Contract
from fallow.core.refusal import Refusal
from fallow.core.streams import stream
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.encoders.base import (
    FINE,
    Shape,
    check_parts,
    check_positive,
    describe_shape,
    round_to_grid,
)
from fallow.encoders.rows import empty_sum, picture_blocks

CONTRAST = 0.05  # added to the variance of a patch, so that flat patches stay flat
RIDGE = 0.1  # added to the variance in each direction, so that noise is not blown up
NUMBERS = 2**24  # in the patches and responses of one batch: 64 MB
THRESHOLDS = {True: 0.9, False: 0.3}
GRIDS = {True: 3, False: 4}
"""By whether patches are whitened."""


@final
@dataclass(frozen=True)
class Convolution:
    """What random filters say of a picture, averaged over parts of it.

    filters: how many.  patch: their height and width in pixels.  whiten: whether patches are
    normalised in contrast and whitened, "auto": where pictures have colours.  threshold: what a
    filter must say before it counts; None: 0.9 with whitening and 0.3 without.  grid: parts of the
    picture in each direction; None: 3 with whitening and 4 without.  seed: of the filters.
    half: features are rounded to float16.  D is filters x grid x grid.

    With whitening sites tell the mean and the second moments of patches: `patch` squared times
    the channels is their size, such as 108 x 108.  No patch leaves its site.

    Notes
    -----
    Filters are drawn, not found by k-means, which would take many exchanges, and one rectifier
    takes the place of two.

    >>> Convolution().width((1, 28, 28)), Convolution(512, patch=6).width((3, 32, 32))
    (1024, 4608)
    """

    filters: int = 64
    patch: int = 5
    whiten: bool | Literal["auto"] = "auto"
    threshold: float | None = None
    grid: int | None = None
    seed: int = 0
    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(
        title="Convolution",
        paper="Learning Feature Representations with K-means",
        year=2012,
        sum={
            "patches": "totals over sites of rows, and of the mean and second moments of the "
            "patches of their pictures"
        },
    )

    def __post_init__(self) -> None:
        check_positive(self, "filters", "patch")
        if self.grid is not None:
            check_positive(self, "grid")
        if not (isinstance(self.whiten, bool) or self.whiten == "auto"):
            raise ValueError(
                f"Convolution: whiten is {self.whiten!r}; use true, false or 'auto'"
            )
        if self.whiten is False:
            contract = Convolution.contract.without("patches")
            object.__setattr__(self, "contract", contract)

    def settle(self, shape: Shape) -> Convolution:
        """The same encoder with what only the shape of pictures can say; ValueError where pictures
        of that shape cannot be encoded."""
        if len(shape) != 3:
            raise ValueError(
                f"Convolution encodes pictures, (channels, height, width), and a row is "
                f"{describe_shape(shape)}; use fourier or identity"
            )
        whiten = self.whiten
        if whiten == "auto":
            whiten = shape[0] > 1  # whether pictures have colours
        threshold = self.threshold
        if threshold is None:
            threshold = THRESHOLDS[whiten]
        grid = self.grid or GRIDS[whiten]
        least = self.patch + grid - 1
        if min(shape[1:]) < least:
            raise ValueError(
                f"Convolution with patch={self.patch} and grid={grid} needs pictures of {least} "
                f"pixels and more in each direction, and these are {describe_shape(shape)}"
            )
        return replace(self, whiten=whiten, threshold=threshold, grid=grid)

    def width(self, shape: Shape) -> int:
        grid = self.settle(shape).grid or 1
        return self.filters * grid**2

    # -- server half ------------------------------------------------------------------------

    def fit(self, ask: Ask, shape: Shape) -> State:
        """``filters`` (filters, d) and ``bias`` (filters,), where patches are whitened."""
        if not self.settle(shape).whiten:
            return {}
        d = shape[0] * self.patch**2
        total = sum_of_all(ask, "patches")
        mean = total["patches"] / total["rows"]  # (d,)
        upper = torch.triu_indices(d, d)
        second = empty_sum(d, d)
        second[upper[0], upper[1]] = total["moments"] / total["rows"]
        second = second.triu() + second.triu(1).T  # (d, d)
        variance = second - torch.outer(mean, mean)
        # whitening is (variance + 0.1 I)^(-1/2), by eigenvalues and their directions
        e, u = torch.linalg.eigh(variance + RIDGE * torch.eye(d, dtype=torch.float64))
        if not bool((e > 0).all()):
            raise ValueError(
                "the second moments of patches are lost in masked sums: raise privacy.bound's "
                "precision by a smaller bound, or set whiten=false"
            )
        whitening = (u / e.sqrt()) @ u.T
        directions = self._draw(d)
        directions = directions / directions.norm(dim=1, keepdim=True)
        # The last digits of totals depend on the order in which sites are added.  Multiples of
        # 2^-12 do not, so features, and the file that keeps them, are the same for every partition.
        filters = round_to_grid(directions @ whitening)
        return {"filters": filters, "bias": round_to_grid(filters @ mean)}

    def _draw(self, d: int) -> Tensor:
        """Random numbers (filters, d), float64."""
        draw = stream(self.seed, "convolution", self.filters, d)
        return torch.randn(self.filters, d, generator=draw, dtype=torch.float64)

    # -- site half --------------------------------------------------------------------------

    def patches(self, view: View) -> Answer:
        """Of each picture the mean over its patches: pictures count alike."""
        rows = 0
        means: Tensor | None = None
        seconds: Tensor | None = None
        for x in picture_blocks(view):
            for few in torch.split(x, self._batch_size(tuple(x.shape[1:]))):
                patches = functional.unfold(few, self.patch)
                patches = normalise_contrast(patches)  # (b, d, places)
                places = patches.shape[2]
                flat = patches.transpose(1, 2).flatten(0, 1)  # (b * places, d)
                rows += len(few)
                means = _add(means, flat.sum(0) / places)
                seconds = _add(seconds, flat.T @ flat / places)
        if means is None or seconds is None:
            raise ValueError("there are no rows to encode")
        d = len(means)
        upper = torch.triu_indices(d, d)
        return {
            "rows": float(rows),
            "patches": means,
            "moments": seconds[upper[0], upper[1]],
        }

    def _batch_size(self, shape: Shape) -> int:
        """Rows at a time."""
        places = (shape[1] - self.patch + 1) * (shape[2] - self.patch + 1)
        numbers = places * (shape[0] * self.patch**2 + self.filters)
        return max(1, NUMBERS // numbers)

    def check_state(self, shape: Shape, state: State) -> None:
        """Raise Refusal for filters that follow from no patches.

        Filters are the drawn directions times a whitening matrix, whose eigenvalues lie between
        1 / √(d + 0.1) and 1 / √0.1, as normalised patches of d numbers have squared lengths below
        d; and what filters say of the mean patch is no more than its length lets them.
        """
        title = self.contract.title
        if not self.settle(shape).whiten:
            check_parts(title, state, {})
            return
        d = shape[0] * self.patch**2
        check_parts(title, state, {"filters": (self.filters, d), "bias": (self.filters,)})
        filters = state["filters"].double()
        directions = self._draw(d)
        directions = directions / directions.norm(dim=1, keepdim=True)

        step = 2.0**-FINE * max(filters.shape) ** 0.5  # of rounding to a grid
        most = RIDGE**-0.5
        least = (d + RIDGE) ** -0.5
        norms = filters.norm(dim=1)
        if bool((norms > most + step).any()) or bool((norms < least - step).any()):
            raise Refusal(
                f"a filter that {title} was fitted to has the length {float(norms.max()):.4g} or "
                f"{float(norms.min()):.4g}, and whitened directions have {least:.4g} to {most:.4g}"
            )
        whitening = torch.linalg.lstsq(directions, filters, driver="gelsd").solution
        missed = (directions @ whitening - filters).abs().max()
        if self.filters >= d:
            # as many filters as numbers in a patch tell the whole matrix: it is symmetric, and
            # none of its directions is longer than whitening makes it, but for rounding
            largest = float(torch.linalg.matrix_norm(whitening, 2))
            skew = float((whitening - whitening.T).abs().max())
            room = step * float(torch.linalg.matrix_norm(torch.linalg.pinv(directions), 2))
            if largest > most + room or skew > 2 * room or float(missed) > step:
                raise Refusal(
                    f"the filters that {title} was fitted to are not its directions, whitened"
                )
        bias = state["bias"].double().abs()
        if bool((bias > norms * d**0.5 + step).any()):
            raise Refusal(
                f"a bias that {title} was fitted to is {float(bias.max()):.4g}, beyond what its "
                "filter can say of any patch"
            )

    # -- everywhere -------------------------------------------------------------------------

    def encode(self, x: Tensor, state: State) -> Tensor:
        shape = tuple(x.shape[1:])
        chosen = self.settle(shape)
        grid = chosen.grid or 1
        filters, bias = self._filters(shape, state)
        level = (bias + (chosen.threshold or 0.0))[:, None]  # (filters, 1)
        high = shape[1] - self.patch + 1
        wide = shape[2] - self.patch + 1
        parts = []
        for block in torch.split(x, self._batch_size(shape)):
            patches = functional.unfold(block.float(), self.patch)  # (b, d, places)
            if chosen.whiten:
                patches = normalise_contrast(patches)
            said = (filters @ patches - level).clamp_(min=0)  # (b, filters, places)
            maps = said.view(len(block), self.filters, high, wide)
            parts.append(functional.adaptive_avg_pool2d(maps, grid).flatten(1))
        return torch.cat(parts)

    def _filters(self, shape: Shape, state: State) -> tuple[Tensor, Tensor]:
        """Filters (filters, d) and what each says of the mean patch (filters,), float32."""
        if self.settle(shape).whiten:
            return state["filters"].float(), state["bias"].float()
        drawn = self._draw(shape[0] * self.patch**2)
        drawn = drawn - drawn.mean(1, keepdim=True)
        filters = round_to_grid(drawn / drawn.norm(dim=1, keepdim=True))
        return filters.float(), torch.zeros(self.filters)


def _add(total: Tensor | None, more: Tensor) -> Tensor:
    """A total with one addend more; None is the total of nothing."""
    if total is None:
        return more
    return total + more


def normalise_contrast(patches: Tensor) -> Tensor:
    """Patches (b, d, places) in units of their own contrast, about their own mean."""
    away = patches - patches.mean(1, keepdim=True)
    return away / (away.square().mean(1, keepdim=True) + CONTRAST).sqrt()
