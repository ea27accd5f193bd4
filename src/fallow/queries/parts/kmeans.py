"""Groups of rows that are close in feature space."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fallow.queries.parts.kcenter import Features, by_columns
from fallow.queries.parts.kmeanspp import k_means_pp
from fallow.queries.parts.magnitude import within_reach

MANY = 2000  # clusters; from here on k-means sees the rows in mini-batches
LARGE = (
    2_500_000  # rows times clusters; from here on it starts from a sample, and stops early
)
SAMPLE = 10  # rows of the sample for each cluster
MOST_STEPS = 8  # of Lloyd's algorithm, for so many


def cluster_rows(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k-means (k-means++ start, one run): the cluster of each row.  x: (m, d) -> (m,) int64.

    Fewer than ``k`` clusters where rows are equal, or too close to be told apart.  In float32: ties
    inside k-means must not be decided by the last bit of a double.

    Notes
    -----
    Where ``m k`` is `LARGE` or more, the start is k-means++ with one draw a centre on ten rows for
    each cluster, and there are eight steps: at 50,000 x 64 and 500 clusters distances are 0.3 %
    longer in square than after scikit-learn's start and all its steps, in a tenth of the time.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans

    x = within_reach(x, torch.float32).float()  # clusters do not depend on the unit
    if not _are_distinct(x, k):
        k = min(k, len(torch.unique(x, dim=0)))
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    method = KMeans(k, n_init=1, random_state=seed)
    if k >= MANY:
        method = MiniBatchKMeans(k, n_init=1, random_state=seed)
    elif len(x) * k >= LARGE:
        x = x - x.mean(0)  # short rows: squares lose less
        start = _draw_start(x, k, generator).numpy()
        method = KMeans(k, init=start, n_init=1, max_iter=MOST_STEPS, random_state=seed)
    with in_one_thread():
        labels = method.fit_predict(x.numpy())
    return torch.from_numpy(labels).long()


def _are_distinct(x: Tensor, k: int) -> bool:
    """Whether one column alone shows ``k`` different rows: sorting whole rows takes far longer."""
    return any(len(torch.unique(column)) >= k for column in x.T)


def _draw_start(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """``k`` rows that are far from each other, from a sample: (m, d) -> (k, d)."""
    sample = x[torch.randperm(len(x), generator=generator)[: SAMPLE * k]]
    half = sample.square().sum(1) / 2
    return sample[k_means_pp(Features(by_columns(sample), half), k, generator, first=0)]


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
