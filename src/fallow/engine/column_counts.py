"""Counts of the values of columns, their quantiles, and drift between sites.

A site counts its examples in cells, and everything about all sites follows from sums of counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Measure = Literal["cell", "mean", "deviation"]

_STEPS = 32
"""First edges for each factor of 10."""
_SIZES = 10.0 ** (np.arange(-4 * _STEPS, 8 * _STEPS + 1) / _STEPS)
FIRST_EDGES: Floats = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])
"""Edges of the first count of any number, the same for every column and study."""
FIRST_CELLS = len(FIRST_EDGES) + 2
"""Cells of the first count: missing, below the first edge, between edges, above the last one."""
BINS = 64
"""Bins of equal width between the edges of the second count."""
CELLS = BINS + 3
"""Cells of the second count: missing, below, bins, above."""
TAIL = 0.02
"""Share of the values at either end that the bins of equal width need not cover."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
GROUPS = 10
"""Largest number of groups of bins whose shares are compared between sites."""
IN_GROUP = 50
"""Examples of the smallest site for each of these groups."""
REPLICATES = 100
"""Random draws for the distance that equal sites have by chance."""


@dataclass(frozen=True)
class DescribedColumn:
    """A column, or a number computed from a part of each example.

    Attributes
    ----------
    name : str
        Name in tables.
    values : tuple of str
        Levels of a categorical column; empty for numbers.
    start, stop : int
        Range of its numbers in a flattened example.
    measure : {"cell", "mean", "deviation"}
        Number of an example: the cell itself, or mean or standard deviation of the range.
    """

    name: str
    values: tuple[str, ...] = ()
    start: int = 0
    stop: int = 1
    measure: Measure = "cell"

    @property
    def cells(self) -> int:
        """Number of cells of a categorical column: missing, and the levels."""
        return len(self.values) + 1

    def read(self, rows: Tensor) -> Floats:
        """Return the number or the position of the level of each example, NaN if missing.

        rows: (n, d) -> (n,) float64.
        """
        part = rows[:, self.start : self.stop].double()
        if self.values:
            codes = part.argmax(1).double()
            return codes.masked_fill(part.isnan().any(1), math.nan).numpy()
        if self.measure == "mean":
            return part.mean(1).numpy()
        if self.measure == "deviation":
            return part.std(1, correction=0).numpy()
        return part[:, 0].numpy()


# -- counts of a site -----------------------------------------------------------------------------


def count_numbers(values: Floats, edges: Floats) -> Whole:
    """Count numbers (n,) between edges: missing, below, between two edges, and above.

    >>> count_numbers(np.array([math.nan, 0.5, 2.0]), np.array([0.0, 1.0, 2.0])).tolist()
    [1, 0, 1, 0, 1]
    """
    cells = np.searchsorted(edges, values, side="right") + 1
    cells = np.where(np.isnan(values), 0, cells)
    return np.bincount(cells, minlength=len(edges) + 2).astype(np.int64)


def count_levels(codes: Floats, levels: int) -> Whole:
    """Count examples by level: missing, and the levels.

    >>> count_levels(np.array([0.0, 2.0, 2.0, math.nan]), 3).tolist()
    [1, 1, 0, 2]
    """
    cells = np.where(np.isnan(codes), 0, codes + 1).astype(np.int64)
    return np.bincount(cells, minlength=levels + 1).astype(np.int64)


# -- sums of all sites ----------------------------------------------------------------------------


def choose_edges(first: Floats) -> Floats:
    """Return edges of bins of equal width that cover nearly all values, (BINS + 1,).

    first: (FIRST_CELLS,) counts.  The width is 1, 2 or 5 times a power of 10.
    """
    counts = first[1:]
    total = counts.sum()
    if total <= 0:
        return np.linspace(0.0, 1.0, BINS + 1)
    shares = counts.cumsum() / total
    below = int(np.argmax(shares > TAIL))
    above = int(np.argmax(shares >= 1 - TAIL))
    last = len(FIRST_EDGES) - 1
    low = FIRST_EDGES[min(max(below - 1, 0), last - 1)]
    high = FIRST_EDGES[max(min(above, last), 1)]
    rough = (high - low) / (BINS - 2)
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(power * step for step in (1, 2, 5, 10) if power * step >= rough)
    start = math.floor(low / width)
    return np.asarray((start + np.arange(BINS + 1)) * width, dtype=np.float64)


@dataclass(frozen=True)
class Quantile:
    """A quantile, with the bounds between which it lies; None where it is unknown."""

    value: float | None
    low: float | None
    high: float | None


def find_quantile(counts: Floats, edges: Floats, share: float) -> Quantile:
    """Return a quantile from counts (CELLS,) between edges.

    The value is interpolated in its bin, whose edges are the bounds.
    """
    total = counts[1:].sum()
    if total <= 0:
        return Quantile(None, None, None)
    at_edges = counts[1:-1].cumsum()  # values below each edge
    wanted = share * total
    reached = np.flatnonzero(at_edges >= wanted)
    if not len(reached):
        return Quantile(None, float(edges[-1]), None)
    end = int(reached[0])
    high = float(edges[end])
    if end == 0:
        return Quantile(None, None, high)
    low = float(edges[end - 1])
    before = at_edges[end - 1]
    part = (wanted - before) / (at_edges[end] - before)
    return Quantile(float(low + part * (high - low)), low, high)


# -- drift ----------------------------------------------------------------------------------------


def jensen_shannon(p: Floats, q: Floats) -> Floats:
    """Return the Jensen-Shannon distance of distributions, (..., k) -> (...), from 0 to 1.

    With m = (p + q) / 2 it is sqrt((KL(p | m) + KL(q | m)) / 2), with logarithms to base 2 (Lin,
    Divergence measures based on the Shannon entropy, 1991).

    >>> float(jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])))
    1.0
    """
    middle = (p + q) / 2
    half = np.zeros(np.broadcast(p, q).shape)
    for side in (p, q):
        ratio = np.divide(side, middle, out=np.ones_like(half), where=side > 0)
        half = half + side * np.log2(ratio)
    return np.asarray(np.sqrt(np.clip(half.sum(-1) / 2, 0.0, 1.0)), dtype=np.float64)


def measure_drift(of_sites: Floats, is_ordered: bool) -> tuple[Floats, Floats]:
    """Return the distance of each site from all others, and the one that is due to chance, (sites,).

    The distance is that of `jensen_shannon` between the shares of levels, or of groups of bins with
    nearly equal numbers of examples.  The second number is the 95 % quantile of the distance if all
    sites draw from the same distribution.  Both are NaN for a site without values, and without
    values at other sites.

    Parameters
    ----------
    of_sites : array
        (sites, cells) counts without missing values.
    is_ordered : bool
        Whether adjacent cells may be joined to groups.
    """
    sizes = of_sites.sum(1)
    total = of_sites.sum(0)
    is_known = (sizes > 0) & (total.sum() > sizes)
    if not is_known.any():
        return np.full(len(sizes), np.nan), np.full(len(sizes), np.nan)
    shares = total / total.sum()
    counts = of_sites
    rng = np.random.default_rng(0)
    # (replicates, sites, cells)
    drawn = np.stack(
        [rng.multinomial(round(n), shares, size=REPLICATES) for n in sizes], axis=1
    )
    if is_ordered:
        groups = int(np.clip(sizes[is_known].min() // IN_GROUP, 2, GROUPS))
        starts = _find_groups(total, groups)
        counts = np.add.reduceat(counts, starts, axis=-1)
        drawn = np.add.reduceat(drawn, starts, axis=-1)
    distances = _distances_from_others(counts)
    chances = np.nanquantile(_distances_from_others(drawn.astype(np.float64)), 0.95, axis=0)
    return np.where(is_known, distances, np.nan), np.where(is_known, chances, np.nan)


def _distances_from_others(counts: Floats) -> Floats:
    """Return the distance of each site from all others, (..., sites, cells) -> (..., sites)."""
    others = counts.sum(-2, keepdims=True) - counts
    shares = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
    return jensen_shannon(shares, others / np.maximum(others.sum(-1, keepdims=True), 1))


def _find_groups(total: Floats, groups: int) -> Whole:
    """Return the first cells of groups of adjacent cells with nearly equal numbers of examples."""
    shares = total.cumsum() / total.sum()
    group = np.minimum((shares * groups - 1e-9).astype(np.int64), groups - 1)
    return np.unique(group, return_index=True)[1]


def join_labels(labels: Tensor, unlabeled: int) -> Floats:
    """Return labels (n,) and NaN for each unlabeled example, (n + unlabeled,)."""
    return torch.cat([labels.double(), torch.full((unlabeled,), math.nan)]).double().numpy()
