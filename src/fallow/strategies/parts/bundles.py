"""Clusters of the examples of all sites, from aggregates.

Each site once combines ``least`` or more close examples into bundles, and only whole bundles move
between clusters.  All aggregates of a query are therefore functions of one number per ``least``
values of the examples.  This protects as fewer numbers do, and no further: the next query has other
bundles, and an example that leaves during a query is the difference of two aggregates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.ask import Ask, sum_of_all
from fallow.core.client import ClientCall
from fallow.core.products import to_device
from fallow.core.streams import stream
from fallow.core.types import Value, Values
from fallow.core.values import AtMost, Kind, NonNegative, Optional, Real
from fallow.core.view import Rows, View
from fallow.strategies.base import Budget
from fallow.strategies.parts.kcenter import CHUNK

LEAST = 5  # minimum number of examples in a bundle
MOST_CENTERS = 500  # maximum number of clusters, as in TypiClust
MOST_ROWS = 10_000  # maximum number of bundled examples of a site; larger sites use a part
MORE = 0.25  # share of additional clusters, which are merged at the end
MOST_LABELS = 10**7  # of all sites, which a site stores
MOST_ASKED = MOST_CENTERS + math.ceil(MORE * MOST_CENTERS)  # maximum number in an exchange
GROWTH = 0.6  # growth of the number of clusters per exchange
TURNS = 18  # exchanges in which clusters are split: 625 need 15
LAST = 3  # later exchanges, in which centers move to their means
OFTEN = 1 + TURNS + LAST
"""Maximum number of calls of ``groups`` in a query."""


class Centers(NamedTuple):
    """Means (K, D) of clusters, their sizes (K,), and total squared distances of bundles (K,)."""

    at: Tensor
    rows: Tensor
    spread: Tensor


class Clusters(NamedTuple):
    """Means (K, D) of clusters, aggregates of ``size``, and the number of labels after the query."""

    centers: Tensor
    totals: dict[str, Tensor]
    labels: int


# -- server side ------------------------------------------------------------------------------


def cluster_sites(
    ask: Ask,
    budget: Budget,
    least: int,
    *,
    bundle: ClientCall,
    size: ClientCall,
    groups: ClientCall,
    one_a_label: bool = False,
) -> Clusters:
    """Run the first exchanges of a query: ``bundle``, ``size`` and ``groups``.

    Sites combine ``least`` or more examples into bundles, send numbers of examples and labels, and
    aggregate their clusters.  There are at most `MOST_CENTERS` clusters, and no more than possible
    bundles; with one_a_label, also no more than labels after the query.
    """
    ask.keep(bundle)
    totals = sum_of_all(ask, size)
    labels = int(totals["labels"]) + sum(budget.values())
    wanted = min(MOST_CENTERS, int(totals["rows"]) // least)
    if one_a_label:
        wanted = min(wanted, labels)
    return Clusters(find_centers(ask, groups, wanted), totals, labels)


def find_centers(ask: Ask, groups: ClientCall, wanted: int) -> Tensor:
    """Return the means of up to ``wanted`` clusters of all examples, (K, D) float64, K >= 1.

    The widest clusters are split by a plane through their mean, and all examples are assigned to
    the nearest mean.  This is k-means that starts from one cluster instead of examples, which must
    not be disclosed.  When there are more than wanted, the closest ones are merged.  The planes are
    the same in every study.  There are fewer than ``wanted`` if examples are too few or too
    similar.  Sites reply to ``groups`` as `total_bundles`.
    """
    total = sum_of_all(ask, groups)
    centers = _take_means(total, groups=1)
    limit = wanted + math.ceil(MORE * wanted)
    for turn in range(TURNS):
        k = len(centers.at)
        n_splits = min(k, limit - k, max(1, int(GROWTH * k)))
        if n_splits < 1:
            break
        widest = centers.spread.argsort(descending=True, stable=True)[:n_splits]
        planes = torch.zeros_like(centers.at)
        drawn = torch.randn(centers.at.shape, generator=stream(0, "planes", turn)).double()
        planes[widest] = drawn[widest]
        total = sum_of_all(ask, groups, centers=centers.at, planes=planes)
        centers = _take_means(total, groups=2 * k)
        if len(centers.at) <= k:  # split what can be split
            break
    centers = join_closest(centers, max(wanted, 1))
    for _ in range(LAST):
        total = sum_of_all(ask, groups, centers=centers.at)
        centers = _take_means(total, groups=len(centers.at))
    return centers.at


def _take_means(total: dict[str, Tensor], groups: int) -> Centers:
    """Return the non-empty clusters; one at 0 if no site has a bundle.

    Raises ValueError for aggregates of another form.
    """
    rows = total["rows"]
    features = total["features"]
    squares = total["squares"]
    is_of_groups = rows.shape == squares.shape == (groups,) and features.ndim == 2
    if not is_of_groups or len(features) != groups:
        raise ValueError(
            f"aggregates of {groups} clusters were requested, and sites replied with "
            f"sizes of shape {tuple(rows.shape)}, features of {tuple(features.shape)} and "
            f"squares of {tuple(squares.shape)}: all sites must run the same version"
        )
    is_there = rows > 0.5  # masked sums are rounded
    if not bool(is_there.any()):
        nothing = torch.zeros(1, dtype=torch.float64)
        return Centers(torch.zeros(1, features.shape[1]).double(), nothing, nothing)
    mean = features[is_there] / rows[is_there, None]  # (K, D)
    spread = squares[is_there] - rows[is_there] * mean.square().sum(1)
    return Centers(mean, rows[is_there], spread)


def join_closest(centers: Centers, wanted: int) -> Centers:
    """Merge clusters in pairs until ``wanted`` are left (Ward, 1963).

    Each step merges the pair with the smallest increase n m / (n + m) |a - b|² of squared
    distances.

    >>> at = torch.tensor([[0.0], [5.0], [5.5]])
    >>> join_closest(Centers(at, torch.ones(3), torch.zeros(3)), wanted=2).at
    tensor([[0.0000],
            [5.2500]])
    """
    at = centers.at.clone()
    rows = centers.rows.clone()
    spread = centers.spread.clone()
    cost = torch.cdist(at, at).square() * rows[:, None] * rows / (rows[:, None] + rows)
    cost.fill_diagonal_(torch.inf)  # (K, K), of merging each pair
    is_left = torch.ones(len(at), dtype=torch.bool)
    for _ in range(len(at) - wanted):
        cheapest = int(cost.argmin())  # flat index in the matrix
        kept, removed = sorted(divmod(cheapest, len(at)))
        both = rows[kept] + rows[removed]
        at[kept] = (rows[kept] * at[kept] + rows[removed] * at[removed]) / both
        spread[kept] += spread[removed] + cost[kept, removed]
        rows[kept] = both
        is_left[removed] = False
        # cost of merging the new cluster with each other one
        apart = (at - at[kept]).square().sum(1) * rows * both / (rows + both)
        apart = apart.masked_fill(~is_left, torch.inf)
        apart[kept] = torch.inf
        cost[kept] = apart
        cost[:, kept] = apart
        cost[removed] = torch.inf
        cost[:, removed] = torch.inf
    return Centers(at[is_left], rows[is_left], spread[is_left])


# -- client side --------------------------------------------------------------------------------


def read_shared_features(view: View, which: Rows = "pool", every: int = 1) -> Tensor:
    """Return features of examples in a space that all sites share: (n, D).

    They are those of the global model, if there is one, otherwise the examples themselves, possibly
    encoded.  With ``every`` = k, every k-th example is used.
    """
    if "global" in view.memory:
        features = view.embed("global", which)  # one pass for the whole query
        return features[::every].flatten(1)
    parts = []
    first = 0  # position in the next block of its first used example
    for block in view.blocks(which):
        parts.append(block[first::every].flatten(1))
        first = (first - len(block)) % every
    return torch.cat(parts)


def tie_bundles(view: View, least: int = LEAST) -> Values:
    """Return the bundles of the pool of a site, for `total_bundles`.

    means: (A, D) float64; rows: (A,) numbers of examples.  A pool of fewer than ``least`` examples
    has none.  Non-finite examples are in no bundle.
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
    """Return positions of close examples, ``least`` to 2 ``least`` - 1 in each part.

    x: (m, d), m >= least.  Examples are repeatedly halved along the line between two distant ones,
    at the widest gap in the middle half.

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
    """Return the widest gap in the middle half of ascending numbers (m,).

    At least ``least`` numbers are on either side.
    """
    m = len(along)
    low = max(least, m // 4)
    high = max(low, m - low)
    gaps = along[low : high + 1] - along[low - 1 : high]
    return low + int(gaps.argmax())


FEW_CLUSTERS = AtMost("clusters", MOST_ASKED)
"""Number of clusters in an argument: smaller cells, at positions chosen by the sender, would disclose
single examples."""
SOUGHT = AtMost("centers", MOST_ASKED)
"""Number of clusters in the search for centers, whose replies may have two parts of each."""
CLUSTERS: Mapping[str, Kind] = {
    "rows": NonNegative("clusters", of="rows", is_together=True),
    "features": Real(("clusters", "columns")),
    "squares": NonNegative("clusters"),
}
"""Fields of `total_bundles`.  A bundle of a sample stands for a fraction of an example more."""
CENTERS: Mapping[str, Kind] = {
    "centers": Optional(Real((SOUGHT, "columns"))),
    "planes": Optional(Real((SOUGHT, "columns"))),
}
"""Arguments with centers of clusters, and with planes that divide these."""


def total_bundles(
    bundles: Mapping[str, Value],
    centers: Tensor | None = None,
    planes: Tensor | None = None,
) -> Values:
    """Return the contribution of a site: sizes (K,), features (K, D) and squares (K,) of clusters.

    centers: (K, D); each bundle counts in the cluster with the nearest center, and without centers
    there is one cluster.  planes: (K, D) normals of planes through the centers; each cluster then
    has two adjacent parts, and the second contains the bundles in front of the plane.  squares: of
    the means of bundles.
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


def check_labels(labels: float) -> None:
    """Raise ValueError for more labels in clusters than a site can store."""
    if labels > MOST_LABELS:
        raise ValueError(f"{labels:g} labels in clusters were received")


def nearest_center(x: Tensor, centers: Tensor) -> Tensor:
    """Return the nearest center of each example.  x: (m, D), centers: (K, D) -> (m,) int64.

    >>> nearest_center(torch.tensor([[0.9], [0.2]]), torch.tensor([[0.0], [1.0]]))
    tensor([1, 0])
    """
    middle = centers.mean(0)  # a shift changes no distance and reduces rounding
    short = to_device((centers - middle).to(x.dtype))
    half = short.square().sum(1) / 2
    result = [torch.empty(0, dtype=torch.int64)]
    for block in torch.split(x, CHUNK):
        rows = to_device(block - middle.to(x.dtype))
        near = torch.addmm(half, rows, short.T, alpha=-1)  # (b, K)
        result.append(near.argmin(1).cpu())
    return torch.cat(result)


def count_nearest(x: Tensor, centers: Tensor) -> Tensor:
    """Count the finite examples nearest to each center.  x: (m, D) -> (K,) float64."""
    at = nearest_center(x[x.isfinite().all(1)], centers)
    return torch.bincount(at, minlength=len(centers)).double()


DIGITS = 2
BASE = 128
CHANCES = 16  # equal bids are ordered by a number that each site draws
STEPS = 32  # number of bids per factor of two
NO_BID = -1


def bids_of(amount: Tensor, generator: torch.Generator) -> Tensor:
    """Return bids for amounts (K,) of 0 or more, in steps of a 32nd of an octave: (K,) int64.

    An amount below 0 is no bid, -1.  Equal bids of different sites get random last digits.

    The maximum over all sites is determined from counts, without disclosing the bids of sites.  A bid
    is an integer with `DIGITS` digits.  Sites contribute a 1 at the next digit of their bid if its
    first digits equal those of the highest bid.  The highest digit with a 1 is the next digit of the
    highest bid.
    """
    levels = BASE**DIGITS // CHANCES
    octaves = amount.double().clamp_min(1e-30).log2()
    level = (STEPS * octaves + levels / 2).floor().clamp(0, levels - 1).long()
    draw = torch.randint(CHANCES, amount.shape, generator=generator)
    return torch.where(amount >= 0, CHANCES * level + draw, NO_BID)


def next_digits(bids: Tensor, prefix: Tensor, digit: int) -> Tensor:
    """Return 0 and 1 at the next digit of each bid that begins with ``prefix``: (K, BASE).

    >>> digits = next_digits(torch.tensor([130, 5]), torch.tensor([1, 1]), digit=1)
    >>> digits.nonzero().tolist()  # 130 is 1, 2 in base 128, and 5 is 0, 5
    [[0, 2]]
    """
    counts = torch.zeros(len(prefix), BASE, dtype=torch.float32)
    rest = DIGITS - digit - 1
    begins_so = (bids >= 0) & (bids // BASE ** (rest + 1) == prefix)
    at = begins_so.nonzero().squeeze(1)
    counts[at, bids[at] // BASE**rest % BASE] = 1
    return counts


def add_digit(prefix: Tensor, bids: Tensor) -> Tensor:
    """Return the first digits of the highest bids, one digit longer.

    prefix: (K,), -1 without a bid; bids: (K, B) number of sites with each digit.

    >>> add_digit(
    ...     torch.tensor([0, 3, -1]), torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    ... )
    tensor([ 1, -1, -1])
    """
    base = bids.shape[1]
    is_bid = bids > 0.5  # masked sums are integers up to rounding
    highest = (is_bid * torch.arange(base)).amax(1)  # (K,)
    is_none = (prefix < 0) | ~is_bid.any(1)
    return (prefix * base + highest).masked_fill(is_none, NO_BID)
