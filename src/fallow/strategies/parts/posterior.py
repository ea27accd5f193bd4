"""Last-layer features, and the Gaussian posterior of one linear output, in float64.

The gradient of a linear output is φ(x) = (embed(x), 1), regardless of its weights.  With labeled
examples Φ_L and noise σ, M = (Φ_L'Φ_L + σ²I)⁻¹ is the posterior covariance of the weights.  Scale
and noise follow Holzmüller et al. (2023): labeled examples have a mean square of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import torch
from torch import Tensor

from fallow.core.limits import Limits
from fallow.core.view import SelectedExamples, View
from fallow.strategies.parts.kcenter import FeatureVectors
from fallow.strategies.parts.top import first_best, order_ties, require_finite

SIGMA = 1e-3
"""σ, label noise for labeled examples with a mean square of 1 (Holzmüller et al., 2023)."""

LEAST = 1e-6  # minimum σ: its square must exceed the rounding errors of Φ_L'Φ_L
Sigma = Annotated[float, Limits(ge=LEAST, is_finite=True)]
"""Standard deviation of label noise."""
TIED = 1e-10  # relative tolerance: duplicates differ by rounding errors
LARGEST = 1e50  # maximum feature: sums of its fourth power are finite


def refuse_classes(strategy: object, view: View) -> None:
    """Raise ValueError for classification, for a query strategy for one output."""
    if view.classes:
        raise ValueError(
            f"{type(strategy).__name__} is for numbers to predict and the data has {view.classes} "
            "classes; use badge or core-set"
        )


@final
@dataclass(frozen=True)
class LastLayer:
    """Finite features of the examples of a site.

    pool: (m, k); labeled: (l, k); rows: positions of the ``m`` in the pool, then those of
    non-finite examples, which are ranked last.
    """

    pool: Tensor
    labeled: Tensor
    rows: Tensor

    @staticmethod
    def of(view: View, model: str) -> LastLayer:
        """Return φ, k = d + 1.

        An example with a number beyond `LARGEST` counts as non-finite, because fourth powers are
        needed.  Raises ValueError if no example of the pool is finite.
        """
        x = view.embed(model)
        known = view.embed(model, "labeled")
        good = _is_usable(x)
        require_finite(good, wrong=f"NaN or infinite, or beyond {LARGEST:g}")
        rows = (~good).long().argsort(stable=True)
        return LastLayer(with_one(x[good]), with_one(known[_is_usable(known)]), rows)

    def selected(self, chosen: Tensor, n: int) -> SelectedExamples:
        """Select ``n`` examples: the ``chosen`` ones of ``pool``, then non-finite ones."""
        return SelectedExamples(
            torch.cat([self.rows[chosen], self.rows[len(self.pool) :]])[:n]
        )

    def points(
        self, ties: torch.Generator
    ) -> tuple[FeatureVectors, FeatureVectors, int | None]:
        """Return pool, labeled examples and the start: the longest example without labels."""
        start = None
        if not len(self.labeled):
            order = order_ties(len(self.pool), ties)
            start = first_best(self.pool.square().sum(1), order)
        middle = self.pool.mean(0)  # a shift changes no distance and reduces rounding
        return (
            FeatureVectors.of(self.pool - middle),
            FeatureVectors.of(self.labeled - middle),
            start,
        )

    def posterior(self, sigma: float) -> LastLayer:
        """Return M^½φ of scaled examples: inner products are posterior covariances over σ²."""
        measured = self.labeled
        if len(measured) == 0:
            measured = self.pool
        scale = measured.square().sum(1).mean().sqrt()
        pool = self.pool / scale
        labeled = self.labeled / scale

        known = labeled.T @ labeled  # (k, k)
        known.diagonal().add_(sigma**2)
        root = torch.linalg.cholesky(known)  # of M⁻¹
        pool = torch.linalg.solve_triangular(root, pool.T, upper=False).T
        labeled = torch.linalg.solve_triangular(root, labeled.T, upper=False).T
        return LastLayer(pool, labeled, self.rows)


def _is_usable(x: Tensor) -> Tensor:
    """Return a mask of usable features; false for NaN.  x: (n, d) -> (n,)."""
    return (x.double().abs() <= LARGEST).all(1)


def with_one(x: Tensor) -> Tensor:
    """Append a column of ones: (n, d) -> (n, d + 1), in float64."""
    return torch.cat([x.double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)


@final
@dataclass(frozen=True)
class Reduction:
    """Reduction of the posterior variance of all examples by a label.

    phi: (m, k) examples; m_phi: (m, k) M times each; r_m_phi: (m, .) R M times each; root: R (., k),
    where F = R'R is the sum of φφ' over pool and labeled examples.  A label reduces Tr(MF) by
    φ'MFMφ / (1 + φ'Mφ), the greedy step of BAIT (Ash et al., 2021) for one output.
    """

    phi: Tensor
    m_phi: Tensor
    r_m_phi: Tensor
    root: Tensor

    @staticmethod
    def of(rows: LastLayer, sigma: float) -> Reduction:
        """Return the reduction for the pool; F is constant from here on."""
        z = rows.posterior(sigma)  # in these coordinates M = I
        root = torch.linalg.qr(torch.cat([z.pool, z.labeled]), mode="r").R
        return Reduction(z.pool, z.pool, z.pool @ root.T, root)

    def variance(self) -> Tensor:
        """Return φ'Mφ, (m,)."""
        return (self.phi * self.m_phi).sum(1)

    def gain(self) -> Tensor:
        """Return the decrease of Tr(MF) by a label, (m,)."""
        return self.r_m_phi.square().sum(1) / (1 + self.variance())
