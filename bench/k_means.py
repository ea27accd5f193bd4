"""The clustering of TypiClust, LoGo and IFAL: 500 clusters of 50,000 examples."""

from __future__ import annotations

import torch
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.strategies.parts import cluster_rows
from fallow.strategies.parts.kmeans import in_one_thread


def prepare(is_quick: bool) -> Race:
    if is_quick:
        return race(rows=400, features=6, k=20)
    return race(rows=50_000, features=64, k=500)


def race(rows: int, features: int, k: int) -> Race:
    draw = stream(0, "bench rows")
    places = torch.randn(40, features, generator=draw)
    at = torch.randint(40, (rows,), generator=draw)
    x = places[at] + torch.randn(rows, features, generator=draw)
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

    return Race(theirs, ours, are_as_good)


def spread(x: Tensor, cluster: Tensor) -> float:
    """Return the total squared distance of examples from their cluster means."""
    size = torch.bincount(cluster)
    total = torch.zeros(len(size), x.shape[1]).index_add(0, cluster, x)
    mean = total / size.clamp_min(1)[:, None]
    return float((x - mean[cluster]).double().square().sum())


ENTRY = Entry(
    "k-means",
    "scikit-learn's MiniBatchKMeans, batches of 4,096",
    bar=1.0,
    compared="squared distances from the means that were timed: ours no more than 1 % larger",
    prepare=prepare,
    ceiling=4.0,
)
