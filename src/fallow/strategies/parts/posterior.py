"""Last-layer features, and the Gaussian posterior of one linear output on them, in float64.

The gradient of a linear output is φ(x) = (embed(x), 1), whatever its weights are.  With labeled
rows Φ_L and noise σ, M = (Φ_L'Φ_L + σ²I)⁻¹ is what is not yet known about the weights.  Scale and
noise are those of Holzmüller et al. (2023): labeled rows have a mean square of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from fallow.core.view import Picks, View
from fallow.strategies.parts.kcenter import Features
from fallow.strategies.parts.top import first_best, order_ties

SIGMA = 1e-3
"""σ, the noise of a label where labeled rows have a mean square of 1 (Holzmüller et al., 2023)."""

LEAST = 1e-6  # of σ: its square must not drown in the rounding errors of Φ_L'Φ_L
CERTAIN = 1e-12  # 1 - φ'Mφ of a pick that cannot be taken back
TIED = 1e-10  # of the largest score: copies of a row differ by rounding errors
LARGEST = 1e50  # of a feature: its fourth power times any number of rows is a double


class HasSigma(Protocol):
    """A strategy with a field for the noise of a label."""

    @property
    def sigma(self) -> float: ...


def check_sigma(strategy: HasSigma) -> None:
    """Raise ValueError where the field ``sigma`` is no noise."""
    if not LEAST <= strategy.sigma < float("inf"):
        name = type(strategy).__name__
        raise ValueError(
            f"{name}'s sigma is {strategy.sigma}; it must be {LEAST} or more and finite"
        )


def refuse_classes(strategy: object, view: View) -> None:
    """Raise ValueError where there are classes, for a strategy that knows one output only."""
    if view.classes:
        raise ValueError(
            f"{type(strategy).__name__} is for numbers to predict and the data has {view.classes} "
            "classes; use badge or core-set"
        )


@final
@dataclass(frozen=True)
class LastLayer:
    """Features of a site's rows that are finite.

    pool: (m, k); labeled: (l, k); rows: positions of the ``m`` in the pool of the site, then those
    of its rows that are not finite: these come last in every choice.
    """

    pool: Tensor
    labeled: Tensor
    rows: Tensor

    @staticmethod
    def of(view: View, model: str) -> LastLayer:
        """φ, k = d + 1.  A row with a number beyond `LARGEST` counts as one that is not finite: its
        fourth powers are needed.  Raises ValueError where no row of the pool is finite.
        """
        x = view.embed(model)
        known = view.embed(model, "labeled")
        good = _is_usable(x)
        if not bool(good.any()):
            raise ValueError(
                f"the features of all {len(x)} rows are NaN or infinite, or beyond {LARGEST:g}: the "
                "model has diverged; lower the learning rate or check the rows"
            )
        rows = (~good).long().argsort(stable=True)
        return LastLayer(with_one(x[good]), with_one(known[_is_usable(known)]), rows)

    def picks(self, chosen: Tensor, n: int) -> Picks:
        """``n`` rows of the site: the ``chosen`` rows of ``pool``, then what is not finite."""
        return Picks(torch.cat([self.rows[chosen], self.rows[len(self.pool) :]])[:n])

    def points(self, ties: torch.Generator) -> tuple[Features, Features, int | None]:
        """Pool and labeled rows, and where to start: at the longest row if nothing is labeled."""
        start = None
        if not len(self.labeled):
            order = order_ties(len(self.pool), ties)
            start = first_best(self.pool.square().sum(1), order)
        middle = self.pool.mean(0)  # a shift changes no distance, but less is rounded
        return Features.of(self.pool - middle), Features.of(self.labeled - middle), start

    def posterior(self, sigma: float) -> LastLayer:
        """M^½φ of scaled rows: inner products are posterior covariances, over σ²."""
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
    """Which rows of features can be computed with; false for NaN.  x: (n, d) -> (n,)."""
    return (x.double().abs() <= LARGEST).all(1)


def with_one(x: Tensor) -> Tensor:
    """(n, d) -> (n, d + 1), in float64."""
    return torch.cat([x.double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)


@final
@dataclass(frozen=True)
class Reduction:
    """How much of the posterior variance of all rows a label would take away.

    phi: (m, k) rows; m_phi: (m, k) M times each; r_m_phi: (m, .) R M times each, where F = R'R is
    the sum of φφ' over pool and labeled rows.  Tr(MF) falls by φ'MFMφ / (1 + φ'Mφ) when a row is
    labeled: the greedy step of BAIT (Ash et al., 2021) for one output.
    """

    phi: Tensor
    m_phi: Tensor
    r_m_phi: Tensor

    @staticmethod
    def of(rows: LastLayer, sigma: float) -> Reduction:
        """The rows of the pool; F stays what it is now."""
        z = rows.posterior(sigma)  # in these coordinates M = I
        root = torch.linalg.qr(torch.cat([z.pool, z.labeled]), mode="r").R
        return Reduction(z.pool, z.pool, z.pool @ root.T)

    def at(self, rows: Tensor) -> Reduction:
        return Reduction(self.phi[rows], self.m_phi[rows], self.r_m_phi[rows])

    def variance(self) -> Tensor:
        """φ'Mφ, (m,)."""
        return (self.phi * self.m_phi).sum(1)

    def gain(self) -> Tensor:
        """By how much Tr(MF) falls when a row is labeled, (m,)."""
        return self.r_m_phi.square().sum(1) / (1 + self.variance())

    def loss(self) -> Tensor:
        """By how much Tr(MF) grows when a labeled row is taken back, (m,); infinite where M does
        not tell what was known without it."""
        left = 1 - self.variance()
        return (self.r_m_phi.square().sum(1) / left).masked_fill(left <= CERTAIN, torch.inf)

    def after(self, j: int, sign: int = 1) -> Reduction:
        """When row ``j`` is labeled, or (``sign`` = -1) is taken back."""
        step = self.m_phi @ self.phi[j]  # φ'Mφ_j
        step = step / (sign + step[j])
        return Reduction(
            self.phi,
            self.m_phi.addr(step, self.m_phi[j], alpha=-1),
            self.r_m_phi.addr(step, self.r_m_phi[j], alpha=-1),
        )
