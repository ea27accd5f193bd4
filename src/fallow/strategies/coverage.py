"""Coverage of what the model is unsure about, over all sites, with prices for rare classes.

Relatives: ProbCover (Yehuda et al., 2022) and Uncertainty Herding (Bae et al., 2025), which cover the
rows of one pool.  Here sites cover the same landmarks together, and nobody sees another's rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.contract import Contract
from fallow.core.products import place
from fallow.core.types import Answer
from fallow.core.view import Picks, View
from fallow.strategies.base import Budget, Memo, orders
from fallow.strategies.parts import (
    DIGITS,
    LEAST,
    NO_BID,
    OFTEN,
    add_digit,
    bids_of,
    check_clusters,
    cluster_sites,
    first_best,
    margins,
    nearest_center,
    next_digits,
    order_ties,
    predict,
    read_bundles,
    read_shared_features,
    tie_bundles,
    total_bundles,
)

SUB_ROUNDS = 8  # in which a budget is spent
LEVELS = 64  # of coverage, in what sites tell of it
BINS = 64  # of margins
SURE = 0.95  # the share of rows whose margin is below that of one that is sure
SHARED = 0.1  # what a landmark counts at a site that does not own it
LITTLE = 1e-6  # of all masses: what u adds to a gain, for when all is covered
LAZY = 64  # rows whose gain is computed anew at a time


@final
@dataclass(frozen=True)
class Coverage:
    """Rows that cover, with those that are labeled, as much as they can of what is not yet known.

    What a row covers of a landmark m, a mean of close rows of all sites, is a Gaussian kernel of
    their distance.  A landmark weighs as much as the rows near it do, Σ u(x), with
    u = (1 - margin / q) Σ_c p_c w_c: how unsure the model is, in units of the q at 95 % of all rows,
    times the price of a class, w_c = (mean labels / (labels of c + 1))^γ.  γ is how uneven predicted
    classes are (their coefficient of variation, at most 1), so that prices are 1 on balanced data.
    Without a label u is 1.  Kernels grow narrower as labels grow more: first labels stand for many
    rows, later ones go to the border.

    >>> import fallow as fl
    >>> pool = [[0.0, 0.1 * k] for k in range(9)] + [[9.0, 0.1 * k] for k in range(6)]
    >>> sorted((fl.select(pool, fl.Coverage(), n=2) > 8).tolist())
    [False, True]

    Notes
    -----
    *Landmarks* are found as `typical` finds clusters: bundles of ``least`` rows or more leave in
    totals alone.  How far a landmark is covered already is the largest kernel over the labeled and
    chosen rows of all sites, in steps of a 64th: sites send a 1 at their level and the coordinator
    takes the highest level that has one.

    *Who covers what.*  Sites with the same kinds of rows would all choose the same.  So a landmark
    has an owner, the site that has most near it; at others it counts a tenth.  A budget is spent in
    eight parts, and coverage is told anew before each.  Where all is covered the largest u is chosen.

    The width of kernels is ``width`` times the distance of two rows, times (50 / labels)^``shrink``,
    with the labels after this query.  The first constants of both were found on MNIST and
    Fashion-MNIST alone.  Of numbers to predict u is 1.  Rows whose features are not finite come last.

    *Passes.*  Features are looked up anew in up to twelve exchanges, since nothing so large is kept
    in between: as many passes of the pool through a trained model; an encoder's are on disk.
    """

    width: float = 0.7  # σ in units of the distance of two rows, at 50 labels
    shrink: float = 0.15
    prices: bool = True  # False: w = 1
    least: int = LEAST  # rows of a bundle

    contract: ClassVar[Contract] = Contract(
        title="Coverage of what is uncertain",
        short="Coverage",
        keep={
            "bundle": "number of tensors kept",
            "weigh": "number of tensors kept",
            "cover": "number of tensors kept",
            "select": "number of picks",
        },
        sum={
            "size": "totals over sites of rows, of labels and of their squared lengths",
            "groups": "totals over sites of the rows of each cluster, in bundles of several",
            "outlook": "totals over sites of margins, predicted classes and labels of each class",
            "masses": "totals over sites of how unsure rows near each landmark are",
            "bids": "totals over sites of who has how much near each landmark",
            "reach": "totals over sites of who covers each landmark how far",
        },
        regression=True,
        local_dp=False,  # totals of features leave without noise
        waits=("outlook",),
        missing="stops: landmarks are those of the rows of all sites; a resumed run asks again",
        often={"groups": OFTEN, "bids": DIGITS, "reach": SUB_ROUNDS, "cover": SUB_ROUNDS},
        parts_show="the coordinator sees the totals of each site's rows by cluster, which are means of "
        "five rows or more, and how far the site's labeled rows cover each",
    )

    def __post_init__(self) -> None:
        if not 0 < self.width < float("inf"):
            raise ValueError(
                f"Coverage's width is {self.width}; it must be above 0 and finite"
            )
        if not 0 <= self.shrink < float("inf"):
            raise ValueError(
                f"Coverage's shrink is {self.shrink}; it must be 0 or more and finite"
            )
        if self.least < 2:
            raise ValueError(f"Coverage's least is {self.least}; it must be 2 or more")

    # -- server half ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        clusters = cluster_sites(ask, budget, self.least)
        landmarks = clusters.centers  # (M, D)
        sigma = self.kernel_width(clusters.totals, clusters.labels)

        outlook = sum_of_all(ask, "outlook")
        sure, weights = read_outlook(outlook, self.prices)
        total = sum_of_all(ask, "masses", landmarks=landmarks, sure=sure, weights=weights)
        masses = total["masses"]  # (M,)
        ask.keep(
            "weigh",
            to=orders(budget),
            landmarks=landmarks,
            sure=sure,
            weights=weights,
        )
        owners = torch.zeros(len(landmarks), dtype=torch.int64)
        for digit in range(DIGITS):
            bids = sum_of_all(ask, "bids", 1.0, prefix=owners, digit=digit)["bids"]
            owners = add_digit(owners, bids)

        n_parts = min(SUB_ROUNDS, max(budget.values(), default=0))
        for part in range(n_parts):
            total = sum_of_all(ask, "reach", 1.0, landmarks=landmarks, sigma=sigma)
            covered = highest_level(total["reach"])  # (M,) of (M, LEVELS)
            share: dict[str, Answer] = {}
            for site, n in budget.items():
                if n > 0:
                    share[site] = {"many": n * (part + 1) // n_parts}
            ask.keep(
                "cover",
                to=share,
                covered=covered,
                masses=masses,
                owners=owners,
                landmarks=landmarks,
                sigma=sigma,
            )
        ask.keep("select", to=orders(budget))
        notes = {"landmarks": len(landmarks), "sigma": sigma}
        return {**memo, "notes": notes}

    def kernel_width(self, size: Mapping[str, Tensor], labels: int) -> float:
        """σ, from the root mean square distance of two rows.

        The mean square distance is twice the variance of all rows: their mean square length less
        the squared length of their mean.
        """
        rows = float(size["rows"])
        mean = size["features"] / max(rows, 1.0)
        variance = float(size["squares"]) / max(rows, 1.0) - float(mean.square().sum())
        apart = math.sqrt(2 * max(variance, 1e-12))
        narrower = math.pow(50 / max(labels, 1), self.shrink)
        return self.width * apart * narrower

    # -- site half --------------------------------------------------------------------------

    def bundle(self, view: View) -> Answer:
        return tie_bundles(view, self.least)

    def size(self, view: View) -> Answer:
        kept = read_bundles(view)
        means = kept["means"]
        weighted = kept["rows"][:, None] * means
        return {
            "rows": kept["rows"].sum(),
            "labels": float(len(view.labels)),
            "features": weighted.sum(0),
            "squares": (weighted * means).sum(),
        }

    def groups(
        self, view: View, centers: Tensor | None = None, planes: Tensor | None = None
    ) -> Answer:
        return total_bundles(read_bundles(view), centers, planes)

    def outlook(self, view: View) -> Answer:
        """Rows by their margin, (BINS,), predicted classes, (C,), and labels by class, (C,)."""
        p = predict(view)
        bins = torch.zeros(BINS, dtype=torch.float64)
        if p is None:
            classes = torch.zeros(view.classes, dtype=torch.float64)
        else:
            p = p[p.isfinite().all(1)]
            at = (margins(p) * BINS).long().clamp(0, BINS - 1)
            bins = torch.bincount(at, minlength=BINS).double()
            classes = p.double().sum(0)
        counts = torch.zeros(view.classes, dtype=torch.float64)
        if view.classes:
            counts = view.counts
        return {"margins": bins, "classes": classes, "counts": counts}

    def masses(self, view: View, landmarks: Tensor, sure: float, weights: Tensor) -> Answer:
        u = self.weigh_rows(view, sure, weights)
        return {"masses": add_near(read_shared_features(view), u, landmarks)}

    def weigh(
        self, view: View, landmarks: Tensor, sure: float, weights: Tensor, n: int
    ) -> Answer:
        """U of each row, (m,), and what the site has of it near each landmark, (M,)."""
        u = self.weigh_rows(view, sure, weights)
        if not bool(u.isfinite().any()):
            raise ValueError(
                f"the features of all {view.pool} rows are NaN or infinite: the model has "
                "diverged; lower the learning rate or check the rows"
            )
        return {"own": add_near(read_shared_features(view), u, landmarks), "u": u}

    def bids(self, view: View, prefix: Tensor, digit: int) -> Answer:
        return {"bids": next_digits(self.make_bids(view, len(prefix)), prefix, digit)}

    def reach(self, view: View, landmarks: Tensor, sigma: float) -> Answer:
        """A 1 at the level to which the site's labeled and chosen rows cover each landmark:
        (M, LEVELS)."""
        check_clusters(len(landmarks))
        x = read_shared_features(view, "labeled")
        x = x[x.isfinite().all(1)]
        if "cover" in view.memory:
            x = torch.cat([x, view.memory["cover"]["features"]])
        covered = torch.zeros(len(landmarks))
        for some in torch.split(torch.arange(len(x)), 1024):
            if len(some):
                best = kernel(x[some], landmarks, sigma).amax(0)
                covered = torch.maximum(covered, best)
        level = (covered * LEVELS).long().clamp(0, LEVELS - 1)
        outcome = torch.zeros(len(landmarks), LEVELS)
        outcome[torch.arange(len(landmarks)), level] = 1
        return {"reach": outcome}

    def cover(
        self,
        view: View,
        landmarks: Tensor,
        sigma: float,
        covered: Tensor,
        masses: Tensor,
        owners: Tensor,
        many: int,
    ) -> Answer:
        """So many rows in all, those of earlier parts first, and their features, (rows, D)."""
        check_clusters(len(landmarks))
        x = read_shared_features(view)
        rows = torch.empty(0, dtype=torch.int64)
        if "cover" in view.memory:
            rows = view.memory["cover"]["rows"]
        if "weigh" not in view.memory:  # its pool is empty
            return {"rows": rows, "features": x[rows]}
        is_own = (self.make_bids(view, len(owners)) == owners) & (owners >= 0)
        weight = torch.where(is_own, 1.0, SHARED) * masses
        u = view.memory["weigh"]["u"]
        is_free = u.isfinite()
        is_free[rows] = False
        free = is_free.nonzero().squeeze(1)
        kernels = torch.empty(len(free), len(landmarks))
        for at in torch.split(torch.arange(len(free)), 1024):
            kernels[at] = kernel(x[free[at]], landmarks, sigma)
        new = cover_greedily(
            kernels,
            covered=covered.float(),
            weight=weight.float(),
            besides=LITTLE * float(masses.sum()) * u[free].float(),
            n=many - len(rows),
            ties=view.stream("ties"),
        )
        rows = torch.cat([rows, free[new]])
        return {"rows": rows, "features": x[rows]}

    def select(self, view: View, n: int) -> Picks:
        rows = view.memory["cover"]["rows"]
        is_left = torch.ones(view.pool, dtype=torch.bool)
        is_left[rows] = False
        return Picks(torch.cat([rows, is_left.nonzero().squeeze(1)])[:n])

    def make_bids(self, view: View, landmarks: int) -> Tensor:
        """What the site has near each landmark, as a bid, (M,): who has most owns it."""
        if "weigh" not in view.memory:  # buys nothing
            return torch.full((landmarks,), NO_BID)
        own = view.memory["weigh"]["own"]
        return bids_of(torch.where(own > 0, own, -1.0), view.stream("owners"))

    def weigh_rows(self, view: View, sure: float, weights: Tensor) -> Tensor:
        """U of each row, (m,) float64; NaN for a row that is not finite."""
        x = read_shared_features(view)
        u = torch.ones(len(x), dtype=torch.float64)
        p = predict(view)
        if p is not None and sure > 0:
            p = p.double()
            u = (1 - margins(p) / sure).clamp_min(0) * (p @ weights)
        return u.masked_fill(~x.isfinite().all(1), torch.nan)


def add_near(x: Tensor, u: Tensor, landmarks: Tensor) -> Tensor:
    """Σ u of the rows that each landmark is nearest to; rows of NaN count nowhere.
    x: (m, D), u: (m,) -> (M,)."""
    good = u.isfinite()
    near = nearest_center(x[good], landmarks)
    return torch.zeros(len(landmarks), dtype=u.dtype).index_add(0, near, u[good])


def read_outlook(total: Mapping[str, Tensor], with_prices: bool) -> tuple[float, Tensor]:
    """The margin of a row that is sure, 0 where nothing is predicted or labeled, and the price of
    each class, (C,).

    >>> total = {
    ...     "margins": torch.tensor([9.0, 1.0]),
    ...     "classes": torch.tensor([8.0, 2.0]),
    ...     "counts": torch.tensor([3.0, 1.0]),
    ... }
    >>> read_outlook(total, with_prices=True)
    (1.0, tensor([0.6598, 1.0000]))
    """
    counts = total["counts"].clamp_min(0)
    rows = total["margins"].clamp_min(0)
    weights = torch.ones_like(counts)
    if not float(counts.sum()) > 0.5 or not float(rows.sum()) > 0.5:
        return 0.0, weights
    reached = rows.cumsum(0) >= SURE * rows.sum()
    sure = (int(reached.long().argmax()) + 1) / len(rows)
    if with_prices:
        predicted = total["classes"].clamp_min(0)
        uneven = predicted.std(correction=0) / predicted.mean().clamp_min(1e-12)
        weights = (counts.mean() / (counts + 1)) ** float(uneven.clamp_max(1))
    return sure, weights


def kernel(x: Tensor, landmarks: Tensor, sigma: float) -> Tensor:
    """exp(-|x - m|² / 2σ²) in float32: rows (n, D), landmarks (M, D) -> (n, M)."""
    middle = landmarks.mean(0)
    rows = place((x - middle.to(x.dtype)).float())
    short = place((landmarks - middle).float())
    half = short.square().sum(1) / 2
    far = torch.addmm(half, rows, short.T, alpha=-1)
    far += rows.square().sum(1)[:, None] / 2
    return far.clamp_min_(0).neg_().div_(sigma**2).exp_().cpu()


def highest_level(reach: Tensor) -> Tensor:
    """How far each landmark is covered, (M,), from how many sites are at each level: (M, LEVELS).

    >>> highest_level(torch.tensor([[2.0, 0.0, 1.0, 0.0], [3.0, 0.0, 0.0, 0.0]]))
    tensor([0.6250, 0.0000])
    """
    levels = reach.shape[1]
    highest = ((reach > 0.5) * torch.arange(levels)).amax(1)
    middle = (highest + 0.5) / levels
    return torch.where(highest > 0, middle, 0.0)


def cover_greedily(
    kernels: Tensor,
    *,
    covered: Tensor,
    weight: Tensor,
    besides: Tensor,
    n: int,
    ties: torch.Generator | None = None,
) -> Tensor:
    """``n`` rows, each of which adds most to Σ_m weight_m max(covered_m, kernels of chosen rows) + Σ
    besides of chosen rows.

    kernels: (rows, M); covered, weight: (M,); besides: (rows,).  A gain never grows, so those of
    earlier turns are bounds: only rows whose bound is among the highest are computed anew (Minoux,
    1978).  Equal gains come in random order from ``ties``, or by position without it.
    """
    covered = covered.clone()
    bound = besides.clone()  # (rows,)
    for at in torch.split(torch.arange(len(kernels)), 1024):
        bound[at] += (kernels[at] - covered).clamp_min_(0) @ weight
    order = order_ties(len(kernels), ties)
    picks: list[int] = []
    for _ in range(min(n, len(kernels))):
        is_new = torch.zeros(len(bound), dtype=torch.bool)
        while True:
            at = bound.masked_fill(is_new, -torch.inf).topk(min(LAZY, len(bound))).indices
            at = at[~bound[at].isinf()]
            bound[at] = besides[at] + (kernels[at] - covered).clamp_min_(0) @ weight
            is_new[at] = True
            best = first_best(bound, order)
            if bool(is_new[best]):
                break
        picks.append(best)
        covered = torch.maximum(covered, kernels[best])
        bound[best] = -torch.inf
    return torch.tensor(picks, dtype=torch.int64)
