"""Full k-means as the public code calls it: ten starts, the best is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.strategies.parts.kmeans import in_one_thread

STARTS = 10


def k_means(x: Tensor, k: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The cluster of each row (m,) int64, and the centers (at most k, d).  x: (m, d), finite.

    Fewer than ``k`` clusters where rows are equal, or too close to be told apart.
    """
    from sklearn.cluster import KMeans

    k = min(k, len(torch.unique(x, dim=0)))
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    with in_one_thread():
        result = KMeans(k, n_init=STARTS, random_state=seed).fit(x.numpy())
    return torch.from_numpy(result.labels_).long(), torch.from_numpy(
        result.cluster_centers_
    )
