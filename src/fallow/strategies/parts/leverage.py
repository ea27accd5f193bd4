"""Leverage scores of rows that lie at many sites, from totals of small matrices.

The score of a row is τ = x (XᵀX)⁺ xᵀ, between 0 and 1; over all rows they add up to the rank r.  A
site multiplies its rows by a common ``basis`` and sends the products of its columns; the server
finds a better basis in the total: one in which XW has orthonormal columns.

Products square the condition number.  So there are two passes, as in shifted Cholesky QR (Fukaya et
al., 2020), with eigenvalues in place of the Cholesky factor, because columns may be collinear: the
first pass leaves a basis that is good but for directions below the rounding error, the second sees
these too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all

EPS = torch.finfo(torch.float64).eps
CHUNK = 4096
"""Rows at a time: beside the rows of a site there is never a second copy of all."""
FINE = 2.0**20
"""Products are sent so many times as large.  Those of scaled columns lie between -1 and 1, and
masked sums keep 40 bits after the point, too few for small directions."""

BOUND = 2 * FINE
"""Of products of columns of length 1, as they stand.  One more bit than they need: the length of a
column is known from a sum that is rounded too.  Rotated ones need more: `bound_rotated`."""

STEEP = 1e10  # condition number beyond which the smallest direction is rounding error


class Columns(NamedTuple):
    """How columns are centered, (d,), and scaled to length 1 over all rows, (k,): constant ones by
    0.  k is d, or d + 1 where a column of ones is the last one of every row."""

    mean: Tensor
    unit: Tensor
    rows: int


def find_columns(ask: Ask, *, intercept: bool, most: float | None = None) -> Columns:
    """The columns of all sites, by their answers to ``totals`` and ``spread``, with one of ones behind
    them where there is an ``intercept``.  most: the largest total of a column that is taken."""
    total = sum_of_all(ask, "totals", most)
    rows = int(total["rows"])
    if rows == 0:
        raise ValueError(
            "no site has a row without a label: there is nothing to choose from"
        )
    mean = total["columns"] / rows * intercept
    seen = sum_of_all(ask, "spread", mean=mean)
    unit = scales(seen["squares"], seen["varies"])
    ones = torch.full((int(intercept),), rows**-0.5, dtype=torch.float64)
    return Columns(mean, torch.cat([unit, ones]), rows)


def totals(x: Tensor) -> Tensor:
    """The total of each column in float64.  (n, *shape) -> (d,)"""
    return torch.stack([rows.flatten(1).double().sum(0) for rows in blocks(x)]).sum(0)


def spread(x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The squares of each column about ``mean`` (d,), and how many values are not the mean, which
    tells a constant column from one of a small scale.  -> (d,), (d,)"""
    squares = torch.zeros_like(mean)
    varies = torch.zeros_like(mean)
    for rows in blocks(x):
        away = rows.flatten(1).double() - mean
        squares += away.square().sum(0)
        varies += (away.abs() > 1e-12 * mean.abs()).sum(0)
    return squares, varies


def scales(squares: Tensor, varies: Tensor) -> Tensor:
    """What makes columns of these totals of `spread` of length 1; 0 for constant ones.  -> (d,)"""
    for c in ((varies > 0) & (squares <= 0)).nonzero().flatten().tolist():
        raise ValueError(
            f"the spread of column {c} is lost in rounding; multiply the column by a large number, "
            "or lower privacy.bound"
        )
    return torch.where(varies > 0, squares.rsqrt(), 0.0)


def bound_rotated(unit: Tensor) -> float:
    """The most that one site can add to products of rotated columns, from what is public.

    unit: (k,), 0 for constant columns.  Over all sites the scaled columns have length 1, so the
    products C = XᵀX have 1 on the diagonal and no eigenvalue above their trace, the number m of
    columns that vary.  A site's own addend C_i is positive semidefinite and so is C - C_i, the sum
    of the others': no eigenvalue of C_i is above m either, and a rotation changes no eigenvalue, so
    no entry of QᵀC_iQ is above m.  Columns that say the same, all rows at one site, reach it.

    Of N sites and m columns a masked sum then keeps 63 - log2(N m) bits after the point of C, 54
    for 10 sites and 50 columns: what float64 itself keeps of numbers near 1.
    """
    varying = int((unit > 0).sum())
    return BOUND * max(varying, 1)


def step(bound: float, sites: int) -> float:
    """What a masked sum rounds an addend of so many sites to, and no less.

    It keeps 40 bits after the point, or as many as let the sum of all stay below 2^63.
    """
    finest: float = 2.0**-40
    coarse: float = sites * bound * 2.0**-61.99
    return max(finest, coarse)


def rounding(bound: float, sites: int, k: int) -> float:
    """How far the products of columns (k, k) from a masked sum can be off, as a spectral norm:
    every entry by half a step of each site."""
    return k * sites * step(bound, sites) / 2 / FINE


def finite(x: Tensor, may_drop: bool) -> Tensor:
    """Which rows are finite, (n,).  Raises ValueError where one is not and may not be left out."""
    good = torch.cat([rows.flatten(1).isfinite().all(1) for rows in blocks(x)])
    if bool(good.all()) or (may_drop and bool(good.any())):
        return good
    bad = (~x.flatten(1).isfinite()).sum(0)  # (d,) values of each column
    c = int(bad.argmax())
    what = f"column {c} has {int(bad[c])} values that are NaN or infinite in a pool of {len(x)} rows"
    if may_drop:
        raise ValueError(f"{what} of which none is whole; fill them, or leave the site out")
    raise ValueError(f"{what}; fill them, or leave such rows out with fale:drop_rows=true")


def blocks(x: Tensor) -> tuple[Tensor, ...]:
    """Some rows at a time."""
    return torch.split(x, CHUNK)


def project_rows(x: Tensor, mean: Tensor, basis: Tensor) -> Iterator[Tensor]:
    """Rows times the basis, some at a time.  x: (n, *shape), mean: (d,) -> (b, k) in float64.

    basis: (d, k), or (d + 1, k) where a column of ones is the last one of every row.
    """
    d = len(mean)
    constant = basis[d:].sum(0)  # (k,): what the column of ones adds, 0 where there is none
    for rows in blocks(x):
        yield (rows.flatten(1).double() - mean) @ basis[:d] + constant


def products(x: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """The upper triangle of ZᵀZ, Z the projected rows: (k (k + 1) / 2,), times `FINE`."""
    k = basis.shape[1]
    total = basis.new_zeros(k, k)
    for z in project_rows(x, mean, basis):
        total += z.T @ z
    row, column = torch.triu_indices(k, k)
    return total[row, column] * FINE


def matrix(triangle: Tensor, k: int) -> Tensor:
    """The symmetric matrix of which `products` is the triangle.

    >>> matrix(FINE * torch.tensor([1.0, 2.0, 3.0]), 2)
    tensor([[1., 2.],
            [2., 3.]])
    """
    upper = triangle.new_zeros(k, k)
    row, column = torch.triu_indices(k, k)
    upper[row, column] = triangle / FINE
    return upper + upper.triu(1).T


def leverages(x: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """τ of each row, for a basis in which the rows of all sites are orthonormal.  -> (n,)"""
    parts = [scores(z) for z in project_rows(x, mean, basis)]
    return torch.cat([basis.new_zeros(0), *parts])


def scores(u: Tensor) -> Tensor:
    """τ of each row of left singular vectors.  (n, r) -> (n,)

    What is below 1e-12 is rounding and becomes 0: a row that is drawn with such a chance would
    weigh more than all others.
    """
    score = u.square().sum(1).clamp(max=1.0)
    return score.masked_fill(score < 1e-12, 0.0)


def triangle(x: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """R of the QR decomposition of the projected rows: (k, k), or (n, k) of fewer rows."""
    result = basis.new_zeros(0, basis.shape[1])
    for z in project_rows(x, mean, basis):
        result = torch.linalg.qr(torch.cat([result, z]), mode="r").R
    return result.contiguous()


@dataclass(frozen=True)
class Directions:
    """The directions in which rows differ, in coordinates of scaled columns.

    basis: (k, r), with it rows are orthonormal; condition: the ratio of the largest to the smallest
    spread that is not rounding.
    """

    basis: Tensor
    condition: float

    @property
    def rank(self) -> int:
        return self.basis.shape[1]


def first_pass(
    gram: Tensor, rows: int, ridge: float = 0.0, rounding: float = 0.0
) -> Tensor:
    """A basis (k, k) in which the scaled columns are nearly orthonormal.

    gram: (k, k) their products, at most 1; ridge: added to its diagonal; ``rounding``: how far they
    are off beyond the rounding of float64.  The shift is as large as the rounding errors of the
    products can be, so that no direction is blown up beyond 1; beyond 2 with both kinds of errors,
    and `BOUND` holds for the second pass, rotated or not.
    """
    k = len(gram)
    values, vectors = torch.linalg.eigh(gram + ridge * torch.eye(k, dtype=gram.dtype))
    shift = (11 * (k + k * (k + 1) / max(rows, 1)) * EPS * values[-1]).clamp_min(rounding)
    basis: Tensor = vectors / (values.clamp_min(0) + shift).clamp_min(EPS).sqrt()
    return basis.contiguous()  # as a wire delivers it: other strides give other last bits


def second_pass(
    gram: Tensor, basis: Tensor, ridge: float = 0.0, rounding: float = 0.0
) -> Directions:
    """The directions, from the products of rows projected on the basis of the first pass.

    A direction is kept where its spread is above rounding, that of float64 and that of a masked
    sum (``rounding``, as a spectral norm); the others are none.
    """
    values, vectors = torch.linalg.eigh(gram + ridge * basis.T @ basis)
    least = len(values) * EPS * values[-1].clamp_min(EPS)
    keep = values > least.clamp_min(rounding)
    result = basis @ vectors[:, keep] / values[keep].sqrt()
    lost = span(basis @ vectors[:, ~keep])
    sizes = torch.linalg.svdvals(result - lost @ (lost.T @ result))
    return Directions(result.contiguous(), _condition(sizes))


def decompose(z: Tensor, rows: int, ridge: float = 0.0) -> tuple[Tensor, Directions]:
    """The left singular vectors (m, r) of what sites sent (m, k), and the directions.

    rows: of all sites; the rank rule is that of `numpy.linalg.matrix_rank`.  With a ridge the
    vectors are shorter than 1, and so their rows give ridge scores.
    """
    left, size, right = torch.linalg.svd(z, full_matrices=False)
    keep = size > max(rows, z.shape[1]) * EPS * size[:1].clamp_min(EPS)
    size = size[keep]
    spread = (size.square() + ridge).sqrt()
    basis = (right[keep].T / spread).contiguous()  # (k, r)
    vectors = (left[:, keep] * (size / spread)).contiguous()  # (m, r)
    return vectors, Directions(basis, _condition(spread))


def _condition(sizes: Tensor) -> float:
    """The largest over the smallest of sizes that descend, (r,); 1 where there is none."""
    if not len(sizes):
        return 1.0
    return float(sizes[0] / sizes[-1])


def span(directions: Tensor) -> Tensor:
    """An orthonormal basis of the span of the columns.  (k, m) -> (k, q)"""
    length = directions.norm(dim=0).clamp_min(torch.finfo(directions.dtype).tiny)
    left, size, _ = torch.linalg.svd(directions / length, full_matrices=False)
    basis: Tensor = left[:, size > 1e-8]
    return basis


ALONE = (
    "site {} has one row, which no mask hides: the server saw its length and, up to the common "
    "rotation, the row; use fale:mode=gram"
)


def describe_doubts(n: int, found: Directions) -> list[str]:
    """What a reader of the results should know, in sentences."""
    sentences = []
    if n < found.rank:
        sentences.append(
            f"{n} labels for {found.rank} directions: what they do not reach stays at 0 in a least "
            "squares solution; buy more, or use server-solve:ridge=0.001"
        )
    if found.condition > STEEP:
        sentences.append(
            f"columns are collinear up to 1 in {found.condition:.0e}: scores in that direction are "
            "rounding errors; leave out a column, or use fale:ridge=0.001"
        )
    return sentences
