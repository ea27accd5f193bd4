"""Effect of noise on counts on AHFAL's routing of classes (N=10, C=10, n=500).

The published budgets (ε 1 and 2 per cycle) barely act: flips are within seed noise.
"""

from __future__ import annotations

import pytest
import torch

from fallow.core.streams import stream
from fallow.privacy.noise import draw_seeded
from fallow.strategies import AHFAL
from fallow.strategies.ahfal import moments

SITES = CLASSES = 10
LABELS, DRAWS = 500, 2000


def shares(counts: torch.Tensor) -> torch.Tensor:
    """Return the shares that `AHFAL.post` computes: (..., C) -> (..., C)."""
    true_counts = counts.clamp_min(0)
    return true_counts / true_counts.sum(-1, keepdim=True)


def spreads(counts: torch.Tensor) -> torch.Tensor:
    """Return σ of Eq. 2 in percentage points. counts: (draws, N, C) -> (draws, C)."""
    p = shares(counts)
    return 100 * moments(p.sum(1), p.square().sum(1), torch.tensor(float(SITES)))[1]


@pytest.fixture(scope="module")
def true() -> torch.Tensor:
    """Return (draws, N, C) label counts of sites with Dirichlet(0.5) classes."""
    draw = stream(0, "sites")
    z = torch.randn((DRAWS, SITES, CLASSES), generator=draw, dtype=torch.float64)
    p = shares(z.square())  # squared normal variables are gamma variables of shape ½
    rows = torch.multinomial(p.flatten(0, 1), LABELS, replacement=True, generator=draw)
    counts = torch.zeros(DRAWS * SITES, CLASSES, dtype=torch.float64)
    counts.scatter_add_(1, rows, torch.ones_like(rows, dtype=torch.float64))
    return counts.view(DRAWS, SITES, CLASSES)


@pytest.mark.parametrize(
    ("epsilon", "flips", "shift"),
    [(2, 0.6, 0.08), (1, 1.2, 0.16), (0.2, 5.6, 0.71), (0.05, 18.8, 2.1)],
)
@pytest.mark.parametrize("mechanism", ["laplace", "discrete_laplace"])
def test_the_routing_flips_as_often_as_expected(
    true: torch.Tensor, epsilon: float, flips: float, shift: float, mechanism: str
) -> None:
    noisy = draw_seeded(true, 2 / epsilon, mechanism, stream(0, "noise"))  # type: ignore[arg-type]
    exact = spreads(true)
    close = spreads(noisy)
    tau = AHFAL().tau
    assert 100 * float(((exact < tau) != (close < tau)).double().mean()) == pytest.approx(
        flips, rel=0.2
    )
    assert float((exact - close).abs().mean()) == pytest.approx(shift, rel=0.2)


def test_the_shares_here_are_those_of_ahfal(true: torch.Tensor) -> None:
    noisy = draw_seeded(true[0, 0], 40.0, "laplace", stream(0, "noise"))
    torch.testing.assert_close(shares(noisy), torch.as_tensor(AHFAL().post(noisy)["share"]))
