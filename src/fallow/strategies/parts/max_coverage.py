"""Greedy maximum coverage and herding: selected examples represent those similar to them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fallow.core.limits import Limits
from fallow.core.view import View
from fallow.strategies.parts.kcenter import EXACT
from fallow.strategies.parts.top import require_finite

CANDIDATES = 16  # examples whose gains are computed together
AHEAD = 64  # examples whose similarities are computed together
BLOCK = 256  # columns of a block of similarities
CELLS = 2**18  # similarities of a block, which fit in the cache
COLUMNS = 2**27  # bytes of similarities to candidates that are kept
EQUAL = 1e-6  # gains that differ by a smaller share are equal: two examples that cover each other
LEVELS = 1e5  # different densities: equal examples are equal in spite of rounding

Similarity = Callable[[Tensor], Tensor]
"""Similarities in 0..1 from squared distances, of the same shape; not increasing."""


def maximize_coverage(
    x: Tensor,
    labeled: Tensor,
    similarity: Similarity,
    weight: Tensor,
    n: int,
    generator: torch.Generator,
) -> Tensor:
    """Return ``n`` positions, each of the example that adds most to the covered weight.

    An example is covered by its largest similarity to a labeled or selected one.  Of examples that
    add the same, the one that is most similar to all others comes first, then a random one.

    Parameters
    ----------
    x
        (m, d) finite features of the unlabeled pool.
    labeled
        (l, d) finite features of labeled examples.
    similarity
        From squared Euclidean distances.
    weight
        (m,) not negative: importance of covering each example.
    n
        Number of examples to select, at most m.
    generator
        Of the order among equal gains.

    Notes
    -----
    The gain of an example never grows while others are selected (the objective is submodular), so
    a gain that was computed before is an upper bound.  Only the examples with the largest bounds
    are computed again: the result is that of computing all of them, usually 20 to 100 times faster.

    Similarities are computed once for both halves of their symmetric matrix, in blocks that are not
    kept, and in single precision: gains that differ by less than a share of 1e-6 are equal.  Beside
    the examples and a copy in single precision, memory is `COLUMNS` bytes for the similarities to
    recent candidates: 134 MB.

    >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
    >>> near = lambda square: (square <= 0.25).double()
    >>> maximize_coverage(x, x[:0], near, torch.ones(4), 2, torch.Generator())[1]
    tensor(3)
    """
    if not n:
        return torch.empty(0, dtype=torch.int64)
    x = x.float()
    examples = _Examples.of(x, similarity)
    weight = weight.to(x)
    covered = _cover_by(examples, labeled)
    density, gains = _total_gains(examples, weight, covered)
    # The first of examples that add the same is selected: the densest, then a random one.
    order = torch.randperm(len(x), generator=generator)
    order = order[density[order].argsort(descending=True, stable=True)]
    examples = _Examples.of(x[order], similarity)
    weight = weight[order]
    covered = covered[order]
    gains = gains[order]
    columns = _Columns(examples)
    selected = []
    for _ in range(n):
        best = _find_best(columns, weight, covered, gains)
        selected.append(best)
        gains[best] = -torch.inf
        covered = torch.maximum(covered, columns.read(best))
    return order[torch.tensor(selected, dtype=torch.int64)]


@final
@dataclass(frozen=True)
class UnitFeatures:
    """Features of unit length of a site's examples, as far as they are finite.

    Attributes
    ----------
    pool
        (k, d) of the unlabeled pool.
    labeled
        (l, d) of labeled examples.
    positions
        (k,) of ``pool`` in the unlabeled pool.
    not_finite
        (m - k,) positions of the others.
    """

    pool: Tensor
    labeled: Tensor
    positions: Tensor
    not_finite: Tensor

    @staticmethod
    def of(view: View, model: str) -> UnitFeatures:
        pool = unit_length(view.embed(model))
        is_finite = pool.isfinite().all(1)
        if len(pool):
            require_finite(is_finite)
        labeled = pool[:0]
        if len(view.labels):
            labeled = unit_length(view.embed(model, "labeled"))
        return UnitFeatures(
            pool=pool[is_finite],
            labeled=labeled[labeled.isfinite().all(1)],
            positions=is_finite.nonzero().squeeze(1),
            not_finite=(~is_finite).nonzero().squeeze(1),
        )

    def cover(
        self, similarity: Similarity, weight: Tensor, n: int, generator: torch.Generator
    ) -> Tensor:
        """Return ``n`` positions in the unlabeled pool by `maximize_coverage`.

        weight: (m,) of the whole pool; NaN counts as 0.  Examples with features that are not
        finite come last.
        """
        selected = maximize_coverage(
            self.pool,
            self.labeled,
            similarity,
            weight[self.positions].nan_to_num(0.0),
            min(n, len(self.positions)),
            generator,
        )
        return torch.cat([self.positions[selected], self.not_finite])[:n]


def unit_length(x: Tensor) -> Tensor:
    """Rows divided by their length; rows of zeros stay zero.  (m, d) -> (m, d)."""
    if len(x) < EXACT:
        x = x.double()
    tiny = torch.finfo(x.dtype).tiny
    scaled = x / x.abs().amax(1, keepdim=True).clamp_min(tiny)  # so that squares are finite
    length = scaled.square().sum(1, keepdim=True).sqrt()
    return scaled / length.clamp_min(tiny)


def square_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances between rows.  x: (m, d), y: (l, d) -> (m, l)."""
    half_x = x.square().sum(1) / 2
    half_y = y.square().sum(1) / 2
    half = torch.addmm(half_y, x, y.T, alpha=-1).add_(half_x[:, None])
    return half.mul_(2).clamp_min_(0)


@final
@dataclass(frozen=True)
class _Examples:
    """Examples x (m, d) with half their squared lengths (m,), and the similarity of two."""

    x: Tensor
    half: Tensor
    similarity: Similarity

    @staticmethod
    def of(x: Tensor, similarity: Similarity) -> _Examples:
        return _Examples(x, x.square().sum(1) / 2, similarity)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: slice | Tensor) -> _Examples:
        return _Examples(self.x[rows], self.half[rows], self.similarity)

    def to(self, other: _Examples) -> Tensor:
        """Return the similarities to other examples. -> (k, m), k of ``other``"""
        half = torch.addmm(self.half, other.x, self.x.T, alpha=-1)
        square = half.add_(other.half[:, None]).mul_(2).clamp_min_(0)
        return self.similarity(square).to(self.x)

    def blocks(self, columns: int, start: int = 0) -> Iterator[slice]:
        """Yield slices of examples from ``start``, for blocks with so many columns."""
        size = max(1, CELLS // max(1, columns))
        for first in range(start, len(self), size):
            yield slice(first, min(first + size, len(self)))


def _cover_by(examples: _Examples, labeled: Tensor) -> Tensor:
    """The largest similarity of each example to a labeled one, (m,); 0 without any."""
    covered = examples.x.new_zeros(len(examples))
    for some in torch.split(labeled.to(examples.x), BLOCK):
        if not len(some):
            continue
        others = _Examples.of(some, examples.similarity)
        for rows in examples.blocks(len(some)):
            nearest = examples.take(rows).to(others).amax(0)
            covered[rows] = torch.maximum(covered[rows], nearest)
    return covered


def _total_gains(
    examples: _Examples, weight: Tensor, covered: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weight that each example covers, and the part beyond ``covered``, (m,) each.

    The first is in `LEVELS` steps. Similarities are symmetric: a block is used for its rows and for
    its columns.
    """
    density = torch.zeros_like(covered)
    gains = torch.zeros_like(covered)
    is_covered = bool(covered.any())
    for first in range(0, len(examples), BLOCK):
        own = slice(first, min(first + BLOCK, len(examples)))
        others = examples.take(own)
        for rows in examples.blocks(len(others), start=first):
            similar = examples.take(rows).to(others)  # (b, rows)
            beyond = max(0, own.stop - rows.start)  # rows after the columns of the block
            after = slice(rows.start + beyond, rows.stop)
            density[own] += similar @ weight[rows]
            density[after] += weight[own] @ similar[:, beyond:]
            if not is_covered:
                continue
            gains[own] += (similar - covered[rows]).clamp_min_(0) @ weight[rows]
            added = (similar[:, beyond:] - covered[own, None]).clamp_min_(0)
            gains[after] += weight[own] @ added
    if not is_covered:
        gains = density.clone()
    largest = density.max().clamp_min(torch.finfo(density.dtype).tiny)
    return (density / largest * LEVELS).round(), gains


@final
class _Columns:
    """Similarities of all examples to recent candidates, up to `COLUMNS` bytes."""

    def __init__(self, examples: _Examples) -> None:
        self.examples = examples
        bytes_of_one = max(1, len(examples) * examples.x.element_size())
        n = min(len(examples), max(2 * AHEAD, COLUMNS // bytes_of_one))
        self.memory = examples.x.new_empty(n, len(examples))
        self.places: OrderedDict[int, int] = OrderedDict()  # the least recent one is first

    def compute(self, candidates: Sequence[int], ahead: Sequence[int]) -> None:
        """Compute missing columns of candidates; if any is missing, also those of others."""
        if all(row in self.places for row in candidates):
            return
        missing = [
            row for row in dict.fromkeys([*candidates, *ahead]) if row not in self.places
        ]
        for row in candidates:
            if row in self.places:
                self.places.move_to_end(row)
        places = [self._find_place(row) for row in missing]
        others = self.examples.take(torch.tensor(missing))
        for rows in self.examples.blocks(len(missing)):
            self.memory[places, rows] = self.examples.take(rows).to(others)

    def _find_place(self, row: int) -> int:
        index = len(self.places)
        if index == len(self.memory):
            _, index = self.places.popitem(last=False)
        self.places[row] = index
        return index

    def read(self, row: int) -> Tensor:
        """Return the similarities of all examples to a computed candidate, (m,)."""
        self.places.move_to_end(row)
        return self.memory[self.places[row]]


def _find_best(columns: _Columns, weight: Tensor, covered: Tensor, gains: Tensor) -> int:
    """The row with the largest gain, of equal ones the first.

    ``gains`` are upper bounds.  Those of rows that could come before the best one are updated.
    """
    is_current = gains <= 0  # a gain of nothing is exact
    added = torch.empty_like(covered)
    while True:
        current = gains.masked_fill(~is_current, -torch.inf)
        largest = float(current.max())
        least = largest * (1 - EQUAL)
        best = int((current >= least).nonzero()[0])
        bounds = gains.masked_fill(is_current, -torch.inf)
        can_be_best = bounds > largest
        can_be_best[:best] |= bounds[:best] >= least
        ahead = _find_largest(bounds.masked_fill(~can_be_best, -torch.inf), AHEAD)
        if not ahead:
            columns.compute([best], [])
            return best
        candidates = ahead[:CANDIDATES]
        columns.compute(candidates, ahead)
        for row in candidates:
            torch.sub(columns.read(row), covered, out=added)
            gains[row] = added.clamp_min_(0) @ weight
            is_current[row] = True


def _find_largest(values: Tensor, n: int) -> list[int]:
    """Positions of at most ``n`` largest finite values; of values equal to the last, the first."""
    top = values.topk(min(n, len(values)))
    last = top.values[-1]
    rows = top.indices[top.values > last].tolist()
    if bool(last.isfinite()):
        equal = (values == last).nonzero()[:, 0]
        rows += equal[: len(top.indices) - len(rows)].tolist()
    return rows


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
