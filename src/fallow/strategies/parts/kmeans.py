"""K-means clustering in feature space, and its seeding."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from fallow.core.products import has_device, to_device
from fallow.strategies.parts.kcenter import (
    CHUNK,
    FeatureVectors,
    Gradients,
    Points,
    by_columns,
    within_reach,
)
from fallow.strategies.parts.top import rank_rows


def k_means_pp(
    points: Points, n: int, generator: torch.Generator, first: int | None = None
) -> Tensor:
    """Select ``n`` examples by k-means++ (Arthur, Vassilvitskii, 2007).

    The first is ``first``, or has the largest norm; each next is drawn in proportion to its squared
    distance to the nearest selected one.  Selected examples have distance 0.  If all distances are
    0, examples are drawn uniformly.  Non-finite examples are last, in order.
    """
    half = points.half_norms()
    is_last = half.isinf()
    is_free = ~is_last
    left = torch.full_like(half, torch.inf).masked_fill(is_last, 0)
    selected: list[int] = []
    for _ in range(min(n, int(is_free.sum()))):
        if not selected and first is not None:
            j = first
        elif not selected:
            j = int(half.masked_fill(is_last, -1).argmax())
        else:
            torch.minimum(left, points.to(selected[-1]), out=left)
            left[selected[-1]] = 0
            j = draw_row(left, is_free, generator)
        is_free[j] = False
        selected.append(j)
    last = is_last.nonzero().squeeze(1)
    return torch.cat([torch.tensor(selected, dtype=torch.int64), last])[:n]


def draw_row(mass: Tensor, is_free: Tensor, generator: torch.Generator) -> int:
    """Draw an example in proportion to ``mass`` (m,), which is 0 for examples that are not free."""
    ends = mass.cumsum(0, dtype=torch.float64)
    if not ends[-1] > 0:
        ends = is_free.cumsum(0, dtype=torch.float64)
    u = torch.rand(1, generator=generator, dtype=torch.float64)
    return int(torch.searchsorted(ends / ends[-1], u, right=True))  # u < 1 = the last end


MANY = 2000  # clusters; from here on k-means sees the rows in mini-batches
LARGE = (
    2_500_000  # rows times clusters; from here on it starts from a sample, and stops early
)
SAMPLE = 10  # rows of the sample for each cluster
MOST_STEPS = 8  # steps of Lloyd's algorithm for that number
STILL = (
    1e-4  # share of the variance of a column; the steps end if centers move less in total
)


def cluster_rows(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Run k-means (k-means++ start, one run): the cluster of each example.  x: (m, d) -> (m,)
    int64.

    There are fewer than ``k`` clusters with duplicates or very close examples.  It runs in float32:
    rounding errors of doubles must not decide ties.

    Notes
    -----
    If ``m k`` is `LARGE` or more, the start is k-means++ with one draw per center on ten examples
    per cluster, followed by eight steps.  At 50,000 x 64 and 500 clusters, squared distances are
    0.3 % larger than with scikit-learn, in a tenth of the time.  Only this size benefits from a
    device, where the same start and steps are used (`_take_steps`).
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
        start = _draw_start(x, k, generator)
        if has_device():
            return _take_steps(x, start)
        method = KMeans(
            k, init=start.numpy(), n_init=1, max_iter=MOST_STEPS, random_state=seed
        )
    with in_one_thread():
        labels = method.fit_predict(x.numpy())
    return torch.from_numpy(labels).long()


def _are_distinct(x: Tensor, k: int) -> bool:
    """Return whether one column shows ``k`` different examples, which is faster than sorting rows."""
    return any(len(torch.unique(column)) >= k for column in x.T)


def _draw_start(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Draw ``k`` distant examples from a sample: (m, d) -> (k, d)."""
    sample = x[torch.randperm(len(x), generator=generator)[: SAMPLE * k]]
    half = sample.square().sum(1) / 2
    points = FeatureVectors(to_device(by_columns(sample)), to_device(half))
    return sample[k_means_pp(points, k, generator, first=0)]


def _take_steps(x: Tensor, start: Tensor) -> Tensor:
    """Run `MOST_STEPS` of Lloyd's algorithm, or fewer at convergence, as scikit-learn up to
    rounding.

    x: (m, d), start: (k, d) -> (m,) int64.  Distances are computed on the device of products; means
    are computed on the CPU in double precision, so results do not depend on the device.
    """
    rows = to_device(x)
    centers = start
    cluster = torch.full((len(x),), -1)
    still = STILL * float(x.double().var(0, correction=0).mean())
    for _ in range(MOST_STEPS):
        before = cluster
        cluster = _find_nearest(rows, centers)
        if torch.equal(cluster, before):
            return cluster
        means = _average(x, cluster, centers)
        moved = float((means - centers).double().square().sum())
        centers = means
        if moved <= still:
            break
    return _find_nearest(rows, centers)


def _find_nearest(rows: Tensor, centers: Tensor) -> Tensor:
    """Return the nearest center of each example.  rows: (m, d) on the device of products; centers:
    (k, d)."""
    placed = centers.to(rows)
    half = placed.square().sum(1) / 2
    nearest = []
    for block in torch.split(rows, CHUNK):
        far = torch.addmm(half, block, placed.T, alpha=-1)  # (b, k)
        nearest.append(far.argmin(1))
    return torch.cat(nearest).cpu()


def _average(x: Tensor, cluster: Tensor, centers: Tensor) -> Tensor:
    """Return the mean of each cluster, (k, d).

    An empty cluster moves to an example far from its center, which leaves its former cluster.
    """
    size = torch.bincount(cluster, minlength=len(centers)).double()  # (k,)
    total = torch.zeros(centers.shape, dtype=torch.float64)
    total.index_add_(0, cluster, x.double())
    empty = (size == 0).nonzero().squeeze(1)
    if len(empty):
        far = (x - centers[cluster]).square().sum(1).topk(len(empty)).indices
        total.index_add_(0, cluster[far], -x[far].double())
        size.index_add_(0, cluster[far], -torch.ones(len(far), dtype=torch.float64))
        total[empty] = x[far].double()
        size[empty] = 1
    means = (total / size.clamp_min(1)[:, None]).to(centers.dtype)
    return torch.where(size[:, None] > 0, means, centers)


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Run k-means in one thread in this context, without warnings about fewer clusters.

    Several threads sum in any order, so centers would differ between runs, and PyTorch's thread
    settings do not affect k-means.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def residuals(p: Tensor, y: Tensor | None = None) -> Tensor:
    """Return P - e_y, the factor q of the gradient q ⊗ z.  p: (n, c), y: (n,) -> (n, c).

    Without labels, y is the predicted class, the lowest one of ties.

    >>> residuals(torch.tensor([[0.5, 0.25, 0.25]]))
    tensor([[-0.5000,  0.2500,  0.2500]])
    """
    if y is None:
        y = p.argmax(1)
    q = p.clone()
    q[torch.arange(len(q)), y] -= 1
    return q


def pick_by_gradient(
    p: Tensor, z: Tensor, n: int, ties: Generator, draw: Generator
) -> Tensor:
    """Run k-means++ on gradients of the last layer for the predicted label.  -> (n,).

    p: (m, C) probabilities; z: (m, d) features.  Examples with a non-finite gradient are ranked
    last.
    """
    gradients = Gradients.of(residuals(p), z)
    mixed = rank_rows(0 * gradients.half_norms(), ties)  # 0 · inf is NaN: last
    return mixed[k_means_pp(gradients.at(mixed), n, draw)]
