"""Selection kernels: Core-Set, MaxHerding, BADGE and the clusters of TypiClust."""

from __future__ import annotations

from collections.abc import Callable

import torch
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.strategies.parts.kcenter import FeatureVectors, Gradients, k_center
from fallow.strategies.parts.kmeans import (
    cluster_rows,
    draw_row,
    in_one_thread,
    k_means_pp,
    residuals,
)
from fallow.strategies.parts.max_coverage import (
    maximize_coverage,
    square_distances,
    unit_length,
)


def draw_features(rows: int, features: int) -> Tensor:
    return (
        torch.randn(rows, features, generator=stream(0, "bench features")).relu().double()
    )


def draw_clusters(rows: int, features: int) -> Tensor:
    """Return examples around 40 centers."""
    draw = stream(0, "bench rows")
    centers = torch.randn(40, features, generator=draw)
    at = torch.randint(40, (rows,), generator=draw)
    return centers[at] + torch.randn(rows, features, generator=draw)


def race_of(theirs: Callable[[], Tensor], ours: Callable[[], Tensor], runs: int) -> Race:
    """Return a benchmark that compares the selections of the timed calls."""
    results: dict[str, Tensor] = {}

    def run_theirs() -> None:
        results["theirs"] = theirs()

    def run_ours() -> None:
        results["ours"] = ours()

    return Race(
        run_theirs,
        run_ours,
        lambda: torch.equal(results["theirs"], results["ours"]),
        runs,
    )


def race_core_set(is_quick: bool) -> Race:
    """Return the benchmark of Core-Set in float64, which resolves near ties."""
    rows, features, selected = (300, 8, 20) if is_quick else (40_000, 64, 500)
    x = draw_features(rows, features)
    return race_of(
        lambda: plain_k_center(x, selected),
        lambda: k_center(FeatureVectors.of(x), selected, first=0),
        runs=3,
    )


def plain_k_center(x: Tensor, n: int) -> Tensor:
    """Select by greedy k-center with one matrix-vector product per selection."""
    half = x.square().sum(1) / 2
    left = torch.full_like(half, torch.inf)
    selected = [0]
    while len(selected) < n:
        j = selected[-1]
        left = torch.minimum(left, half + half[j] - x @ x[j])
        left[j] = -torch.inf
        selected.append(int(left.argmax()))
    return torch.tensor(selected)


def race_max_herding(is_quick: bool) -> Race:
    """Return the benchmark of MaxHerding: a Gaussian kernel of features of unit length."""
    rows, features, selected = (300, 8, 20) if is_quick else (6_000, 512, 120)
    x = unit_length(draw_clusters(rows, features).relu())
    return race_of(
        lambda: plain_herding(x, selected),
        lambda: maximize_coverage(
            x,
            labeled=x[:0],
            similarity=to_kernel,
            weight=torch.ones(rows),
            n=selected,
            generator=stream(0, "ties"),
        ),
        runs=3,
    )


def to_kernel(square: Tensor) -> Tensor:
    """Return the Gaussian kernel of width 1/2 from squared distances."""
    return square.mul(-4).exp_()


def plain_herding(x: Tensor, n: int) -> Tensor:
    """Select by Algorithm 1 of the paper with the whole kernel in memory."""
    kernel = to_kernel(square_distances(x, x))
    covered = x.new_zeros(len(x))
    added = torch.empty_like(kernel)
    selected: list[int] = []
    for _ in range(n):
        gains = torch.sub(kernel, covered, out=added).clamp_min_(0).sum(1)
        gains[selected] = -torch.inf
        selected.append(int(gains.argmax()))
        covered = torch.maximum(covered, kernel[selected[-1]])
    return torch.tensor(selected)


def race_badge(is_quick: bool) -> Race:
    """Return the benchmark of BADGE: gradients of 20 classes x 64 features."""
    rows, features, classes, selected = (
        (300, 8, 3, 20) if is_quick else (50_000, 64, 20, 200)
    )
    outputs = torch.randn(rows, classes, generator=stream(0, "bench predictions"))
    q = residuals((3 * outputs).softmax(1).double())
    z = draw_features(rows, features)
    return race_of(
        lambda: plain_k_means_pp(q, z, selected),
        lambda: k_means_pp(Gradients.of(q, z), selected, stream(0, "k-means++")),
        runs=3,
    )


def plain_k_means_pp(q: Tensor, z: Tensor, n: int) -> Tensor:
    """Run k-means++ on gradients q z' by their factors, with equal draws."""
    generator = stream(0, "k-means++")
    is_free = torch.ones(len(q), dtype=torch.bool)
    squares = q.square().sum(1) * z.square().sum(1)
    selected = [int(squares.argmax())]
    left = torch.full_like(squares, torch.inf)
    while len(selected) < n:
        j = selected[-1]
        is_free[j] = False
        left = torch.minimum(left, squares + squares[j] - 2 * (q @ q[j]) * (z @ z[j]))
        left = left.clamp(min=0)
        left[j] = 0
        selected.append(draw_row(left, is_free, generator))
    return torch.tensor(selected)


def race_k_means(is_quick: bool) -> Race:
    rows, features, k = (400, 6, 20) if is_quick else (50_000, 64, 500)
    x = draw_clusters(rows, features)
    outcome: dict[str, Tensor] = {}

    def theirs() -> None:
        method = MiniBatchKMeans(k, n_init=1, random_state=0, batch_size=4096)
        with in_one_thread():
            labels = method.fit_predict(x.numpy())
        outcome["theirs"] = torch.from_numpy(labels).long()

    def ours() -> None:
        outcome["ours"] = cluster_rows(x, k, stream(0, "k-means"))

    def are_as_good() -> bool:
        """Check that examples are as close to the means of our clusters, up to 1 %."""
        return spread(x, outcome["ours"]) <= 1.01 * spread(x, outcome["theirs"])

    return Race(theirs, ours, are_as_good, runs=3)


def spread(x: Tensor, cluster: Tensor) -> float:
    """Return the total squared distance of examples from their cluster means."""
    size = torch.bincount(cluster)
    total = torch.zeros(len(size), x.shape[1]).index_add(0, cluster, x)
    mean = total / size.clamp_min(1)[:, None]
    return float((x - mean[cluster]).double().square().sum())


ENTRIES = (
    Entry(
        "k-center",
        "squared lengths once and a product with a vector for each selection, in float64",
        bar=2.0,
        compared="the 500 selections that were timed: identical",
        prepare=race_core_set,
    ),
    Entry(
        "max-herding",
        "the whole kernel in memory and the gain of each example for each selection",
        bar=2.5,
        compared="the 120 selections that were timed: identical",
        prepare=race_max_herding,
    ),
    Entry(
        "badge",
        "k-means++ on factors of gradients: two products with a vector for each selection",
        bar=1.0,
        compared="the 200 selections that were timed, same draws: identical",
        prepare=race_badge,
    ),
    Entry(
        "k-means",
        "scikit-learn's MiniBatchKMeans, batches of 4,096",
        bar=1.0,
        compared="squared distances from the means that were timed: ours no more than 1 % larger",
        prepare=race_k_means,
        ceiling=4.0,
    ),
)
