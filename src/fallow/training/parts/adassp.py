"""AdaSSP (Wang, 2018, Revisiting differentially private linear regression), Algorithm 2.

AdaSSP is ridge regression from products of examples with Gaussian noise.  Notation as in `ridge`; x
(n, D + 1) are examples of norm 1 at most: the features, clipped, and a constant.

Notes
-----
There are three differences from the paper, which follow from the released values.  The paper spends
a third of its privacy budget on the smallest eigenvalue of the products; here it is computed from
the noisy products at no cost.  The paper releases products of examples and of examples with targets
separately; together, their sensitivity to one example is smaller than the sum.  The noise level is
not computed from ε, which the server side does not know; it is estimated from zeros that are
released with the products.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.training.parts.ridge import (
    PENALTIES,
    TEMPERATURES,
    LinearHead,
    Rows,
    add_products,
    row_blocks,
)

SENSITIVITY = 4.5**0.5
"""L2 sensitivity of `sum_products` to a change of one example and its class.

One example adds t = (xx', xy') with |x| <= 1 and y one-hot.  With k = x·w and d = y·v in {0, 1} another
example (w, v) gives t·t = |x|⁴ + |x|² <= 2 and t·t' = k² + k d >= -1/4, the smallest at k = -1/2 and
d = 1; so |t - t'|² <= 2 + 2 + 1/2.  The bound is tight: x at 120 degrees to w, with the same class.
"""
CONSTANT = 0.1  # share of the constant in the squared norm of an example
ZEROS = 256  # number of zeros, for a standard deviation to 4 %
ROOT = 2.0**0.5
TINY = 1e-300


class NoisyProducts(NamedTuple):
    """Products of `sum_products`, with noise.

    a (D + 1, D + 1)  Σ x x'
    b (D + 1, C)      Σ x y'
    scale             standard deviation of the noise in `sum_products`, over all sites
    """

    a: Tensor
    b: Tensor
    scale: float


class PrivateHead(NamedTuple):
    """Linear model with the selected λ and T."""

    head: LinearHead
    penalty: float
    temperature: float


# -- client side ----------------------------------------------------------------------------------


def cut_rows(z: Tensor) -> Tensor:
    """Clip features z (n, D), in float64, to examples x (n, D + 1) of norm 1 at most.

    >>> cut_rows(torch.tensor([[3.0, 4.0]])).square().sum().item()
    1.0
    """
    z = z.double()
    length = z.norm(dim=1, keepdim=True).clamp_min(1)
    constant = torch.full((len(z), 1), CONSTANT**0.5, dtype=torch.float64)
    return torch.cat([(1 - CONSTANT) ** 0.5 * z / length, constant], dim=1)


def sum_products(z: Rows, y: Rows) -> Tensor:
    """Return Σ x x' and Σ x y' over a site's examples, and zeros, as one vector.

    z: (n, D), y: (n, C) one-hot -> ((D + 1)(D + 2) / 2 + (D + 1) C + ZEROS,).  The upper triangle
    of x x' is stored row by row.  Off-diagonal entries are multiplied by √2, which preserves norms
    and reduces the noise in the matrix.
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
    """Return a mask of the upper triangle, (size, size)."""
    return torch.ones(size, size, dtype=torch.bool).triu()


def _lengths(size: int) -> Tensor:
    """Return the factors of the entries of the triangle: √2, and 1 on the diagonal."""
    weights = torch.full((size, size), ROOT, dtype=torch.float64)
    weights.fill_diagonal_(1)
    return weights[_upper(size)]


# -- server side ----------------------------------------------------------------------------------


def read_products(total: Tensor, weights: int) -> NoisyProducts:
    """Return the noisy aggregate of `sum_products` as matrices, for (D + 1) C ``weights``.

    Raises ValueError for an aggregate of another length.
    """
    n_triangle = max(len(total) - weights - ZEROS, 0)
    size = (math.isqrt(8 * n_triangle + 1) - 1) // 2
    if size < 1 or size * (size + 1) // 2 != n_triangle or weights % size:
        raise ValueError(
            f"noisy aggregates have {len(total)} numbers, which is impossible for "
            f"{weights} weights: all sites must use the same encoder"
        )
    triangle, cross, zeros = torch.split(total, [n_triangle, weights, ZEROS])

    a = torch.zeros(size, size, dtype=torch.float64)
    a[_upper(size)] = triangle / _lengths(size)
    a = a + a.triu(1).T
    return NoisyProducts(
        a, cross.view(size, weights // size), float(zeros.square().mean().sqrt())
    )


def solve(noisy: NoisyProducts, rows: int, penalty: float | None) -> PrivateHead:
    """Solve for ``rows`` examples, with λ = ``penalty``, or the λ of the paper for None.

    The noise in the products is a symmetric matrix with a largest eigenvalue of about σ √(2 D).  λ
    raises the smallest eigenvalue to that value.
    """
    size = len(noisy.a)
    e, u = torch.linalg.eigh(noisy.a)
    spread = noisy.scale * (2 * size) ** 0.5
    surely = max(float(e[0]) - spread, 0.0)  # lower bound of the smallest eigenvalue
    added = max(spread - surely, PENALTIES[0] * rows)
    if penalty is not None:
        added = penalty * rows

    e = e.clamp_min(0)
    inverse = (e + added).clamp_min(TINY).reciprocal()
    turned = inverse[:, None] * (u.T @ noisy.b)  # U'W, (D + 1, C)
    weight = u @ turned
    head = LinearHead(
        weight=(1 - CONSTANT) ** 0.5 * weight[:-1],
        bias=CONSTANT**0.5 * weight[-1],
    )

    # Σ |y - W'x|² over the examples, minus the bias from the noise in b
    classes = weight.shape[1]
    of_noise = noisy.scale**2 * classes * float(inverse.sum())
    crossed = float((weight * noisy.b).sum()) - of_noise
    left = rows - 2 * crossed + float((e[:, None] * turned.square()).sum())
    temperature = choose_temperature(left / (rows * classes))
    return PrivateHead(head, added / rows, temperature)


def choose_temperature(variance: float) -> float:
    """Return T from the mean squared error of the outputs, without access to examples.

    If outputs are normal around 1 for the true class and around 0 for the others, with equal
    variance, the odds of two classes are those of the softmax of outputs divided by the variance.

    >>> choose_temperature(1.0)
    1.0
    """
    best = 1 / max(variance, 1 / TEMPERATURES[-1])
    nearest: float = min(TEMPERATURES, key=lambda candidate: abs(candidate - best))
    return nearest
