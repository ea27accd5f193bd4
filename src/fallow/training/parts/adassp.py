"""AdaSSP (Wang, 2018, Revisiting differentially private linear regression), Algorithm 2: a ridge
regression from products of rows to which Gaussian noise was added.

Letters as in `ridge`; x (n, D + 1) are rows of length 1 at most: the features, cut where they are
longer, and a constant.

Notes
-----
Three things are not as in the paper, and all follow from what is released.  The paper spends a third
of its budget on the smallest eigenvalue of the products; here it is read off the noisy ones, which
costs nothing.  It releases products of rows and of rows with answers by themselves; together one row
changes them by less than by itself in each.  And the size of the noise is not computed from ε, which
a server half is not told, but measured on zeros that are released beside.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.training.parts.ridge import (
    PENALTIES,
    TEMPERATURES,
    Head,
    Rows,
    add_products,
    row_blocks,
)

SENSITIVITY = 4.5**0.5
"""The largest change in L2 of `sum_products`, when one row and its class are others.

One row adds t = (xx', xy') with |x| <= 1 and y one-hot.  With k = x·w and d = y·v in {0, 1} another
row (w, v) gives t·t = |x|⁴ + |x|² <= 2 and t·t' = k² + k d >= -1/4, the smallest at k = -1/2 and
d = 1; so |t - t'|² <= 2 + 2 + 1/2.  It is reached: x at 120 degrees to w, of the same class.
"""
CONSTANT = 0.1  # the part of a row's squared length that the constant has
ZEROS = 256  # of which the noise tells its own size, to 4 %
ROOT = 2.0**0.5
TINY = 1e-300


class NoisyProducts(NamedTuple):
    """What `sum_products` held, with noise.

    a (D + 1, D + 1)  Σ x x'
    b (D + 1, C)      Σ x y'
    scale             the standard deviation of the noise in `sum_products`, of all sites together
    """

    a: Tensor
    b: Tensor
    scale: float


class PrivateHead(NamedTuple):
    """The head, with the λ and T that were chosen."""

    head: Head
    penalty: float
    temperature: float


# -- at a site ------------------------------------------------------------------------------------


def cut_rows(z: Tensor) -> Tensor:
    """Features z (n, D), in float64, as rows x (n, D + 1) of length 1 at most.

    >>> cut_rows(torch.tensor([[3.0, 4.0]])).square().sum().item()
    1.0
    """
    z = z.double()
    length = z.norm(dim=1, keepdim=True).clamp_min(1)
    constant = torch.full((len(z), 1), CONSTANT**0.5, dtype=torch.float64)
    return torch.cat([(1 - CONSTANT) ** 0.5 * z / length, constant], dim=1)


def sum_products(z: Rows, y: Rows) -> Tensor:
    """Σ x x' and Σ x y' over a site's rows, and zeros: ((D + 1)(D + 2) / 2 + (D + 1) C + ZEROS,).
    z: (n, D), y: (n, C) one-hot.

    Of x x' the upper triangle, row by row; off its diagonal times √2, which leaves lengths as they
    are and gives the matrix less noise.
    """
    size = z.shape[1] + 1
    products = torch.zeros(size, size, dtype=torch.float64)
    cross = torch.zeros(size, y.shape[1], dtype=torch.float64)
    for z_rows, y_rows in row_blocks(z, y):
        x = cut_rows(z_rows)
        add_products(products, x)
        cross += x.T @ y_rows.double()

    triangle = products[_upper(size)] * _lengths(size)
    return torch.cat([triangle, cross.flatten(), torch.zeros(ZEROS, dtype=torch.float64)])


def _upper(size: int) -> Tensor:
    """A mask of the upper triangle, (size, size)."""
    return torch.ones(size, size, dtype=torch.bool).triu()


def _lengths(size: int) -> Tensor:
    """What each number of the triangle is multiplied by: √2, and 1 on the diagonal."""
    weights = torch.full((size, size), ROOT, dtype=torch.float64)
    weights.fill_diagonal_(1)
    return weights[_upper(size)]


# -- at the server --------------------------------------------------------------------------------


def read_products(total: Tensor, weights: int) -> NoisyProducts:
    """The total of all sites' `sum_products`, with noise, as matrices, for a head of so many
    ``weights``, (D + 1) C.

    Raises ValueError for a total of another length.
    """
    n_triangle = max(len(total) - weights - ZEROS, 0)
    size = (math.isqrt(8 * n_triangle + 1) - 1) // 2
    if size < 1 or size * (size + 1) // 2 != n_triangle or weights % size:
        raise ValueError(
            f"noisy totals are {len(total)} numbers, which is no number of them for a head of "
            f"{weights} weights: all sites must use one encoder"
        )
    triangle, cross, zeros = torch.split(total, [n_triangle, weights, ZEROS])

    a = torch.zeros(size, size, dtype=torch.float64)
    a[_upper(size)] = triangle / _lengths(size)
    a = a + a.triu(1).T
    return NoisyProducts(
        a, cross.view(size, weights // size), float(zeros.square().mean().sqrt())
    )


def solve(noisy: NoisyProducts, rows: int, penalty: float | None) -> PrivateHead:
    """The head for so many rows: with the λ = ``penalty``, or, for None, with the paper's.

    The noise in the products is a symmetric matrix whose largest eigenvalue is about σ √(2 D).  As
    much is added to the smallest one, less what it is above that by itself.
    """
    size = len(noisy.a)
    e, u = torch.linalg.eigh(noisy.a)
    spread = noisy.scale * (2 * size) ** 0.5
    surely = max(float(e[0]) - spread, 0.0)  # what the smallest eigenvalue is at least
    added = max(spread - surely, PENALTIES[0] * rows)
    if penalty is not None:
        added = penalty * rows

    e = e.clamp_min(0)
    inverse = (e + added).clamp_min(TINY).reciprocal()
    turned = inverse[:, None] * (u.T @ noisy.b)  # U'W, (D + 1, C)
    weight = u @ turned
    head = Head(
        weight=(1 - CONSTANT) ** 0.5 * weight[:-1],
        bias=CONSTANT**0.5 * weight[-1],
    )

    # Σ |y - W'x|² over the rows: what the noise in b adds to its product with W is taken off
    classes = weight.shape[1]
    of_noise = noisy.scale**2 * classes * float(inverse.sum())
    crossed = float((weight * noisy.b).sum()) - of_noise
    left = rows - 2 * crossed + float((e[:, None] * turned.square()).sum())
    temperature = choose_temperature(left / (rows * classes))
    return PrivateHead(head, added / rows, temperature)


def choose_temperature(variance: float) -> float:
    """T from the mean square by which outputs miss, without another look at rows.

    Were outputs normal about 1 for the true class and about 0 for all others, with one variance,
    the odds of two classes would be those of the softmax of outputs divided by it.

    >>> choose_temperature(1.0)
    1.0
    """
    best = 1 / max(variance, 1 / TEMPERATURES[-1])
    nearest: float = min(TEMPERATURES, key=lambda each: abs(each - best))
    return nearest
