"""Theorem 4.1 of FALE: draws, and the error that they promise."""

from __future__ import annotations

import math

import pytest
import torch

from fallow_papers.fale.complexity import (
    constant_factor,
    draws_for_embedding,
    draws_for_relative_error,
    measure_errors,
    promised_error,
)


def test_draws_grow_as_the_theorem_states() -> None:
    assert draws_for_embedding(20, 0.5) == math.ceil(20 * math.log(40))
    assert draws_for_relative_error(20, 0.01) == math.ceil(20 * math.log(20) + 2000)
    assert draws_for_relative_error(20, 0.01, factor=2) == math.ceil(
        2 * (20 * math.log(20) + 2000)
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_the_promised_error_is_the_inverse_of_the_number_of_draws(epsilon: float) -> None:
    draws = draws_for_relative_error(30, epsilon)
    assert promised_error(30, draws) <= epsilon < promised_error(30, draws - 1)
    assert promised_error(30, 30) == math.inf


def test_the_constant_is_that_of_the_proof() -> None:
    assert constant_factor(0, 1 / 100) == pytest.approx(1920)
    assert constant_factor(1, 1) == 256


def test_measured_errors_are_within_the_promise_more_often_than_stated() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 5, generator=generator, dtype=torch.float64)
    x[:4] *= 50  # a few examples have nearly all leverage
    y = x.sum(1) + torch.randn(400, generator=generator, dtype=torch.float64)
    for epsilon in (0.1, 0.5):
        draws = draws_for_relative_error(5, epsilon, factor=2)
        errors = [measure_errors(x, y, draws, generator) for _ in range(30)]
        assert min(errors) >= -1e-9
        assert sum(error <= epsilon for error in errors) >= 10


@pytest.mark.parametrize("delta", [0.0, -1.0, 1.5, math.nan])
def test_a_probability_outside_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta is"):
        draws_for_embedding(3, delta)
    with pytest.raises(ValueError, match="delta is"):
        constant_factor(0, delta)
