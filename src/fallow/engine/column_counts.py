"""Counts of the values of columns: cells of at least some examples, quantiles, and drift.

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
        """Number of cells of a categorical column: missing, levels, suppressed."""
        return len(self.values) + 2

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


def merge_small(
    groups: Whole, cells: Whole, n_cells: int, least: int
) -> tuple[Whole, Whole]:
    """Count examples in cells, each of which has at least ``least`` examples of one group.

    In the order of the cells of a group, a cell with fewer examples is counted with the next
    ones. The rest at the end of the group is counted with the last cell that has enough.
    Fewer examples
    than ``least`` in a group are not counted.

    Parameters
    ----------
    groups, cells : array
        (n,) group and cell of each example; groups have whole ranges of cells, in their order.
    n_cells : int
        Number of cells.
    least : int
        Smallest count.

    Returns
    -------
    counts : array
        (n_cells,) counts.
    joined : array
        (n,) for each example a number that is equal for all that are counted together, increasing
        with the cells; -1 if it is not counted.

    >>> cells = np.array([0, 1, 1, 1, 3, 4])
    >>> merge_small(np.zeros(6, dtype=int), cells, 6, 3)
    (array([0, 6, 0, 0, 0, 0]), array([0, 0, 0, 0, 0, 0]))
    >>> merge_small(np.zeros(6, dtype=int), cells, 6, 2)[0]
    array([0, 4, 0, 0, 2, 0])
    """
    counts = np.zeros(n_cells, dtype=np.int64)
    joined = np.full(len(cells), -1, dtype=np.int64)
    pairs, of_pair, sizes = np.unique(
        groups * n_cells + cells, return_inverse=True, return_counts=True
    )
    label = np.full(len(pairs), -1, dtype=np.int64)
    n_labels = 0
    begin = 0  # first pair that is not counted yet
    waiting = 0
    last: tuple[int, int] | None = None  # group and cell of the last count
    for at, (pair, size) in enumerate(zip(pairs.tolist(), sizes.tolist(), strict=True)):
        group, cell = divmod(pair, n_cells)
        waiting += size
        if waiting >= least:
            counts[cell] += waiting
            label[begin : at + 1] = n_labels
            n_labels += 1
            last = (group, cell)
            begin, waiting = at + 1, 0
        is_end = at + 1 == len(pairs) or pairs[at + 1] // n_cells != group
        if is_end and waiting:
            if last is not None and last[0] == group:
                counts[last[1]] += waiting
                label[begin : at + 1] = n_labels - 1
            begin, waiting = at + 1, 0
    joined[:] = label[of_pair]
    return counts, joined


def count_first(values: Floats, least: int) -> tuple[Whole, Whole]:
    """Count numbers (n,) between `FIRST_EDGES`; see `merge_small` for the result."""
    together = np.zeros(len(values), dtype=np.int64)
    return merge_small(together, _find_cells(values, FIRST_EDGES), FIRST_CELLS, least)


def count_bins(values: Floats, edges: Floats, least: int) -> Whole:
    """Count numbers (n,) between edges (BINS + 1,), (CELLS,).

    Examples that the first count joined are divided only into parts of at least ``least`` examples,
    so the difference between both counts does not show fewer.
    """
    _, joined = count_first(values, least)
    is_counted = joined >= 0
    cells = _find_cells(values, edges)
    return merge_small(joined[is_counted], cells[is_counted], CELLS, least)[0]


def _find_cells(values: Floats, edges: Floats) -> Whole:
    """Return the cell of each number: 0 if it is missing, and 1 below the first edge."""
    cells = np.searchsorted(edges, values, side="right") + 1
    return np.where(np.isnan(values), 0, cells).astype(np.int64)


def count_levels(codes: Floats, levels: int, least: int) -> Whole:
    """Count examples by level: missing, the levels, and those of suppressed levels.

    Levels (and missing cells) with fewer than ``least`` examples are suppressed.  If these are fewer
    together, the smallest other level is suppressed too; with nothing left, nothing is counted.

    >>> count_levels(
    ...     np.array([0.0] * 5 + [1.0] * 4 + [2.0] * 9 + [math.nan]), 3, 5
    ... ).tolist()
    [0, 5, 0, 9, 5]
    >>> count_levels(np.array([0.0] * 5 + [1.0] * 4 + [2.0] * 9), 3, 5).tolist()
    [0, 0, 0, 9, 9]
    """
    cells = np.where(np.isnan(codes), 0, codes + 1).astype(np.int64)
    return _suppress(np.bincount(cells, minlength=levels + 2), least)


def _suppress(counts: Whole, least: int) -> Whole:
    """Move small counts to the last cell, which has none before."""
    is_small = (counts > 0) & (counts < least)
    while 0 < counts[is_small].sum() < least:
        others = np.where(is_small | (counts == 0), np.iinfo(np.int64).max, counts)
        smallest = int(others.argmin())
        if is_small[smallest] or counts[smallest] == 0:
            return np.zeros_like(counts)
        is_small[smallest] = True
    result = np.where(is_small, 0, counts)
    result[-1] += counts[is_small].sum()
    return result


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


def find_quantile(counts: Floats, edges: Floats, share: float, slack: float) -> Quantile:
    """Return a quantile from counts (CELLS,) between edges.

    The value is interpolated in its bin.  The bounds are those of the bin, moved by ``slack``
    examples that may have been counted in another cell.
    """
    total = counts[1:].sum()
    if total <= 0:
        return Quantile(None, None, None)
    at_edges = counts[1:-1].cumsum()  # values below each edge
    wanted = share * total
    room = slack * (2 - share)
    sure_below = np.flatnonzero(at_edges + room < wanted)
    sure_above = np.flatnonzero(at_edges - room >= wanted)
    low = float(edges[sure_below[-1]]) if len(sure_below) else None
    high = float(edges[sure_above[0]]) if len(sure_above) else None
    reached = np.flatnonzero(at_edges >= wanted)
    if not len(reached) or reached[0] == 0:  # beyond the bins
        return Quantile(None, low, high)
    bin_ = int(reached[0])
    before = at_edges[bin_ - 1]
    part = (wanted - before) / (at_edges[bin_] - before)
    value = edges[bin_ - 1] + part * (edges[bin_] - edges[bin_ - 1])
    return Quantile(float(value), low, high)


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


def measure_drift(of_sites: Floats, least: int, is_ordered: bool) -> tuple[Floats, Floats]:
    """Return the distance of each site from all others, and the one that is due to chance, (sites,).

    The distance is that of `jensen_shannon` between the shares of levels, or of groups of bins with
    nearly equal numbers of examples.  The second number is the 95 % quantile of the distance if all
    sites draw from the same distribution and then merge small cells.  Both are NaN for a site
    without values, and without values at other sites.

    Parameters
    ----------
    of_sites : array
        (sites, cells) counts without missing values.
    least : int
        Smallest count of the sites.
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
    if not is_ordered:
        counts = _hide_everywhere(of_sites)
        total = counts.sum(0)
        shares = total / total.sum()
    rng = np.random.default_rng(0)
    drawn = np.stack(
        [rng.multinomial(round(n), shares, size=REPLICATES) for n in sizes], axis=1
    )  # (replicates, sites, cells)
    if is_ordered:
        drawn = _merge_cells(drawn, least)
        groups = int(np.clip(sizes[is_known].min() // (5 * least), 2, GROUPS))
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


def _merge_cells(counts: Whole, least: int) -> Whole:
    """Merge small cells in order, as `merge_small` does in one group, (..., cells)."""
    result = np.zeros_like(counts)
    waiting = np.zeros(counts.shape[:-1], dtype=counts.dtype)
    last = np.zeros(counts.shape[:-1], dtype=np.int64)
    for cell in range(counts.shape[-1]):
        waiting = waiting + counts[..., cell]
        is_full = waiting >= least
        result[..., cell] = np.where(is_full, waiting, 0)
        last = np.where(is_full, cell, last)
        waiting = np.where(is_full, 0, waiting)
    at_last = np.take_along_axis(result, last[..., None], axis=-1)
    np.put_along_axis(result, last[..., None], at_last + waiting[..., None], axis=-1)
    return result


def _hide_everywhere(of_sites: Floats) -> Floats:
    """Suppress levels at all sites that may be suppressed at one, (sites, levels + 1).

    Otherwise a level with few examples would make sites differ.
    """
    is_hidden = (of_sites[of_sites[:, -1] > 0] == 0).any(0)
    counts = np.where(is_hidden, 0.0, of_sites)
    counts[:, -1] = np.where(is_hidden[:-1], of_sites[:, :-1], 0.0).sum(1) + of_sites[:, -1]
    return counts


def _find_groups(total: Floats, groups: int) -> Whole:
    """Return the first cells of groups of adjacent cells with nearly equal numbers of examples."""
    shares = total.cumsum() / total.sum()
    group = np.minimum((shares * groups - 1e-9).astype(np.int64), groups - 1)
    return np.unique(group, return_index=True)[1]


def join_labels(labels: Tensor, unlabeled: int) -> Floats:
    """Return labels (n,) and NaN for each unlabeled example, (n + unlabeled,)."""
    return torch.cat([labels.double(), torch.full((unlabeled,), math.nan)]).double().numpy()
