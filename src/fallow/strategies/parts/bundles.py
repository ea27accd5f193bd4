"""Clusters of the rows of all sites, found by totals alone.

A row never stands in a total by itself.  Each site ties its rows into bundles of ``least`` rows or
more that are close to one another, once, and only whole bundles go from one cluster to another.  So
what a cluster's total changes by, from exchange to exchange, is never a single row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.products import place
from fallow.core.streams import stream
from fallow.core.types import Answer, State, Value
from fallow.core.view import Rows, View
from fallow.strategies.base import Budget
from fallow.strategies.parts.kcenter import CHUNK

LEAST = 5  # rows of a bundle
MOST_CENTERS = 500  # as many clusters as TypiClust has at most
MOST_ROWS = 10_000  # of a site that are tied into bundles; larger sites leave some out
MORE = 0.25  # clusters beyond those wanted, which are joined in the end
MOST_LABELS = 10**7  # of all sites, of which a site keeps a list
MOST_ASKED = MOST_CENTERS + math.ceil(MORE * MOST_CENTERS)  # that an exchange names
GROWTH = 0.6  # so many more clusters after each exchange
TURNS = 18  # exchanges in which clusters are split: 625 need 15
LAST = 3  # exchanges after those, in which centers move to their means
OFTEN = 1 + TURNS + LAST
"""How often a query asks for ``groups`` at most."""


class Centers(NamedTuple):
    """at: (K, D) means of clusters; rows: (K,) how many rows they have; spread: (K,) total squared
    distance of a cluster's bundles from its mean."""

    at: Tensor
    rows: Tensor
    spread: Tensor


class Clusters(NamedTuple):
    """centers: (K, D) means of clusters of all sites' rows; totals: what sites added up in ``size``;
    labels: of all sites after the query."""

    centers: Tensor
    totals: dict[str, Tensor]
    labels: int


# -- server half ------------------------------------------------------------------------------


def cluster_sites(
    ask: Ask, budget: Budget, least: int, *, one_a_label: bool = False
) -> Clusters:
    """The first exchanges of a query: sites tie bundles of ``least`` rows or more (``bundle``), tell
    how many rows and labels they have (``size``), and have their clusters found (``groups``).

    Up to `MOST_CENTERS` clusters, and no more than there can be bundles; one_a_label: nor more than
    there are labels after the query.
    """
    ask.keep("bundle")
    totals = sum_of_all(ask, "size")
    labels = int(totals["labels"]) + sum(budget.values())
    wanted = min(MOST_CENTERS, int(totals["rows"]) // least)
    if one_a_label:
        wanted = min(wanted, labels)
    return Clusters(find_centers(ask, wanted), totals, labels)


def find_centers(ask: Ask, wanted: int) -> Tensor:
    """Means of up to ``wanted`` clusters of the rows of all sites, (K, D) float64, K >= 1.

    The widest clusters are split by a plane through their mean, and all rows go to the nearest mean
    anew: a k-means that starts from one cluster instead of from rows, which nobody may see.  When
    there are some more than wanted, those are joined that lie closest to one another.  The planes
    are the same in every study.  Fewer than ``wanted`` where rows are too few or too much alike.
    Sites answer to ``groups`` as `total_bundles` does.
    """
    total = sum_of_all(ask, "groups")
    centers = _take_means(total, groups=1)
    most = wanted + math.ceil(MORE * wanted)
    for turn in range(TURNS):
        k = len(centers.at)
        n_splits = min(k, most - k, max(1, int(GROWTH * k)))
        if n_splits < 1:
            break
        widest = centers.spread.argsort(descending=True, stable=True)[:n_splits]
        planes = torch.zeros_like(centers.at)
        drawn = torch.randn(centers.at.shape, generator=stream(0, "planes", turn)).double()
        planes[widest] = drawn[widest]
        total = sum_of_all(ask, "groups", centers=centers.at, planes=planes)
        centers = _take_means(total, groups=2 * k)
        if len(centers.at) <= k:  # what can be split is split
            break
    centers = join_closest(centers, max(wanted, 1))
    for _ in range(LAST):
        total = sum_of_all(ask, "groups", centers=centers.at)
        centers = _take_means(total, groups=len(centers.at))
    return centers.at


def _take_means(total: dict[str, Tensor], groups: int) -> Centers:
    """The clusters that have rows; one at 0 where no site has a bundle.

    Raises ValueError for totals of another form, or with fewer rows than none.
    """
    rows = total["rows"]
    features = total["features"]
    squares = total["squares"]
    is_of_groups = rows.shape == squares.shape == (groups,) and features.ndim == 2
    if not is_of_groups or len(features) != groups:
        raise ValueError(
            f"totals of {groups} clusters were asked for, and sites answered with rows of shape "
            f"{tuple(rows.shape)}, features of {tuple(features.shape)} and squares of "
            f"{tuple(squares.shape)}: all sites must run the same version"
        )
    if bool((rows < -0.5).any()):
        raise ValueError(
            f"a cluster has {float(rows.min()):g} rows over all sites, which cannot be: a site "
            "answered with a negative number"
        )
    is_there = rows > 0.5  # masked sums are rounded
    if not bool(is_there.any()):
        nothing = torch.zeros(1, dtype=torch.float64)
        return Centers(torch.zeros(1, features.shape[1]).double(), nothing, nothing)
    mean = features[is_there] / rows[is_there, None]  # (K, D)
    spread = squares[is_there] - rows[is_there] * mean.square().sum(1)
    return Centers(mean, rows[is_there], spread)


def join_closest(centers: Centers, wanted: int) -> Centers:
    """Clusters joined two by two until ``wanted`` are left: each time the two whose rows then lie
    least farther from their mean, by n m / (n + m) |a - b|² (Ward, 1963).

    >>> at = torch.tensor([[0.0], [5.0], [5.5]])
    >>> join_closest(Centers(at, torch.ones(3), torch.zeros(3)), wanted=2).at
    tensor([[0.0000],
            [5.2500]])
    """
    at = centers.at.clone()
    rows = centers.rows.clone()
    spread = centers.spread.clone()
    cost = torch.cdist(at, at).square() * rows[:, None] * rows / (rows[:, None] + rows)
    cost.fill_diagonal_(torch.inf)  # (K, K), of joining each with each
    is_left = torch.ones(len(at), dtype=torch.bool)
    for _ in range(len(at) - wanted):
        cheapest = int(cost.argmin())  # a place in the matrix, row after row
        kept, removed = sorted(divmod(cheapest, len(at)))
        both = rows[kept] + rows[removed]
        at[kept] = (rows[kept] * at[kept] + rows[removed] * at[removed]) / both
        spread[kept] += spread[removed] + cost[kept, removed]
        rows[kept] = both
        is_left[removed] = False
        # what it costs to join the new cluster with each that is left
        apart = (at - at[kept]).square().sum(1) * rows * both / (rows + both)
        apart = apart.masked_fill(~is_left, torch.inf)
        apart[kept] = torch.inf
        cost[kept] = apart
        cost[:, kept] = apart
        cost[removed] = torch.inf
        cost[:, removed] = torch.inf
    return Centers(at[is_left], rows[is_left], spread[is_left])


# -- site half --------------------------------------------------------------------------------


def read_shared_features(view: View, which: Rows = "pool", every: int = 1) -> Tensor:
    """Features of rows in a space that all sites share: (n, D).

    Those of the global model where sites have one, else the rows themselves, which an encoder may
    have made.  With ``every`` = k those of each k-th row alone.
    """
    if "global" in view.memory:
        features = view.embed("global", which)  # one pass for the whole query
        return features[::every].flatten(1)
    parts = []
    first = 0  # position in the next block of its first row that counts
    for block in view.blocks(which):
        parts.append(block[first::every].flatten(1))
        first = (first - len(block)) % every
    return torch.cat(parts)


def tie_bundles(view: View, least: int = LEAST) -> Answer:
    """What a site keeps of its pool for `total_bundles`.

    means: (A, D) float64 of its bundles; rows: (A,) how many rows each stands for.  A pool of fewer
    than ``least`` rows has none.  Rows that are not finite are in no bundle.
    """
    every = max(1, math.ceil(view.pool / MOST_ROWS))
    x = read_shared_features(view, every=every).double()
    stands_for = view.pool / max(len(x), 1)
    x = x[x.isfinite().all(1)]
    if len(x) < least:
        return {"means": x.new_zeros(0, x.shape[1]), "rows": x.new_zeros(0)}
    means = []
    rows = []
    for bundle in split_rows(x, least):
        means.append(x[bundle].mean(0))
        rows.append(stands_for * len(bundle))
    return {"means": torch.stack(means), "rows": torch.tensor(rows, dtype=x.dtype)}


def split_rows(x: Tensor, least: int) -> list[Tensor]:
    """Positions of rows that are close to one another, ``least`` to 2 ``least`` - 1 in each part.

    x: (m, d), m >= least.  Rows are halved along the line between two that are far apart, at the
    widest gap in the middle half, again and again.

    >>> x = torch.tensor([[0.0], [9.0], [0.1], [9.1], [0.2]])
    >>> [part.tolist() for part in split_rows(x, 2)]
    [[0, 2, 4], [1, 3]]
    """
    parts: list[Tensor] = []
    waiting = [torch.arange(len(x))]
    while waiting:
        rows = waiting.pop()
        if len(rows) < 2 * least:
            parts.append(rows)
            continue
        z = x[rows]
        one = z[(z - z.mean(0)).square().sum(1).argmax()]
        other = z[(z - one).square().sum(1).argmax()]
        along = z @ (other - one)
        order = along.argsort(stable=True)
        cut = _find_gap(along[order], least)
        waiting.append(rows[order[:cut]].sort().values)
        waiting.append(rows[order[cut:]].sort().values)
    return parts


def _find_gap(along: Tensor, least: int) -> int:
    """Where to cut ascending numbers (m,): at the widest gap of the middle half, ``least`` or more
    on either side."""
    m = len(along)
    low = max(least, m // 4)
    high = max(low, m - low)
    gaps = along[low : high + 1] - along[low - 1 : high]
    return low + int(gaps.argmax())


def total_bundles(
    bundles: Mapping[str, Value],
    centers: Tensor | None = None,
    planes: Tensor | None = None,
) -> Answer:
    """A site's part of the totals of each cluster: rows (K,), features (K, D), squares (K,).

    centers: (K, D); each bundle counts in the cluster whose center is nearest, and without centers
    all are one.  planes: (K, D) normals of planes through the centers; then a cluster has two
    parts, beside one another, of which the second holds the bundles in front of its plane.  squares
    are those of the means of bundles.
    """
    means = torch.as_tensor(bundles["means"])
    rows = torch.as_tensor(bundles["rows"])
    groups = 1
    at = torch.zeros(len(means), dtype=torch.int64)
    if centers is not None:
        groups = len(centers)
        at = nearest_center(means, centers)
    if centers is not None and planes is not None:
        is_in_front = ((means - centers[at]) * planes[at]).sum(1) > 0
        groups = 2 * groups
        at = 2 * at + is_in_front.long()
    width = means.shape[1]
    weighted = rows[:, None] * means
    return {
        "rows": rows.new_zeros(groups).index_add(0, at, rows),
        "features": rows.new_zeros(groups, width).index_add(0, at, weighted),
        "squares": rows.new_zeros(groups).index_add(0, at, (weighted * means).sum(1)),
    }


def check_clusters(clusters: int) -> None:
    """Raise ValueError where an order is about more clusters than `find_centers` ever leads to: cells
    so fine, in places of the asker's choice, would say where single rows lie."""
    if clusters > MOST_ASKED:
        raise ValueError(
            f"{clusters} centers of clusters were named, and no query finds more than {MOST_ASKED}"
        )


def check_labels(labels: float) -> None:
    """Raise ValueError where more labels are said to cover clusters than a site can keep a list of."""
    if labels > MOST_LABELS:
        raise ValueError(f"{labels:g} labels are said to cover clusters")


def check_turns(turns: Tensor, most: int) -> None:
    """Raise ValueError for levels of more turns, or of more clusters, than a query has.

    turns: (turns, K).
    """
    if turns.ndim != 2 or len(turns) > most:
        raise ValueError(f"levels of the shape {tuple(turns.shape)}, and turns are {most}")
    check_clusters(turns.shape[1])


def nearest_center(x: Tensor, centers: Tensor) -> Tensor:
    """The center that is nearest to each row.  x: (m, D), centers: (K, D) -> (m,) int64.

    >>> nearest_center(torch.tensor([[0.9], [0.2]]), torch.tensor([[0.0], [1.0]]))
    tensor([1, 0])
    """
    check_clusters(len(centers))
    middle = centers.mean(0)  # a shift changes no distance, but less is rounded
    short = place((centers - middle).to(x.dtype))
    half = short.square().sum(1) / 2
    result = [torch.empty(0, dtype=torch.int64)]
    for block in torch.split(x, CHUNK):
        rows = place(block - middle.to(x.dtype))
        near = torch.addmm(half, rows, short.T, alpha=-1)  # (b, K)
        result.append(near.argmin(1).cpu())
    return torch.cat(result)


def count_nearest(x: Tensor, centers: Tensor) -> Tensor:
    """How many rows that are finite each center is the nearest of.  x: (m, D) -> (K,) float64."""
    at = nearest_center(x[x.isfinite().all(1)], centers)
    return torch.bincount(at, minlength=len(centers)).double()


def read_bundles(view: View) -> State:
    """What `tie_bundles` left at the site; raises where it was not asked for."""
    if "bundle" not in view.memory:
        raise ValueError(
            f"site {view.site} was asked for totals of bundles, and has tied none: "
            "'bundle' comes first"
        )
    return view.memory["bundle"]
