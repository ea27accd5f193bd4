"""Random Fourier features (Rahimi, Recht: Random Features for Large-Scale Kernel Machines, 2007).

Algorithm 1 for the Gaussian kernel, with a length scale from aggregates over sites.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import moments
from fallow.core.contract import Contract
from fallow.core.limits import NonNegativeInt, PositiveFinite, PositiveInt
from fallow.core.streams import stream
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.values import Kind, NonNegative, Positive, Real
from fallow.core.view import View
from fallow.encoders.base import Shape, column_moments, mean_and_variance, round_digits

Units = Literal["auto", "columns", "none"]
BATCH = 512  # examples at a time: their features, 2 MB, stay in the cache
GAMMAS = (0.05, 0.1, 0.25, 0.5, 1.0)
USUAL = 0.25
SKETCH = 256  # number of features for the comparison of gammas
ASIDE = 0.1234  # arbitrary offset, so that ratios of small numbers are never halfway


@explain_constructor
@final
@dataclass(frozen=True)
class Fourier:
    """Approximate a Gaussian kernel with random Fourier features.

    The inner products of features approximate exp(-|x - x'|^2 / (2 l^2)).

    Parameters
    ----------
    features : int
        Number of features D.
    gamma : float or "auto"
        Length scale: l^2 divided by the mean of |x - x'|^2 over pairs of examples; smaller values
        give rougher functions.  "auto" selects 0.05, 0.1, 0.25, 0.5 or 1 by the leave-one-out loss
        of closed-form solutions on the initial labeled set of all sites (`Tuning`).
    seed : int
        Seed of directions and phases.
    units : {"auto", "columns", "none"}
        "columns" divides each column by its standard deviation, "none" uses examples as they are,
        and "auto" divides tables but not images.
    half : bool
        Round features to float16.

    Notes
    -----
    Sites send the number of examples, and sums and squares of each column, over all examples,
    labeled or not.  The variances follow from these, and the mean of |x - x'|^2 is twice their sum.

    Standard deviations and l are rounded to twelve binary digits, so l^2 is accurate to one part in
    a thousand.  Features are then identical for every partition.

    References
    ----------
    Rahimi, Recht. Random Features for Large-Scale Kernel Machines. 2007.

    Examples
    --------
    >>> Fourier(features=256).width((13,))
    256
    """

    features: PositiveInt = 1024  # D
    gamma: PositiveFinite | Literal["auto"] = USUAL  # in {0.05, 0.1, 0.25, 0.5, 1}
    seed: NonNegativeInt = 0
    units: Units = "auto"
    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(
        title="Fourier",
        paper="Random Features for Large-Scale Kernel Machines",
        year=2007,
        authors="Rahimi, Ali and Recht, Benjamin",
    )

    def width(self, shape: Shape) -> int:
        return self.features

    # -- server side ------------------------------------------------------------------------

    def fit(self, ask: Ask, shape: Shape) -> State:
        """Return ``length`` (): l, and ``center``, ``spread`` (d,) of columns.

        A constant column has spread 0.  If gamma is to be selected, ``distance`` (), the mean of |x
        - x'|^2, replaces l.  Raises ValueError if all examples are equal.
        """
        total = sum_of_all(ask, self.moments)
        mean, variance = mean_and_variance(total)  # (d,)
        deviation = round_digits(variance.sqrt())
        if not bool((deviation > 0).any()):
            raise ValueError(
                "all examples of all sites are equal, so there is nothing to encode; add "
                "other examples"
            )
        is_table = len(shape) == 1
        spread = torch.ones_like(deviation)
        if self.units == "columns" or (self.units == "auto" and is_table):
            spread = deviation
        # A shift changes no distance, and float32 is most precise near 0.  Whole deviations do
        # not depend on the order of sites.
        whole = (mean / torch.where(deviation > 0, deviation, 1.0) + ASIDE).round()
        center = torch.where(deviation > 0, whole * deviation, 0.0)
        spread = torch.where(deviation > 0, spread, 0.0)
        distance = 2 * torch.where(spread > 0, deviation / spread, 0.0).square().sum()
        columns = {"center": center, "spread": spread}
        if self.gamma == "auto":
            return {"distance": round_digits(distance), **columns}
        return {"length": round_digits((self.gamma * distance).sqrt()), **columns}

    @property
    def is_tuned(self) -> bool:
        """Whether gamma is selected by the initial labeled set."""
        return self.gamma == "auto"

    def candidates(self, state: State) -> list[State]:
        """Return the fitted state for each gamma."""
        return [self._take_gamma(state, gamma) for gamma in GAMMAS]

    def usual(self, state: State) -> State:
        """Return the fitted state without labels for a selection."""
        return self._take_gamma(state, USUAL)

    def sketch(self) -> Fourier:
        """Return the encoder with fewer features, which reduces messages to a sixteenth."""
        return replace(self, features=min(self.features, SKETCH))

    def _take_gamma(self, state: State, gamma: float) -> State:
        length = round_digits((gamma * state["distance"]).sqrt())
        return {
            "gamma": torch.tensor(gamma, dtype=torch.float64),
            "length": length,
            "center": state["center"],
            "spread": state["spread"],
        }

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

    def state_kinds(self, shape: Shape) -> dict[str, Kind]:
        """Return the kinds of the length and of the units of the columns."""
        kinds = {"length": Positive(), **_units(shape)}
        if self.is_tuned:
            kinds["gamma"] = Positive()
        return kinds

    def untuned_kinds(self, shape: Shape) -> dict[str, Kind]:
        """Return the kinds of the mean squared distance and of the units of the columns."""
        return {"distance": NonNegative(), **_units(shape)}

    @property
    def n_candidates(self) -> int:
        """Number of candidates."""
        return len(GAMMAS)

    # -- all parties ------------------------------------------------------------------------

    def encode(self, x: Tensor, state: State) -> Tensor:
        network = self.network(tuple(x.shape[1:]), state)
        features = torch.empty(len(x), self.features)
        blocks = zip(torch.split(x, BATCH), torch.split(features, BATCH), strict=True)
        for examples, result in blocks:
            result.copy_(network(examples))
        return features

    def network(self, shape: Shape, state: State) -> Waves:
        normal, phase = draw_waves(self.seed, self.features, math.prod(shape))
        w = (normal / state["length"]).float()  # (D, d)
        c = (2 * math.pi * phase).float()  # (D,)
        return Waves(w, c, state["center"], state["spread"])


@lru_cache(maxsize=1)
def draw_waves(seed: int, features: int, d: int) -> tuple[Tensor, Tensor]:
    """Return normal directions (features, d) and uniform phases (features,) in float64.

    The last draw is cached, because examples are encoded in blocks.
    """
    draw = stream(seed, "fourier", features, d)
    normal = torch.randn(features, d, generator=draw, dtype=torch.float64)
    phase = torch.rand(features, generator=draw, dtype=torch.float64)
    return normal, phase


def _units(shape: Shape) -> dict[str, Kind]:
    """Return the kinds of the center and the spread of each column."""
    d = math.prod(shape)
    return {"center": Real(d), "spread": NonNegative(d)}


@final
class Waves(nn.Module):
    """Compute √(2/D) cos(w z + c) of examples z in units of columns.

    w: (D, d); c: (D,); center, spread: (d,); a column of spread 0 is ignored.
    """

    w: Tensor
    c: Tensor
    center: Tensor
    spread: Tensor

    def __init__(self, w: Tensor, c: Tensor, center: Tensor, spread: Tensor) -> None:
        super().__init__()
        tensors = {"w": w, "c": c, "center": center, "spread": spread}
        for name, value in tensors.items():
            self.register_buffer(name, value)
        self.height = math.sqrt(2 / len(w))

    def forward(self, x: Tensor) -> Tensor:
        spread = torch.where(self.spread > 0, self.spread, 1.0)
        away = torch.sub(x.flatten(1).double(), self.center).div_(spread)
        near = away.masked_fill_(self.spread <= 0, 0.0).float()
        return torch.addmm(self.c, near, self.w.T).cos_().mul_(self.height)
