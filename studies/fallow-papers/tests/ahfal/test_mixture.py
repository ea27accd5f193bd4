"""Equations 5 to 9 of AHFAL: error of a mixture of two entropy estimates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fallow_papers.ahfal.mixture import (
    EstimateErrors,
    best_weight,
    is_hybrid_better,
    measure_errors,
    squared_error,
)

WEIGHTS = [i / 1000 for i in range(1001)]


def draw_entropies(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return two biased, correlated estimates and the truth, (50,) each."""
    gen = torch.Generator().manual_seed(seed)
    truth, shared, own, other = torch.randn(4, 50, generator=gen, dtype=torch.float64)
    bias = torch.randn(2, generator=gen, dtype=torch.float64)
    return truth + shared + own + bias[0], truth + 0.5 * shared + other + bias[1], truth


@pytest.mark.parametrize("seed", range(5))
def test_the_error_of_a_mixture_is_the_mean_square_of_its_errors(seed: int) -> None:
    local, common, truth = draw_entropies(seed)
    errors = measure_errors(local, common, truth)
    for weight in (0.0, 0.3, 0.5, 1.0):
        mixed = weight * local + (1 - weight) * common
        expected = float((mixed - truth).square().mean())
        assert squared_error(errors, weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_no_weight_on_a_grid_is_better_than_the_best_one(seed: int) -> None:
    errors = measure_errors(*draw_entropies(seed))
    least = squared_error(errors, best_weight(errors))
    grid = min(squared_error(errors, weight) for weight in WEIGHTS)
    assert least <= grid < least + 1e-5


def test_a_best_weight_outside_is_clipped() -> None:
    worse = EstimateErrors(local_variance=1.0, global_variance=4.0, covariance=1.8)
    assert best_weight(worse) == 1.0
    assert best_weight(EstimateErrors(global_variance=1.0, global_bias=2.0)) == 1.0
    assert best_weight(EstimateErrors(local_variance=1.0, local_bias=2.0)) == 0.0
    assert best_weight(EstimateErrors()) == 0.5


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.99, 1.01, 2.0])
@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.4])
def test_without_a_local_bias_the_condition_is_the_printed_one(
    beta: float, rho: float
) -> None:
    errors = EstimateErrors(
        global_bias=beta, local_variance=1.0, global_variance=2.0, covariance=rho
    )
    assert is_hybrid_better(errors) == (beta**2 < 3 * 1.0 - 2.0 - 2 * rho)


def test_moments_of_the_estimates_instead_of_their_errors_give_another_error() -> None:
    # the truth varies, and both estimates are exact
    truth = torch.arange(4.0)
    assert squared_error(measure_errors(truth, truth, truth), 0.5) == 0.0
    as_printed = EstimateErrors(local_variance=1.25, global_variance=1.25, covariance=1.25)
    assert squared_error(as_printed, 0.5) == 1.25


def test_entropies_of_different_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="for at least one example"):
        measure_errors(torch.zeros(2), torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match="for at least one example"):
        measure_errors(torch.zeros(0), torch.zeros(0), torch.zeros(0))
