"""Greedy k-center: repeated selection of the example farthest from all selected ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Generator, Tensor

from fallow.core.products import block_rows, to_device
from fallow.strategies.parts.top import first_best, order_ties, rank_rows

CHUNK = 1024  # examples per block of distances: no m x n matrix is built
SHARE = 0.25  # of the distances, computed in both precisions before double alone is faster
CELLS = 2**18  # products per block of `FeatureVectors.nearest`, which fit in the cache
EXACT = 50_000  # number of examples below which double precision is used
ROUGH = 2**20  # number of values above which single precision excludes most examples first


class Points(Protocol):
    """Examples in a metric space, with half squared Euclidean distances in blocks.

    A non-finite example is infinitely far from all others: its half norm is infinite.  Examples are
    on the device of products (`place`); results are on the CPU.
    """

    def at(self, rows: Tensor) -> Points: ...  # these examples only
    def to(self, j: int) -> Tensor: ...  # (m,) from every example to j
    def nearest(
        self, other: Points
    ) -> Tensor: ...  # (m,) to the nearest example of ``other``
    def half_norms(self) -> Tensor: ...  # (m,) half squared norms
    def rough(self) -> RoughVectors | None: ...  # in single precision, if that saves time


@final
@dataclass(frozen=True)
class FeatureVectors:
    """Examples as rows of a matrix.  x: (m, d)."""

    x: Tensor
    half: Tensor

    @staticmethod
    def of(x: Tensor) -> FeatureVectors:
        if len(x) < EXACT:
            x = x.double()
        half = x.square().sum(1) / 2
        is_far = ~half.isfinite()
        half = half.masked_fill(is_far, torch.inf)
        return FeatureVectors(to_device(store_rows(x, is_far)), to_device(half))

    def at(self, rows: Tensor) -> FeatureVectors:
        return FeatureVectors(by_columns(self.x[rows]), self.half[rows])

    def half_norms(self) -> Tensor:
        return self.half.cpu()

    def rough(self) -> RoughVectors | None:
        """Return the examples in single precision if they are many, double and of usual size."""
        if self.x.dtype != torch.float64 or not self.x.is_cpu or self.x.numel() < ROUGH:
            return None
        half = self.half.masked_fill(self.half.isinf(), 0)
        largest = float(half.max())
        if not 1 / REACH[torch.float32] <= largest <= REACH[torch.float32]:
            return None
        return RoughVectors(self, half + largest)

    def to(self, j: int) -> Tensor:
        to_j = torch.addmv(self.half, self.x, self.x[j].contiguous(), alpha=-1)
        return to_j.add_(self.half[j]).clamp_min_(0).cpu()

    def nearest(self, other: Points) -> Tensor:
        assert isinstance(other, FeatureVectors)  # noqa: S101 - points of one kind meet
        if not len(other.half):
            return torch.full_like(self.half, torch.inf).cpu()
        y = other.x.to(self.x)
        half_y = other.half.to(self.half)
        columns = len(y)
        size = min(CHUNK, max(1, CELLS // columns))
        # One buffer for all blocks, because allocation takes longer than the products.
        memory = self.x.new_empty(size * columns)
        result = []
        for x, half in zip(
            torch.split(self.x, size), torch.split(self.half, size), strict=True
        ):
            # |x - y|² / 2 is |x|² / 2 + |y|² / 2 - <x, y>; (b, rows of ``other``)
            without_own = memory[: len(x) * columns].view(len(x), columns)
            torch.addmm(half_y, x, y.T, alpha=-1, out=without_own)
            result.append(without_own.amin(1) + half)
        return torch.cat(result).clamp_min_(0).cpu()


@final
@dataclass(frozen=True)
class Gradients:
    """Examples q ⊗ z, stored as two factors.  q: (m, c), z: (m, d).

    ||q⊗z - q'⊗z'||² = |q|²|z|² + |q'|²|z'|² - 2 <q,q'><z,z'>, so no m x (c d) matrix is built.
    """

    q: Tensor
    z: Tensor
    half: Tensor

    @staticmethod
    def of(q: Tensor, z: Tensor) -> Gradients:
        if len(z) < EXACT:
            q = q.double()
            z = z.double()
        q = q.to(z.dtype)
        half = q.square().sum(1) * z.square().sum(1) / 2
        is_far = ~half.isfinite()
        half = half.masked_fill(is_far, torch.inf)
        q = store_rows(q, is_far)
        z = store_rows(z, is_far)
        return Gradients(to_device(q), to_device(z), to_device(half))

    def at(self, rows: Tensor) -> Gradients:
        return Gradients(
            by_columns(self.q[rows]), by_columns(self.z[rows]), self.half[rows]
        )

    def half_norms(self) -> Tensor:
        return self.half.cpu()

    def rough(self) -> None:
        return None

    def to(self, j: int) -> Tensor:
        inner = (self.q @ self.q[j].contiguous()).mul_(self.z @ self.z[j].contiguous())
        return (self.half + self.half[j]).sub_(inner).clamp_min_(0).cpu()

    def nearest(self, other: Points) -> Tensor:
        assert isinstance(other, Gradients)  # noqa: S101 - as above
        if not len(other.half):
            return torch.full_like(self.half, torch.inf).cpu()
        q_t = other.q.to(self.q).T
        z_t = other.z.to(self.z).T
        half_o = other.half.to(self.half)
        size = block_rows(CHUNK, len(half_o))
        blocks = zip(
            torch.split(self.q, size),
            torch.split(self.z, size),
            torch.split(self.half, size),
            strict=True,
        )
        values = []
        for q, z, half in blocks:
            inner = (q @ q_t).mul_(z @ z_t)  # (b, rows of ``other``)
            values.append((half_o - inner).amin(1) + half)
        return torch.cat(values).clamp_min_(0).cpu()


@final
class RoughVectors:
    """Greedy k-center with distances in single precision and a bound of their error.

    Only examples that could be the farthest one are compared in double precision, so the selection
    is that of double precision, in half the time.  A copy of the examples takes half their memory.

    Parameters
    ----------
    exact
        Examples in double precision.
    scale
        (m,) |x|² / 2 + the largest |y|² / 2: no smaller than <x, y>.
    """

    def __init__(self, exact: FeatureVectors, scale: Tensor) -> None:
        self.exact = exact
        self.single = FeatureVectors(exact.x.float(), exact.half.float())
        # d products and their sum, two sums, and the rounding of each value: u for each step.
        steps = exact.x.shape[1] + 8
        self.unit = torch.finfo(torch.float32).eps / 2
        self.error = (scale * (steps * self.unit)).float()

    def select(self, n: int, left: Tensor, order: Tensor, first: int) -> list[int]:
        """Select at most ``n`` examples; fewer if many are nearly equally far.

        left: (m,) half squared distances to the nearest anchor, -inf of examples that cannot be
        selected.  order: (m,) of ties.
        """
        left = left.clone()
        rough = left.float()
        error = self.error + (left.masked_fill(left.isinf(), 0) * self.unit).float()
        # Number of selections that ``left`` includes.
        compared = torch.zeros(len(left), dtype=torch.int64)
        selected = [first]
        n_compared = 0
        x = self.exact.x
        rows_of_selected = x.new_empty(n, x.shape[1])  # by rows, which are read faster
        half_of_selected = x.new_empty(n)
        while True:
            last = selected[-1]
            rows_of_selected[len(selected) - 1] = x[last]
            half_of_selected[len(selected) - 1] = self.exact.half[last]
            torch.minimum(rough, self.single.to(last), out=rough)
            rough[last] = -torch.inf
            if len(selected) >= n:
                return selected
            least = (rough - error).max()
            can_be_farthest = rough + error >= least
            rows = torch.from_numpy(can_be_farthest.numpy().nonzero()[0])  # 20 times faster
            start = int(compared[rows].min())
            n_compared += len(rows) * (len(selected) - start)
            if n_compared > SHARE * len(left) * len(selected):
                return selected
            others = slice(start, len(selected))
            nearest = self._find_nearest(
                rows, rows_of_selected[others], half_of_selected[others]
            )
            left[rows] = torch.minimum(left[rows], nearest)
            compared[rows] = len(selected)
            selected.append(int(rows[first_best(left[rows], order[rows])]))

    def _find_nearest(self, rows: Tensor, others: Tensor, half: Tensor) -> Tensor:
        """Half squared distances of ``rows`` to the nearest of ``others``, equal for equal rows.

        others: (s, d) with half squared norms ``half``, (s,).
        """
        inner = (self.exact.x[rows][:, None] * others).sum(2)  # (rows, s)
        halves = self.exact.half[rows][:, None] + half
        return (halves - inner).clamp_min_(0).amin(1)


def store_rows(x: Tensor, is_far: Tensor) -> Tensor:
    """Replace non-finite examples by zeros: NaN would propagate through products."""
    if bool(is_far.any()):
        x = x.masked_fill(is_far[:, None], 0)
    return by_columns(x)


def by_columns(x: Tensor) -> Tensor:
    """Return ``x`` in column-major order, which makes products with one example twice as fast."""
    return x.T.contiguous().T


def k_center(
    points: Points,
    n: int,
    nearest: Tensor | None = None,
    first: int | None = None,
    ties: torch.Generator | None = None,
) -> Tensor:
    """Select ``n`` examples; each is farthest from the anchors and all earlier ones.

    nearest: (m,) half squared distance to the nearest anchor.  Without anchors, the first example
    is ``first``, or position 0.  No example is selected twice, even with duplicates: ties are
    broken at random by ``ties``, or by position without it.  Non-finite examples are last, in
    order.
    """
    half = points.half_norms()
    is_last = half.isinf()
    left = nearest
    if left is None:
        left = torch.full_like(half, torch.inf)
    left = left.masked_fill(is_last, -torch.inf)
    order = order_ties(len(half), ties)
    selected: list[int] = []
    n_finite = min(n, len(half) - int(is_last.sum()))
    rough = points.rough()
    if rough is not None and n_finite:
        if first is None:
            first = first_best(left, order)
        selected = rough.select(n_finite, left, order, first)
    if 0 < len(selected) < n_finite:
        rows = torch.tensor(selected)
        torch.minimum(left, points.nearest(points.at(rows)), out=left)
        left[rows] = -torch.inf
    while len(selected) < n_finite:
        j = first_best(left, order)
        if first is not None and not selected:
            j = first
        torch.minimum(left, points.to(j), out=left)
        left[j] = -torch.inf
        selected.append(j)
    last = is_last.nonzero().squeeze(1)
    return torch.cat([torch.tensor(selected, dtype=torch.int64), last])[:n]


REACH = {torch.float32: 1e12, torch.float64: 1e100}
"""Squares of numbers between 1 / reach and reach, and sums of many, neither overflow nor vanish."""


def within_reach(x: Tensor, kind: torch.dtype) -> Tensor:
    """Divide ``x`` by a power of two, so that the square of its largest number is finite in
    ``kind``.

    x: (m, d), finite.  A power of two causes no rounding: distances are scaled, and their order is
    preserved.  Ordinary numbers are unchanged.

    >>> rows = torch.tensor([[3 * 2.0**700, 0.0]], dtype=torch.float64)
    >>> within_reach(rows, torch.float64)
    tensor([[1.5000, 0.0000]], dtype=torch.float64)
    """
    largest = 0.0
    if x.numel():
        largest = float(x.abs().max())
    if largest == 0 or 1 / REACH[kind] <= largest <= REACH[kind]:
        return x
    power = math.frexp(largest)[1] - 1
    power = min(max(power, -1000), 1000)  # what a double can hold
    return (x.double() / math.ldexp(1.0, power)).to(x.dtype)


def pick_by_cover(x: Tensor, anchors: Tensor | None, n: int, ties: Generator) -> Tensor:
    """Run greedy k-center from ``anchors``.  x: (m, d); anchors: (a, d) -> (n,).

    Without anchors, the first example is the closest to the mean.  Ties are broken at random.
    Non-finite examples are ranked last.
    """
    mixed = rank_rows(0 * x.sum(1), ties)  # 0 · NaN is NaN: ranked last
    middle = x[x.isfinite().all(1)].mean(0)
    pool = FeatureVectors.of(x[mixed] - middle)  # the same distances with less rounding
    if anchors is not None:
        return mixed[k_center(pool, n, pool.nearest(FeatureVectors.of(anchors - middle)))]
    return mixed[k_center(pool, n, first=int(pool.half_norms().argmin()))]
