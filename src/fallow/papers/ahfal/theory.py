"""AHFAL's theory (section 5, Appendix C): when does mixing two models' scores pay?

A diagnostic for simulations and for reading the paper: bias, variance and covariance of scores are
unknown at a site, so no strategy can set its mix by them.  AHFAL mixes half and half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

ROUNDING = 1e-9


@final
@dataclass(frozen=True)
class TwoScores:
    """Errors of a local and a global estimate of the same uncertainty, as random variables.

    The mix with weight λ on the local one has the error λ e_L + (1 - λ) e_G.  Raises ValueError for
    moments that no two variables have.

    >>> TwoScores(variance_local=3.0, variance_global=1.0).best_weight
    0.25
    """

    bias_local: float = 0.0  # b_L; the paper's condition takes it as 0
    bias_global: float = 0.0  # β: the global model is pulled to other sites' data
    variance_local: float = 1.0  # V_L
    variance_global: float = 1.0  # V_G
    covariance: float = 0.0  # ρ

    def __post_init__(self) -> None:
        v = self.variance_local
        u = self.variance_global
        rho = self.covariance
        if not (v >= 0 and u >= 0 and rho**2 <= v * u * (1 + ROUNDING)):
            raise ValueError(
                f"variances {v} and {u} with covariance {rho} belong to no two variables; give "
                "variances of 0 or more and a covariance whose square is at most their product"
            )

    def error(self, weight: float) -> float:
        """Eq. 7: mean squared error of the mix with ``weight`` λ on the local score."""
        other = 1 - weight
        bias = weight * self.bias_local + other * self.bias_global
        alone = weight**2 * self.variance_local + other**2 * self.variance_global
        return bias**2 + alone + 2 * weight * other * self.covariance

    @property
    def best_weight(self) -> float:
        """Eq. 8: λ*, the weight between 0 and 1 with the least error; 1/2 where all are equal."""
        apart = self.bias_global - self.bias_local
        curve = self.variance_local + self.variance_global - 2 * self.covariance + apart**2
        if curve <= 0:
            return 0.5
        weight = (self.variance_global - self.covariance + self.bias_global * apart) / curve
        return min(1.0, max(0.0, weight))

    @property
    def half_beats_local(self) -> bool:
        """Eq. 9: whether half and half has a smaller error than an unbiased local score alone.

        Raises ValueError where the local score is biased: the condition is about β alone.
        """
        if self.bias_local:
            raise ValueError(
                f"the condition takes an unbiased local score, and its bias is {self.bias_local}; "
                "compare error(0.5) with error(1)"
            )
        margin = 3 * self.variance_local - self.variance_global - 2 * self.covariance
        return self.bias_global**2 < margin
