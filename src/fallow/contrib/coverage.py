"""Coverage of uncertain examples over all sites, with weights for rare classes.

Related work: ProbCover (Yehuda et al., 2022) and Uncertainty Herding (Bae et al., 2025), which
cover the examples of one pool.  Here all sites cover the same landmarks, and no site sees the
examples of another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.contract import Contract
from fallow.core.limits import Limits, NonNegativeFinite, PositiveFinite
from fallow.core.products import to_device
from fallow.core.suggestions import explain_constructor
from fallow.core.types import Values
from fallow.core.values import Count, Indicator, LabelCount, NonNegative, Real, Whole
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
    stores,
)
from fallow.strategies.parts import (
    BASE,
    CENTERS,
    CLUSTERS,
    DIGITS,
    FEW_CLUSTERS,
    LEAST,
    NO_BID,
    OFTEN,
    add_digit,
    bids_of,
    cluster_sites,
    first_best,
    margins,
    nearest_center,
    next_digits,
    order_ties,
    predict,
    read_shared_features,
    require_finite,
    tie_bundles,
    total_bundles,
)

SUB_ROUNDS = 8  # parts of a label budget
LEVELS = 64  # levels of coverage that sites report
BINS = 64  # bins of margins
SURE = 0.95  # quantile of the margins at which an example counts as certain
SHARED = 0.1  # weight of a landmark at a site that does not own it
LITTLE = 1e-6  # weight of u in a gain, as a share of all masses, if everything is covered
LAZY = 64  # number of gains that are recomputed at a time


@explain_constructor
@final
@dataclass(frozen=True)
class Coverage:
    """Select examples that cover regions where the model is still uncertain.

    Landmarks are means of close examples of all sites.  An example covers a landmark by a Gaussian
    kernel of their distance.  The weight of a landmark is Σ u(x) over the examples near it, with u
    = (1 - margin / q) Σ_c p_c w_c.  Here q is the 95 % quantile of all margins and w_c is the price
    of a class, (mean labels / (labels of c + 1))^γ.  The exponent γ is the coefficient of variation
    of the predicted classes, at most 1, so all prices are 1 for balanced data.  Without labels, u
    is 1.  Kernels get narrower as the number of labels grows: early labels represent many examples,
    and later ones refine the decision boundary.

    Parameters
    ----------
    width : float
        Kernel width at 50 labels, in units of the distance between two examples.
    shrink : float
        Exponent with which the kernel width decreases with the number of labels.
    prices : bool
        Weight classes by their price.
    least : int
        Minimum number of examples in a bundle.

    Notes
    -----
    *Landmarks* are computed like the clusters of `Typical`: sites send aggregates of bundles of at
    least ``least`` examples.  The coverage of a landmark is the largest kernel value over the
    labeled and selected examples of all sites, in steps of 1/64.  Each site sends a 1 at its level,
    and the coordinator takes the highest level.

    *Owners.*  Sites with similar examples would select the same ones.  Each landmark is therefore
    owned by the site with the largest weight near it; at other sites it counts a tenth.  The label
    budget is spent in eight parts, and coverage is updated before each of them.  When everything is
    covered, the examples with the largest u are selected.

    *Kernel width.*  It is ``width`` times the distance between two examples, times (50 /
    labels)^``shrink``, where labels include this query.  Both defaults were tuned on MNIST and
    Fashion-MNIST only.  For regression, u is 1.  Examples with non-finite features are ranked last.

    *Cost.*  Features are recomputed in up to twelve exchanges, because sites do not store them in
    between.  With a trained model, each requires one pass over the unlabeled pool; features of an
    encoder are cached on disk.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[0.0, 0.1 * k] for k in range(9)] + [[9.0, 0.1 * k] for k in range(6)]
    >>> sorted((fl.select(pool, fl.contrib.Coverage(), n=2) > 8).tolist())
    [False, True]
    """

    width: PositiveFinite = (
        0.7  # σ at 50 labels, in units of the distance between two examples
    )
    shrink: NonNegativeFinite = 0.15
    prices: bool = True  # False: w = 1
    least: Annotated[int, Limits(ge=2)] = LEAST  # minimum number of examples in a bundle

    contract: ClassVar[Contract] = Contract(
        title="Coverage of uncertain examples",
        short="Coverage",
        regression=True,
        local_dp=False,  # aggregates of features are sent without noise
        missing="stops: landmarks are those of the examples of all sites; a resumed run asks "
        "again",
    )

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        clusters = cluster_sites(
            ask, budget, self.least, bundle=self.bundle, size=self.scale, groups=self.groups
        )
        landmarks = clusters.centers  # (M, D)
        sigma = self.kernel_width(clusters.totals, clusters.labels)

        outlook = sum_of_all(ask, self.outlook)
        sure, weights = read_outlook(outlook, self.prices)
        total = sum_of_all(
            ask, self.masses, landmarks=landmarks, sure=sure, weights=weights
        )
        masses = total["masses"]  # (M,)
        ask.keep(
            self.weigh,
            to=label_counts(budget),
            landmarks=landmarks,
            sure=sure,
            weights=weights,
        )
        owners = torch.zeros(len(landmarks), dtype=torch.int64)
        for digit in range(DIGITS):
            bids = sum_of_all(ask, self.bids, 1.0, prefix=owners, digit=digit)["bids"]
            owners = add_digit(owners, bids)

        n_parts = min(SUB_ROUNDS, max(budget.values(), default=0))
        for part in range(n_parts):
            total = sum_of_all(ask, self.reach, 1.0, landmarks=landmarks, sigma=sigma)
            covered = highest_level(total["reach"])  # (M,) of (M, LEVELS)
            share: dict[str, Values] = {}
            for site, n in budget.items():
                if n > 0:
                    share[site] = {"many": n * (part + 1) // n_parts}
            ask.keep(
                self.cover,
                to=share,
                covered=covered,
                masses=masses,
                owners=owners,
                landmarks=landmarks,
                sigma=sigma,
            )
        ask.keep(self.select, to=label_counts(budget))
        notes = {"landmarks": len(landmarks), "sigma": sigma}
        return {**memo, "notes": notes}

    def kernel_width(self, size: Mapping[str, Tensor], labels: int) -> float:
        """Return σ from the root mean square distance between two examples.

        The mean square distance is twice the total variance: the mean square length minus the
        squared length of the mean.
        """
        rows = float(size["rows"])
        mean = size["features"] / max(rows, 1.0)
        variance = float(size["squares"]) / max(rows, 1.0) - float(mean.square().sum())
        apart = math.sqrt(2 * max(variance, 1e-12))
        narrower = math.pow(50 / max(labels, 1), self.shrink)
        return self.width * apart * narrower

    # -- client side --------------------------------------------------------------------------

    @stores()
    def bundle(self, view: View) -> Values:
        return tie_bundles(view, self.least)

    @client.sum(
        "aggregates of numbers of examples and labels, and of squared lengths",
        returns={
            "rows": NonNegative(of="rows"),
            "labels": Count(of="labels"),
            "features": Real("columns"),
            "squares": NonNegative(),
        },
    )
    def scale(self, view: View) -> Values:
        kept = view.memory["bundle"]
        means = kept["means"]
        weighted = kept["rows"][:, None] * means
        return {
            "rows": kept["rows"].sum(),
            "labels": float(len(view.labels)),
            "features": weighted.sum(0),
            "squares": (weighted * means).sum(),
        }

    @client.sum(
        "aggregates of the examples of each cluster, in bundles of several",
        returns=CLUSTERS,
        takes=CENTERS,
        times=OFTEN,
        reveals_parts="the coordinator sees, for each cluster, aggregates of each site's "
        "bundles of five or more examples, and the coverage by the site's "
        "labeled examples",
    )
    def groups(
        self, view: View, centers: Tensor | None = None, planes: Tensor | None = None
    ) -> Values:
        return total_bundles(view.memory["bundle"], centers, planes)

    @client.sum(
        "aggregates of margins, predicted classes and labels of each class",
        returns={
            "margins": Count(BINS, of="rows", is_together=True),
            "classes": NonNegative("classes"),
            "counts": Count("classes", of="labels", is_together=True),
        },
    )
    def outlook(self, view: View) -> Values:
        """Return the counts by margin, (BINS,), predicted class, (C,), and label, (C,)."""
        p = predict(view)
        bins = torch.zeros(BINS, dtype=torch.float64)
        if p is None:
            classes = torch.zeros(view.classes, dtype=torch.float64)
        else:
            is_finite = p.isfinite().all(1)
            if len(p):
                require_finite(is_finite, "the predictions of all {n} examples")
            p = p[is_finite]
            at = (margins(p) * BINS).long().clamp(0, BINS - 1)
            bins = torch.bincount(at, minlength=BINS).double()
            classes = p.double().sum(0)
        counts = torch.zeros(view.classes, dtype=torch.float64)
        if view.classes:
            counts = view.counts
        return {"margins": bins, "classes": classes, "counts": counts}

    @client.sum(
        "aggregates of uncertainty near each landmark",
        returns={"masses": NonNegative("clusters")},
        takes={
            "landmarks": Real((FEW_CLUSTERS, "columns")),
            "sure": NonNegative(),
            "weights": NonNegative("classes"),
        },
    )
    def masses(self, view: View, landmarks: Tensor, sure: float, weights: Tensor) -> Values:
        u = self.weigh_rows(view, sure, weights)
        return {"masses": add_near(read_shared_features(view), u, landmarks)}

    @stores(
        landmarks=Real((FEW_CLUSTERS, "columns")),
        sure=NonNegative(),
        weights=NonNegative("classes"),
        n=LabelCount(),
    )
    def weigh(
        self, view: View, landmarks: Tensor, sure: float, weights: Tensor, n: int
    ) -> Values:
        """Return u of each example, (m,), and the site's weight near each landmark, (M,)."""
        u = self.weigh_rows(view, sure, weights)
        require_finite(u.isfinite())
        return {"own": add_near(read_shared_features(view), u, landmarks), "u": u}

    @client.sum(
        "aggregates of bids for each landmark",
        returns={"bids": Indicator(("clusters", BASE))},
        takes={"prefix": Real(FEW_CLUSTERS), "digit": Whole(upto=(DIGITS - 1,))},
        times=DIGITS,
    )
    def bids(self, view: View, prefix: Tensor, digit: int) -> Values:
        return {"bids": next_digits(self.make_bids(view, len(prefix)), prefix, digit)}

    @client.sum(
        "aggregates of the coverage of each landmark, by level",
        returns={"reach": Indicator(("clusters", LEVELS))},
        takes={"landmarks": Real((FEW_CLUSTERS, "columns")), "sigma": NonNegative()},
        times=SUB_ROUNDS,
    )
    def reach(self, view: View, landmarks: Tensor, sigma: float) -> Values:
        """Return a 1 at the site's level of coverage of each landmark, (M, LEVELS)."""
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

    @client.keep(
        "number of tensors kept",
        takes={
            "landmarks": Real((FEW_CLUSTERS, "columns")),
            "sigma": NonNegative(),
            "covered": Real("clusters"),
            "masses": NonNegative("clusters"),
            "owners": Real("clusters"),
            "many": Whole(upto=("rows",)),
        },
        times=SUB_ROUNDS,
    )
    def cover(
        self,
        view: View,
        landmarks: Tensor,
        sigma: float,
        covered: Tensor,
        masses: Tensor,
        owners: Tensor,
        many: int,
    ) -> Values:
        """Return ``many`` selected examples, earlier parts first, and features (examples, D)."""
        x = read_shared_features(view)
        rows = torch.empty(0, dtype=torch.int64)
        if "cover" in view.memory:
            rows = view.memory["cover"]["rows"]
        if "weigh" not in view.memory:  # the unlabeled pool is empty
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

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        rows = view.memory["cover"]["rows"]
        is_left = torch.ones(view.pool, dtype=torch.bool)
        is_left[rows] = False
        return SelectedExamples(torch.cat([rows, is_left.nonzero().squeeze(1)])[:n])

    def make_bids(self, view: View, landmarks: int) -> Tensor:
        """Return the site's weight near each landmark as a bid, (M,); the highest bid owns it."""
        if "weigh" not in view.memory:  # no label budget
            return torch.full((landmarks,), NO_BID)
        own = view.memory["weigh"]["own"]
        return bids_of(torch.where(own > 0, own, -1.0), view.stream("owners"))

    def weigh_rows(self, view: View, sure: float, weights: Tensor) -> Tensor:
        """Return u of each example, (m,) float64; NaN for non-finite features."""
        x = read_shared_features(view)
        u = torch.ones(len(x), dtype=torch.float64)
        p = predict(view)
        if p is not None and sure > 0:
            p = p.double()
            u = (1 - margins(p) / sure).clamp_min(0) * (p @ weights)
        return u.masked_fill(~x.isfinite().all(1), torch.nan)


def add_near(x: Tensor, u: Tensor, landmarks: Tensor) -> Tensor:
    """Sum u over the examples nearest to each landmark; examples with NaN are ignored.

    x: (m, D), u: (m,) -> (M,).
    """
    good = u.isfinite()
    near = nearest_center(x[good], landmarks)
    return torch.zeros(len(landmarks), dtype=u.dtype).index_add(0, near, u[good])


def read_outlook(total: Mapping[str, Tensor], with_prices: bool) -> tuple[float, Tensor]:
    """Return the margin of a certain example and the price of each class, (C,).

    The margin is 0 if nothing is predicted or labeled.

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
    """Return exp(-|x - m|² / 2σ²) in float32: examples (n, D), landmarks (M, D) -> (n, M)."""
    middle = landmarks.mean(0)
    rows = to_device((x - middle.to(x.dtype)).float())
    short = to_device((landmarks - middle).float())
    half = short.square().sum(1) / 2
    far = torch.addmm(half, rows, short.T, alpha=-1)
    far += rows.square().sum(1)[:, None] / 2
    return far.clamp_min_(0).neg_().div_(sigma**2).exp_().cpu()


def highest_level(reach: Tensor) -> Tensor:
    """Return the coverage of each landmark, (M,), from the number of sites at each level.

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
    """Select ``n`` examples greedily by their gain in weighted coverage.

    The objective is Σ_m weight_m max(covered_m, kernels of selected examples) + Σ besides of
    selected examples.

    kernels: (examples, M); covered, weight: (M,); besides: (examples,).  Gains never grow, so
    earlier gains are upper bounds: only examples with the highest bounds are recomputed (Minoux,
    1978).  Ties are broken at random by ``ties``, or by position without it.
    """
    covered = covered.clone()
    bound = besides.clone()  # (rows,)
    for at in torch.split(torch.arange(len(kernels)), 1024):
        bound[at] += (kernels[at] - covered).clamp_min_(0) @ weight
    order = order_ties(len(kernels), ties)
    selected: list[int] = []
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
        selected.append(best)
        covered = torch.maximum(covered, kernels[best])
        bound[best] = -torch.inf
    return torch.tensor(selected, dtype=torch.int64)
