"""Noise from either source has the right distribution and is drawn once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from fallow.core.streams import stream
from fallow.privacy.noise import Mechanism, draw_from_os, draw_seeded

DRAWS = 4000
# a correct sampler fails once in ten thousand runs; seeded ones are deterministic
SMALL = 1e-4


def draw_many(
    counts: torch.Tensor,
    *,
    epsilon: float,
    sensitivity: float = 2.0,
    mechanism: Mechanism = "laplace",
) -> torch.Tensor:
    """Draw noise from the operating system's generator."""
    pytest.importorskip("opendp")
    return draw_from_os(
        counts, sensitivity=sensitivity, epsilon=epsilon, mechanism=mechanism
    )


@pytest.mark.parametrize("scale", [0.5, 2.0, 40.0])
def test_seeded_laplace_noise_has_scale_sensitivity_over_epsilon(scale: float) -> None:
    noise = draw_seeded(torch.zeros(DRAWS), scale, "laplace", stream(0, "noise", "a"))
    assert stats.kstest(noise.numpy(), stats.laplace(scale=scale).cdf).pvalue > 0.01
    assert stats.kstest(noise.numpy(), stats.laplace(scale=1.2 * scale).cdf).pvalue < SMALL


def test_laplace_noise_of_the_operating_system_has_the_same_scale() -> None:
    noise = draw_many(torch.full((DRAWS,), 7.0), epsilon=0.5).numpy() - 7
    assert stats.kstest(noise, stats.laplace(scale=4.0).cdf).pvalue > SMALL
    assert stats.kstest(noise, stats.laplace(scale=5.0).cdf).pvalue < SMALL


@pytest.mark.parametrize("source", ["seeded", "os"])
def test_discrete_noise_is_whole_and_two_sided_geometric(source: str) -> None:
    counts = torch.full((DRAWS,), 3.0)
    scale = 2.0
    if source == "os":
        noisy = draw_many(counts, epsilon=1.0, mechanism="discrete_laplace")
    else:
        noisy = draw_seeded(counts, scale, "discrete_laplace", stream(0, "noise", "a"))
    noise = (noisy - counts).numpy()
    assert np.array_equal(noise, np.round(noise))
    inner = np.arange(-6, 7)
    seen = np.array([(noise == k).sum() for k in inner])
    expected = DRAWS * stats.dlaplace(1 / scale).pmf(inner)
    rest = (DRAWS - seen.sum(), DRAWS - expected.sum())
    assert stats.chisquare([*seen, rest[0]], [*expected, rest[1]]).pvalue > SMALL


def test_noise_of_the_operating_system_is_different_every_time() -> None:
    a, b = (draw_many(torch.zeros(8), epsilon=1.0) for _ in range(2))
    assert not torch.equal(a, b)


def test_a_stream_gives_the_same_noise_again() -> None:
    a, b = (
        draw_seeded(torch.zeros(8), 2.0, "laplace", stream(0, "noise", "a"))
        for _ in range(2)
    )
    assert torch.equal(a, b)
    assert not torch.equal(
        a, draw_seeded(torch.zeros(8), 2.0, "laplace", stream(0, "noise", "b"))
    )


def test_discrete_noise_for_fractions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"use privacy\.mechanism='laplace'"):
        draw_seeded(torch.tensor([0.5]), 2.0, "discrete_laplace", stream(0, "noise"))
