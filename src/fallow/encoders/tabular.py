"""Columns of a table, their normal scores and random Fourier features, side by side.

Normal scores: van der Waerden, 1952.  The other parts are `identity` and `fourier`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import moments
from fallow.core.contract import Contract
from fallow.core.limits import NonNegativeInt, PositiveFinite, PositiveInt
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.values import Count, Kind, NonNegative, Real
from fallow.core.view import View
from fallow.encoders.base import Shape, all_blocks, column_moments, round_to_grid
from fallow.encoders.fourier import Fourier, Waves

FAR = 8.0  # standard deviations at which columns are clipped, against outliers
KNOTS = 65
"""Number of values of a column between which normal scores are interpolated."""
BENT = 4.0  # knots are 27 times as dense at the mean as at the ends
LEAST = 1 / 400  # share of examples beyond the smallest and the largest score
BATCH_NUMBERS = 2**20  # numbers in the weights of knots of one batch, 4 MB


def list_knots() -> Tensor:
    """Return values in standard deviations, from -8 to 8 and denser near 0: (KNOTS,) float64."""
    even = torch.linspace(-1, 1, KNOTS, dtype=torch.float64)
    return FAR * (BENT * even).sinh() / math.sinh(BENT)


@explain_constructor
@final
@dataclass(frozen=True)
class Tabular:
    """Put columns of a table, their normal scores and Fourier features side by side.

    A linear model of them can be linear, monotone in each column, or nonlinear.  The columns with
    their normal scores have the same weight as the Fourier features, which feature scaling would
    undo: ``standardize=auto`` leaves these features as they are.

    Parameters
    ----------
    features : int
        Number of Fourier features.  A table of d columns has 2 d more features.
    gamma : float
        Length scale of the Fourier features, as in `Fourier`.
    seed : int
        Seed of their directions and phases.
    half : bool
        Round features to float16.

    Notes
    -----
    Sites send the number of examples, sums and squares of each column and, in another exchange,
    numbers of examples in 66 intervals of each column, over all examples, labeled or not.  The
    normal score of a value is the quantile of the standard normal distribution at the share of
    examples below the value.  It is interpolated between the ends of the intervals.

    More features disclose more.  To send the fewest numbers, use ``identity``.

    References
    ----------
    van der Waerden. Order Tests for the Two-Sample Problem and their Power. 1952.

    Examples
    --------
    >>> Tabular(features=256).width((13,))
    282
    """

    features: PositiveInt = 512
    gamma: PositiveFinite = 0.25
    seed: NonNegativeInt = 0
    half: bool = False

    version: ClassVar[int] = 1
    is_scaled: ClassVar[bool] = True
    contract: ClassVar[Contract] = Contract(
        title="Columns, normal scores and Fourier features",
        paper="Order Tests for the Two-Sample Problem and their Power",
        year=1952,
        authors="van der Waerden, Bartel Leendert",
    )

    @property
    def fourier(self) -> Fourier:
        """The encoder of the Fourier features."""
        return Fourier(self.features, self.gamma, self.seed, units="columns")

    def width(self, shape: Shape) -> int:
        return 2 * math.prod(shape) + self.features

    # -- server side ------------------------------------------------------------------------

    def fit(self, ask: Ask, shape: Shape) -> State:
        """Return the state of `Fourier`, and ``scores`` (d, KNOTS): normal scores of the knots.

        Scores have mean 0 and variance 1 over all examples, nearly, and are 0 for a constant column.
        """
        state = self.fourier.fit(ask, shape)  # asks for ``moments``
        units = {"center": state["center"], "spread": state["spread"]}
        counts = sum_of_all(ask, self.intervals, None, **units)["counts"]
        scores = round_to_grid(score_knots(counts.round().clamp_min(0)))
        varies = state["spread"][:, None] > 0
        return {**state, "scores": torch.where(varies, scores, 0.0)}

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples, of each column and of its squares",
        returns=moments("columns", "squares", "cells"),
        takes={},
        weighted_by="rows",
        over="all",
    )
    def moments(self, view: View) -> Values:
        return column_moments(view)

    @client.sum(
        "aggregates of numbers of examples in intervals of each column",
        returns={"counts": Count(("cells", KNOTS + 1), of="rows")},
        takes={"center": Real("cells"), "spread": NonNegative("cells")},
        over="all",
    )
    def intervals(self, view: View, center: Tensor, spread: Tensor) -> Values:
        """Return the number of examples between knots, below and above: (d, KNOTS + 1)."""
        d = len(center)
        cells = KNOTS + 1
        counts = torch.zeros(d * cells, dtype=torch.float64)
        first = cells * torch.arange(d)
        for block in all_blocks(view):  # (b, d)
            at = torch.bucketize(in_deviations(block, center, spread), list_knots())
            counts += (at + first).flatten().bincount(minlength=d * cells)
        return {"counts": counts.view(d, cells)}

    def state_kinds(self, shape: Shape) -> dict[str, Kind]:
        """Return the kinds of the state of `Fourier`, and of the scores."""
        d = math.prod(shape)
        return {**self.fourier.state_kinds(shape), "scores": Real((d, KNOTS))}

    # -- all parties ------------------------------------------------------------------------

    def encode(self, x: Tensor, state: State) -> Tensor:
        shape = tuple(x.shape[1:])
        network = self.network(shape, state)
        size = max(1, BATCH_NUMBERS // (KNOTS * math.prod(shape)))
        return torch.cat([network(rows) for rows in torch.split(x, size)])

    def network(self, shape: Shape, state: State) -> SideBySide:
        own = {name: value for name, value in state.items() if name != "scores"}
        waves = self.fourier.network(shape, own)
        return SideBySide(waves, state["center"], state["spread"], state["scores"])


def in_deviations(x: Tensor, center: Tensor, spread: Tensor) -> Tensor:
    """Return columns (b, d) in standard deviations from near the mean; 0 for a constant column."""
    away = (x.flatten(1).double() - center) / torch.where(spread > 0, spread, 1.0)
    return torch.where(spread > 0, away, 0.0)


def score_knots(counts: Tensor) -> Tensor:
    """Return normal scores of the knots, of mean 0 and variance 1 over examples.

    counts: (d, KNOTS + 1) examples below, between and above the knots -> (d, KNOTS).
    """
    rows = counts.sum(1, keepdim=True).clamp_min(1)
    below = counts.cumsum(1)[:, :-1] / rows  # (d, KNOTS)
    scores = torch.special.ndtri(below.clamp(LEAST, 1 - LEAST))
    ends = torch.cat([scores[:, :1], scores, scores[:, -1:]], 1)
    middle = (ends[:, 1:] + ends[:, :-1]) / 2  # of each interval
    mean = (counts * middle).sum(1, keepdim=True) / rows
    variance = (counts * (middle - mean).square()).sum(1, keepdim=True) / rows
    return torch.where(variance > 0, (scores - mean) / variance.sqrt(), 0.0)


@final
class SideBySide(nn.Module):
    """Columns, normal scores and Fourier features of examples, (b, *shape) -> (b, 2 d + D).

    center, spread: (d,); scores: (d, KNOTS).  The mean square norm of a row is about 1.
    """

    center: Tensor
    spread: Tensor
    scores: Tensor
    knots: Tensor
    gaps: Tensor

    def __init__(
        self, waves: Waves, center: Tensor, spread: Tensor, scores: Tensor
    ) -> None:
        super().__init__()
        self.waves = waves
        knots = list_knots()
        tensors = {
            "center": center,
            "spread": spread,
            "scores": scores.float(),
            "knots": knots.float(),
            "gaps": knots.diff().float(),
        }
        for name, value in tensors.items():
            self.register_buffer(name, value)
        varying = max(int((spread > 0).sum()), 1)
        self.height = math.sqrt(1 / (4 * varying))  # two numbers of each column; half of 1

    def forward(self, x: Tensor) -> Tensor:
        columns = in_deviations(x, self.center, self.spread).clamp(-FAR, FAR).float()
        scores = (self.weigh_knots(columns) * self.scores).sum(2)
        linear = torch.cat([columns, scores], 1) * self.height
        return torch.cat([linear, self.waves(x) * math.sqrt(1 / 2)], 1)

    def weigh_knots(self, columns: Tensor) -> Tensor:
        """Return the weights of the knots in linear interpolation, (b, d) -> (b, d, KNOTS)."""
        away = columns[:, :, None] - self.knots
        rising = 1 + away[:, :, 1:] / self.gaps  # 0 at the knot before, 1 at the knot
        falling = 1 - away[:, :, :-1] / self.gaps
        one = torch.ones_like(columns)[:, :, None]
        weights = torch.minimum(
            torch.cat([one, rising], 2),
            torch.cat([falling, one], 2),
        )
        return weights.clamp(0, 1)
