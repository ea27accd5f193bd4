"""The kernels of Core-Set and BADGE against public code based on scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from sklearn.metrics import pairwise_distances
from torch import Tensor

from bench.timing import Race
from fallow.core.streams import stream
from fallow.strategies.parts import (
    FeatureVectors,
    Gradients,
    k_center,
    k_means_pp,
    residuals,
)
from fallow.strategies.parts.kmeans import draw_row


@dataclass(frozen=True)
class Pool:
    """Unlabeled pool.

    features: (m, d); predictions: (m, c); the number of examples to select.
    """

    rows: int
    features: int
    classes: int
    picks: int

    def z(self) -> Tensor:
        return torch.randn(
            self.rows, self.features, generator=stream(0, "bench features")
        ).relu()

    def p(self) -> Tensor:
        shape = (self.rows, self.classes)
        return (3 * torch.randn(shape, generator=stream(0, "bench predictions"))).softmax(1)


def race_of(theirs: Callable[[], Tensor], ours: Callable[[], Tensor]) -> Race:
    """Return a benchmark that compares the selections of the timed calls."""
    results: dict[str, Tensor] = {}

    def run_theirs() -> None:
        results["theirs"] = theirs()

    def run_ours() -> None:
        results["ours"] = ours()

    return Race(
        run_theirs, run_ours, lambda: torch.equal(results["theirs"], results["ours"])
    )


def core_set_race(pool: Pool) -> Race:
    """Return the benchmark of Core-Set in float64, which resolves near ties."""
    x = pool.z().double()
    return race_of(
        lambda: plain_k_center(x, pool.picks),
        lambda: k_center(FeatureVectors.of(x), pool.picks, first=0),
    )


def plain_k_center(x: Tensor, n: int) -> Tensor:
    """Select by greedy k-center with one matrix-vector product per selection."""
    half = x.square().sum(1) / 2
    left = torch.full_like(half, torch.inf)
    picks = [0]
    while len(picks) < n:
        j = picks[-1]
        left = torch.minimum(left, half + half[j] - x @ x[j])
        left[j] = -torch.inf
        picks.append(int(left.argmax()))
    return torch.tensor(picks)


def badge_race(pool: Pool) -> Race:
    q = residuals(pool.p().double())
    z = pool.z().double()
    return race_of(
        lambda: pick_by_whole_gradients(q, z, pool.picks),
        lambda: k_means_pp(Gradients.of(q, z), pool.picks, stream(0, "k-means++")),
    )


def pick_by_whole_gradients(q: Tensor, z: Tensor, n: int) -> Tensor:
    """Run k-means++ on full gradients (m, c d) with scikit-learn and equal draws."""
    g = torch.einsum("mc,md->mcd", q, z).flatten(1)
    generator = stream(0, "k-means++")
    is_free = torch.ones(len(g), dtype=torch.bool)
    picks = [int(g.square().sum(1).argmax())]
    left = torch.full((len(g),), torch.inf, dtype=torch.float64)
    while len(picks) < n:
        j = picks[-1]
        is_free[j] = False
        to_j = pairwise_distances(g, g[j : j + 1])[:, 0]
        left = torch.minimum(left, torch.from_numpy(to_j).double().square())
        left[j] = 0
        picks.append(draw_row(left, is_free, generator))
    return torch.tensor(picks)
