"""Gaussian mechanism with zero-concentrated differential privacy (zCDP; Bun and Steinke, 2016).

Noise of scale σ on numbers with L2 sensitivity Δ is ρ-zCDP with ρ = Δ² / (2 σ²); ρ of several
releases adds up.  For every α > 1, ρ-zCDP is (ε, δ)-differentially private with

    ε = α ρ + (ln(1/δ) + α ln(1 - 1/α) - ln(α - 1)) / (α - 1),

and the α of the smallest ε is used (Canonne, Kamath and Steinke, 2020, Proposition 12; the
conversion of OpenDP's `make_zCDP_to_approxDP`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import torch
from torch import Tensor

from fallow.core.optional import NOISE, import_privacy

NUDGE = 2.0**-50
"""OpenDP rounds the cost of a scale up in its last bits; the scale is increased by more than that."""
SLACK = 2.0**-40
"""Bound on errors of searches and sums: ρ is rounded down and costs are rounded up by it."""
ORDERS = range(-20, 45)
"""Start of the search for ln(α - 1)."""
GOLDEN = (5**0.5 - 1) / 2
CLOSE = 1e-7  # tolerance of ln(α - 1); the error of the value is its square


# -- privacy budget ------------------------------------------------------------------------------


@lru_cache
def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ for which one release is (ε, δ)-private.

    >>> round(rho_of(1.0, 1e-5), 4)
    0.0306
    """

    def find_rho(log_order: float) -> float:
        order, overhead = _compute_overhead(log_order, delta)
        return (epsilon - overhead) / order

    return -_minimize(lambda log_order: -find_rho(log_order)) * (1 - SLACK)


@lru_cache
def epsilon_of(rho: float, delta: float) -> float:
    """Return the smallest ε of ρ-zCDP at δ.

    >>> round(epsilon_of(rho_of(1.0, 1e-5), 1e-5), 9)
    1.0
    """

    def find_epsilon(log_order: float) -> float:
        order, overhead = _compute_overhead(log_order, delta)
        return order * rho + overhead

    return max(_minimize(find_epsilon), 0.0)


def _compute_overhead(log_order: float, delta: float) -> tuple[float, float]:
    """Return α, and its addition to α ρ; log_order: ln(α - 1)."""
    above = math.exp(log_order)  # α - 1
    order = 1 + above
    exponent = math.log(1 / delta) - order * math.log1p(1 / above) - log_order
    return order, exponent / above


def _minimize(function: Callable[[float], float]) -> float:
    """Minimize a function of ln(α - 1) with one minimum, by a grid and golden-section search.

    Every value is valid, so a missed minimum costs privacy budget but no privacy.
    """
    best = min(ORDERS, key=function)
    low = best - 1.0
    high = best + 1.0
    while high - low > CLOSE:
        width = GOLDEN * (high - low)
        if function(high - width) <= function(low + width):
            high = low + width
        else:
            low = high - width
    return function((low + high) / 2)


def cost_of_next(rho: float, epsilon: float, delta: float) -> float:
    """Return the increase of ε by one more release with (ε, δ), after releases with ρ.

    The first release costs ε; the sum of costs is at least the ε of all.
    """
    if rho == 0:
        return epsilon
    before = epsilon_of(rho, delta)
    after = epsilon_of(rho + rho_of(epsilon, delta), delta)
    return after - before + SLACK * after


def costs_of(releases: int, epsilon: float, delta: float) -> list[float]:
    """Return the cost of each release after the previous ones.

    >>> [round(cost, 2) for cost in costs_of(3, 1.0, 1e-5)]
    [1.0, 0.46, 0.36]
    """
    costs: list[float] = []
    rho = 0.0
    for _ in range(releases):
        costs.append(cost_of_next(rho, epsilon, delta))
        rho = add_rho([rho, rho_of(epsilon, delta)])
    return costs


def add_rho(parts: Iterable[float]) -> float:
    """Add ρ of several releases in sequence."""
    total = 0.0
    for part in parts:
        total += part
    return total


# -- sampling -------------------------------------------------------------------------------------


def scale_of(sensitivity: float, rho: float) -> float:
    """Return σ, the standard deviation of the noise."""
    return sensitivity / math.sqrt(2 * rho)


def draw_gaussian_seeded(numbers: Tensor, scale: float, draw: torch.Generator) -> Tensor:
    """Add Gaussian noise from a random stream, for simulation.  (m,) -> (m,) float64."""
    noise = torch.randn(numbers.shape, generator=draw, dtype=torch.float64)
    return numbers.double() + scale * noise


def draw_gaussian_from_os(numbers: Tensor, *, sensitivity: float, rho: float) -> Tensor:
    """Add Gaussian noise from the operating system with OpenDP, in a federation.

    numbers: (m,) -> (m,) float64.  OpenDP samples in exact arithmetic and rounds once, so the last
    bits of a noisy number disclose nothing about the exact one; this takes about 0.2 ms per number.
    Raises RuntimeError unless OpenDP proves that an L2 change of ``sensitivity`` costs at most
    ``rho``.
    """
    dp = import_privacy("opendp.prelude", NOISE)
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    metric = dp.l2_distance(T=float)

    scale = scale_of(sensitivity, rho)
    growth = NUDGE
    release = dp.m.make_gaussian(domain, metric, scale=scale)
    while release.map(sensitivity) > rho and growth < 2**-40:
        scale *= 1 + growth
        growth *= 2
        release = dp.m.make_gaussian(domain, metric, scale=scale)
    cost = release.map(sensitivity)
    if cost > rho:
        raise RuntimeError(f"noise of scale {scale} costs rho {cost}, more than permitted")
    return torch.tensor(release(numbers.double().tolist()), dtype=torch.float64)
