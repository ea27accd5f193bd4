"""Full k-means as in the public code: the best of ten starts."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.strategies.parts.kmeans import in_one_thread

STARTS = 10


def k_means(x: Tensor, k: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the cluster of each example (m,) int64, and the centers (at most k, d). x: (m,
    d), finite.

    There are fewer than ``k`` clusters with duplicates or very close examples.
    """
    from sklearn.cluster import KMeans

    k = min(k, len(torch.unique(x, dim=0)))
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    with in_one_thread():
        result = KMeans(k, n_init=STARTS, random_state=seed).fit(x.numpy())
    return torch.from_numpy(result.labels_).long(), torch.from_numpy(
        result.cluster_centers_
    )
