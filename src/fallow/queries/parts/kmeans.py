"""Groups of rows that are close in feature space."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fallow.queries.parts.magnitude import within_reach

MANY = 2000  # clusters; from here on k-means sees the rows in mini-batches


def cluster_rows(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k-means (k-means++ start, one run): the cluster of each row.  x: (m, d) -> (m,) int64.

    Fewer than ``k`` clusters where rows are equal, or too close to be told apart.  In float32: ties
    inside k-means must not be decided by the last bit of a double.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans

    x = within_reach(x, torch.float32).float()  # clusters do not depend on the unit
    k = min(k, len(torch.unique(x, dim=0)))
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    method = KMeans
    if k >= MANY:
        method = MiniBatchKMeans
    with in_one_thread():
        labels = method(k, n_init=1, random_state=seed).fit_predict(x.numpy())
    return torch.from_numpy(labels).long()


@contextmanager
def in_one_thread() -> Iterator[None]:
    """A context in which k-means runs in one thread, without a word where it finds fewer clusters.

    Several threads add up in any order, so that centres would differ from run to run; and what
    PyTorch is told of threads does not reach those of k-means.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
