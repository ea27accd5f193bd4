"""Leverage scores of examples at many sites, from aggregates of small matrices.

The score of an example is τ = x (XᵀX)⁺ xᵀ, between 0 and 1; all scores sum to the rank r.  A site
multiplies its examples by a common ``basis`` and sends the products of its columns.  The server
side computes a better basis from the aggregate, in which XW has orthonormal columns.

Products square the condition number, so there are two passes, as in shifted Cholesky QR (Fukaya et
al., 2020).  Eigenvalues replace the Cholesky factor, because columns may be collinear.  The first
pass gives a basis that is accurate except for directions below the rounding error, and the second
pass resolves these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask, sum_of_all
from fallow.core.client import ClientCall

EPS = torch.finfo(torch.float64).eps
CHUNK = 4096
"""Number of examples per block, so that no second copy of all examples is in memory."""
WIDTH = 64
"""Number of columns per block of products, of which only the upper triangle is computed."""
FINE = 2.0**20
"""Scale of products.  Those of scaled columns are between -1 and 1, and the 40 fractional bits of
masked sums are too few for small directions."""

BOUND = 2 * FINE
"""Bound on products of columns of length 1, with one bit of margin, because lengths come from rounded
aggregates.  Rotated columns need a larger bound: `bound_rotated`."""

STEEP = 1e10  # condition number beyond which the smallest direction is rounding error


class Columns(NamedTuple):
    """Center (d,) and scale (k,) of columns, to length 1 over all examples; 0 for constant ones.

    k is d, or d + 1 with a column of ones at the end.
    """

    mean: Tensor
    unit: Tensor
    rows: int


def find_columns(
    ask: Ask,
    totals: ClientCall,
    spread: ClientCall,
    *,
    intercept: bool,
    limit: float | None = None,
) -> Columns:
    """Return the columns of all sites, from the replies to ``totals`` and ``spread``.

    With an ``intercept``, a column of ones follows.  limit: bound on the sum of a column.
    """
    total = sum_of_all(ask, totals, limit)
    rows = int(total["rows"])
    if rows == 0:
        raise ValueError(
            "no site has a row without a label: there is nothing to choose from"
        )
    mean = total["columns"] / rows * intercept
    seen = sum_of_all(ask, spread, mean=mean)
    unit = scales(seen["squares"], seen["varies"])
    ones = torch.full((int(intercept),), rows**-0.5, dtype=torch.float64)
    return Columns(mean, torch.cat([unit, ones]), rows)


def totals(x: Tensor) -> Tensor:
    """Return the sum of each column in float64.  (n, *shape) -> (d,)"""
    return torch.stack([rows.flatten(1).double().sum(0) for rows in blocks(x)]).sum(0)


def spread(x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return squares of each column about ``mean`` (d,), and counts of values other than the mean.

    The counts distinguish a constant column from one of small scale.  -> (d,), (d,)
    """
    squares = torch.zeros_like(mean)
    varies = torch.zeros_like(mean)
    for rows in blocks(x):
        away = rows.flatten(1).double() - mean
        squares += away.square().sum(0)
        varies += (away.abs() > 1e-12 * mean.abs()).sum(0)
    return squares, varies


def scales(squares: Tensor, varies: Tensor) -> Tensor:
    """Return factors that scale columns to length 1, from `spread`; 0 for constant ones.  -> (d,)"""
    for c in ((varies > 0) & (squares <= 0)).nonzero().flatten().tolist():
        raise ValueError(
            f"the spread of column {c} is lost in rounding; multiply the column by a large number"
        )
    return torch.where(varies > 0, squares.rsqrt(), 0.0)


def bound_rotated(unit: Tensor) -> float:
    """Return a bound on the contribution of one site to products of rotated columns.

    unit: (k,), 0 for constant columns.  Over all sites, scaled columns have length 1, so C = XᵀX
    has ones on the diagonal and no eigenvalue above its trace, the number m of varying columns.
    The contribution C_i of a site and C - C_i are positive semidefinite, so no eigenvalue of C_i
    exceeds m.  A rotation preserves eigenvalues, so no entry of QᵀC_iQ exceeds m.  The bound is
    reached by equal columns with all examples at one site.

    With N sites and m columns, a masked sum keeps 63 - log2(N m) fractional bits of C, which is 54
    for 10 sites and 50 columns, the precision of float64 near 1.
    """
    varying = int((unit > 0).sum())
    return BOUND * max(varying, 1)


def step(bound: float, sites: int) -> float:
    """Return an upper bound on the rounding step of a contribution in a masked sum.

    It keeps 40 fractional bits, or as many as keep the sum below 2^63.
    """
    finest: float = 2.0**-40
    coarse: float = sites * bound * 2.0**-61.99
    return max(finest, coarse)


def rounding(bound: float, sites: int, k: int) -> float:
    """Return the maximum error of products (k, k) of a masked sum, as a spectral norm."""
    return k * sites * step(bound, sites) / 2 / FINE


def blocks(x: Tensor) -> tuple[Tensor, ...]:
    """Divide examples into blocks."""
    return torch.split(x, CHUNK)


def project_rows(x: Tensor, mean: Tensor, basis: Tensor) -> Iterator[Tensor]:
    """Multiply examples by the basis, in blocks.  x: (n, *shape), mean: (d,) -> (b, k) float64.

    basis: (d, k), or (d + 1, k) with a column of ones at the end.
    """
    d = len(mean)
    constant = basis[d:].sum(0)  # (k,): contribution of the column of ones, 0 without one
    for rows in blocks(x):
        yield (rows.flatten(1).double() - mean) @ basis[:d] + constant


def products(x: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """Return the upper triangle of ZᵀZ, Z the projected examples: (k (k + 1) / 2,), times `FINE`."""
    k = basis.shape[1]
    total = basis.new_zeros(k, k)
    for z in project_rows(x, mean, basis):
        for first in range(0, k, WIDTH):
            left = z[:, first : first + WIDTH]
            total[first : first + WIDTH, first:] += left.T @ z[:, first:]
    row, column = torch.triu_indices(k, k)
    return total[row, column] * FINE


def matrix(triangle: Tensor, k: int) -> Tensor:
    """Return the symmetric matrix of a triangle of `products`.

    >>> matrix(FINE * torch.tensor([1.0, 2.0, 3.0]), 2)
    tensor([[1., 2.],
            [2., 3.]])
    """
    upper = triangle.new_zeros(k, k)
    row, column = torch.triu_indices(k, k)
    upper[row, column] = triangle / FINE
    return upper + upper.triu(1).T


def leverages(x: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """Return τ of each example, for a basis in which all examples are orthonormal.  -> (n,)"""
    parts = [scores(z) for z in project_rows(x, mean, basis)]
    return torch.cat([basis.new_zeros(0), *parts])


def scores(u: Tensor) -> Tensor:
    """Return τ of each row of left singular vectors.  (n, r) -> (n,)

    Values below 1e-12 are rounding errors and become 0: an example with such a probability would
    dominate the weights.
    """
    score = u.square().sum(1).clamp(max=1.0)
    return score.masked_fill(score < 1e-12, 0.0)


def triangle(x: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """Return R of the QR decomposition of projected examples: (k, k), or (n, k) for fewer."""
    result = basis.new_zeros(0, basis.shape[1])
    for z in project_rows(x, mean, basis):
        result = torch.linalg.qr(torch.cat([result, z]), mode="r").R
    return result.contiguous()


@dataclass(frozen=True)
class Directions:
    """Directions in which examples differ, in coordinates of scaled columns.

    basis: (k, r), in which examples are orthonormal; condition: ratio of the largest to the
    smallest spread above rounding.
    """

    basis: Tensor
    condition: float

    @property
    def rank(self) -> int:
        return self.basis.shape[1]


def first_pass(
    gram: Tensor, rows: int, ridge: float = 0.0, rounding: float = 0.0
) -> Tensor:
    """Return a basis (k, k) in which the scaled columns are nearly orthonormal.

    gram: (k, k) products, at most 1; ridge: added to the diagonal; ``rounding``: error in addition
    to that of float64.  The shift is as large as the rounding errors of the products, so no
    direction exceeds 1, or 2 with both kinds of errors; `BOUND` then holds for the second pass,
    rotated or not.
    """
    k = len(gram)
    values, vectors = torch.linalg.eigh(gram + ridge * torch.eye(k, dtype=gram.dtype))
    shift = (11 * (k + k * (k + 1) / max(rows, 1)) * EPS * values[-1]).clamp_min(rounding)
    basis: Tensor = vectors / (values.clamp_min(0) + shift).clamp_min(EPS).sqrt()
    return basis.contiguous()  # as received: other strides give other rounding errors


def second_pass(
    gram: Tensor, basis: Tensor, ridge: float = 0.0, rounding: float = 0.0
) -> Directions:
    """Return the directions, from products of examples projected on the basis of the first pass.

    A direction is kept if its spread exceeds rounding errors, those of float64 and of a masked sum
    (``rounding``, as a spectral norm).
    """
    values, vectors = torch.linalg.eigh(gram + ridge * basis.T @ basis)
    least = len(values) * EPS * values[-1].clamp_min(EPS)
    keep = values > least.clamp_min(rounding)
    result = basis @ vectors[:, keep] / values[keep].sqrt()
    lost = span(basis @ vectors[:, ~keep])
    sizes = torch.linalg.svdvals(result - lost @ (lost.T @ result))
    return Directions(result.contiguous(), _condition(sizes))


def decompose(z: Tensor, rows: int, ridge: float = 0.0) -> tuple[Tensor, Directions]:
    """Return the left singular vectors (m, r) of the replies (m, k), and the directions.

    rows: number of examples of all sites; the rank follows `numpy.linalg.matrix_rank`.  With a
    ridge, vectors are shorter than 1, so their rows give ridge scores.
    """
    left, size, right = torch.linalg.svd(z, full_matrices=False)
    keep = size > max(rows, z.shape[1]) * EPS * size[:1].clamp_min(EPS)
    size = size[keep]
    spread = (size.square() + ridge).sqrt()
    basis = (right[keep].T / spread).contiguous()  # (k, r)
    vectors = (left[:, keep] * (size / spread)).contiguous()  # (m, r)
    return vectors, Directions(basis, _condition(spread))


def _condition(sizes: Tensor) -> float:
    """Return the ratio of the largest to the smallest of descending sizes, (r,); 1 if empty."""
    if not len(sizes):
        return 1.0
    return float(sizes[0] / sizes[-1])


def span(directions: Tensor) -> Tensor:
    """Return an orthonormal basis of the span of the columns.  (k, m) -> (k, q)"""
    length = directions.norm(dim=0).clamp_min(torch.finfo(directions.dtype).tiny)
    left, size, _ = torch.linalg.svd(directions / length, full_matrices=False)
    basis: Tensor = left[:, size > 1e-8]
    return basis


ALONE = (
    "site {} has one row, which no mask hides: the server saw its length and, up to the common "
    "rotation, the row; use fale:mode=gram"
)


def describe_doubts(n: int, directions: Directions) -> Iterator[str]:
    """Yield notes for the report, as sentences."""
    if n < directions.rank:
        yield (
            f"{n} labels for {directions.rank} directions: the least-squares solution is 0 in "
            "the others; request more labels, or use server-solve:ridge=0.001"
        )
    if directions.condition > STEEP:
        yield (
            f"columns are collinear (condition number {directions.condition:.0e}): scores in that "
            "direction are rounding errors; omit a column, or use fale:ridge=0.001"
        )
