"""Draws with replacement over many sites, each of which sees only its own examples.

Each example has an exponential clock with a rate.  The strikes of all clocks in order of time are
draws with replacement in proportion to the rates.  Each site simulates the clocks of its own
examples, and the draws end when enough distinct examples have been drawn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

BINS = 4096  # number of bins of a histogram of first strikes
LATEST = 60.0  # the log of the time of a first strike lies between -60 and 60


class Clocks(NamedTuple):
    """One clock per example, (m,): its rate and the time of the first strike.

    The time is infinity at rate 0, and NaN for an example without a rate.
    """

    rate: Tensor
    first: Tensor

    @property
    def reachable(self) -> int:
        """Number of examples that can be drawn."""
        return int((self.rate > 0).sum())

    @property
    def order(self) -> Tensor:
        """Return examples in the order of their first draw; then those never drawn, then those
        without a rate."""
        return self.first.argsort(stable=True)

    def is_drawn(self, end: float) -> Tensor:
        """Return a mask of examples drawn by the time exp(``end``), (m,)."""
        return (self.first.log() <= end) & (self.rate > 0)

    def strikes(self, end: float, generator: torch.Generator) -> Tensor:
        """Return the number of draws of each example by then, (m,).

        After its first strike, a clock restarts: the number of further strikes is Poisson.
        """
        u = torch.rand(self.rate.shape, generator=generator, dtype=torch.float64)
        is_drawn = self.is_drawn(end)
        time_left = (math.exp(end) - self.first[is_drawn]).clamp_min(0)
        times = torch.zeros_like(self.rate)
        times[is_drawn] = 1 + poisson(self.rate[is_drawn] * time_left, u[is_drawn])
        return times

    def histogram(self, low: float, high: float) -> Tensor:
        """Count examples by the log of their first strike, in bins (low, ...] to (..., high].  ->
        (BINS,)"""
        log = self.first.log()
        inside = log[(log > low) & (log <= high)]
        at = torch.bucketize(inside, edges(low, high)) - 1
        return torch.bincount(at, minlength=BINS).double()


def start_clocks(rate: Tensor, generator: torch.Generator) -> Clocks:
    """Start clocks with these rates, (m,) float64; equal generators give equal clocks."""
    wait = torch.empty_like(rate).exponential_(generator=generator).clamp_min(1e-20)
    return Clocks(rate.nan_to_num(0.0), wait / rate)


def poisson(mean: Tensor, u: Tensor) -> Tensor:
    """Return Poisson numbers from one uniform number each: the smallest k with P(N <= k) >= u.

    A mean that differs in its last bits gives the same number, and does not affect later numbers,
    which torch does not guarantee.

    >>> poisson(torch.tensor([0.0, 2.0, 2.0]), torch.tensor([0.99, 0.13, 0.14]))
    tensor([0., 0., 1.])
    """
    low = torch.full_like(mean, -1.0)
    high = (mean + 40 * (mean + 1).sqrt()).ceil()
    widest = max(high.tolist(), default=1.0)
    for _ in range(math.ceil(math.log2(widest)) + 1):  # bisection
        middle = ((low + high) / 2).floor()
        is_enough = torch.special.gammaincc(middle + 1, mean) >= u
        low = torch.where(is_enough, low, middle)
        high = torch.where(is_enough, middle, high)
    return high.clamp_min(0)


def edges(low: float, high: float) -> Tensor:
    """Return the bounds of the bins, (BINS + 1,)."""
    return torch.linspace(low, high, BINS + 1, dtype=torch.float64)
