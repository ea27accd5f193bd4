"""AHFAL's error of a mix, its best weight and its condition against grids and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fallow.papers.ahfal.theory import TwoScores
from fallow.queries import AHFAL


def drawn(rng: np.random.Generator, bias_local: float = 0.0) -> TwoScores:
    """Moments that some two variables have."""
    v, u = rng.exponential(size=2)
    rho = rng.uniform(-1, 1) * math.sqrt(v * u)
    return TwoScores(bias_local, rng.normal(), v, u, rho)


def test_the_error_is_that_of_a_sample_with_these_moments() -> None:  # Eq. 7
    errors = np.random.default_rng(0).normal(size=(50, 2)) @ [[1.0, 0.4], [0.0, 2.0]] + [
        0.3,
        -1.0,
    ]
    cov = np.cov(errors.T, ddof=0)
    bias = errors.mean(0)
    made = TwoScores(bias[0], bias[1], cov[0, 0], cov[1, 1], cov[0, 1])
    for weight in (0.0, 0.2, 0.5, 1.0):
        mixed = weight * errors[:, 0] + (1 - weight) * errors[:, 1]
        assert made.error(weight) == pytest.approx(np.mean(mixed**2))


def test_the_best_weight_is_the_least_of_a_grid() -> None:  # Eq. 8
    rng, grid = np.random.default_rng(1), np.linspace(0, 1, 1001)
    cases = [drawn(rng, rng.normal()) for _ in range(200)]
    for made in cases:
        least = grid[np.argmin([made.error(w) for w in grid])]
        assert made.best_weight == pytest.approx(least, abs=0.5e-3 + 1e-9)
        assert all(
            made.error(made.best_weight) <= made.error(w) + 1e-12 for w in grid[::50]
        )
    weights = [made.best_weight for made in cases]
    assert min(weights) == 0 and max(weights) == 1  # clipped at both ends, and in between
    assert sum(0 < w < 1 for w in weights) > 50


def test_the_condition_has_the_sign_of_the_errors_in_a_thousand_draws() -> None:  # Eq. 9
    rng = np.random.default_rng(2)
    cases = [drawn(rng) for _ in range(1000)]
    helps = [made.half_beats_local for made in cases]
    assert helps == [made.error(0.5) < made.error(1) for made in cases]
    assert 200 < sum(helps) < 800


def test_without_bias_and_covariance_each_is_weighted_by_the_variance_of_the_other() -> (
    None
):
    made = TwoScores(variance_local=0.3, variance_global=1.2)
    assert made.best_weight == pytest.approx(1.2 / 1.5)
    assert made.error(0.5) == pytest.approx(1.5 / 4)


def test_half_and_half_is_what_ahfal_does_and_is_best_for_equal_variances() -> None:
    assert TwoScores().best_weight == AHFAL().mix == 0.5


def test_scores_that_err_alike_have_no_best_weight() -> None:
    same = TwoScores(0.7, 0.7, 2.0, 2.0, 2.0)
    assert same.error(0) == same.error(0.3) == same.error(1) == pytest.approx(2.49)
    assert same.best_weight == 0.5


@pytest.mark.parametrize(
    "moments", [(0, 0, -1, 1, 0), (0, 0, 1, 1, 1.5), (0, 0, 1, math.nan, 0)]
)
def test_moments_that_no_variables_have_are_refused(moments: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="belong to no two variables"):
        TwoScores(*moments)


def test_the_condition_is_refused_for_a_biased_local_score() -> None:
    with pytest.raises(ValueError, match=r"its bias is 0.1; compare error\(0.5\)"):
        _ = TwoScores(bias_local=0.1).half_beats_local
