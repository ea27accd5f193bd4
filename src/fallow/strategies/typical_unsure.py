"""Typical and uncertain examples over all sites, for small and large label budgets.

TypiClust (Hacohen, Dekel, Weinshall, 2022) labels typical examples of clusters without labels,
which is best with few labels.  Margin sampling labels uncertain examples, which is best with many.
Here examples are weighted by their uncertainty.  Without a model, this is TypiClust; the better the
model, the closer it is to margin sampling spread over clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.contract import Contract
from fallow.core.limits import Limits, PositiveInt
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.values import AtMost, Count, Flag, LabelCount, NonNegative, Real, Whole
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
    stores,
)
from fallow.strategies.parts.bundles import (
    BASE,
    CENTERS,
    CLUSTERS,
    DIGITS,
    FEW_CLUSTERS,
    LEAST,
    NO_BID,
    OFTEN,
    bids_of,
    cluster_sites,
    count_nearest,
    nearest_center,
    read_shared_features,
    tie_bundles,
    total_bundles,
)
from fallow.strategies.parts.committee import margins, predict
from fallow.strategies.parts.density import CROWD, rank_in_clusters
from fallow.strategies.parts.top import require_finite, shuffle_equal

TURNS = 3  # exchanges in which sites receive the minimum score of rows
FEW_TURNS = AtMost("turns", TURNS)
LITTLE = 1e-6  # weight of a row of which the model is certain


@explain_constructor
@final
@dataclass(frozen=True)
class TypicalUnsure:
    """Select typical examples in the clusters with the largest uncertainty per label.

    u(x) is 1 - margin of the global model, and 1 before there are labels.  The weight of a cluster
    with n labels is Σ u / (n + 1).  Each label of a query goes to the cluster with the largest
    weight, which lowers that weight.  In each cluster, the examples with the largest u x typicality
    are selected.  Typicality is 1 / the mean distance to the ``neighbors`` nearest examples of the
    same cluster at the same site.

    Parameters
    ----------
    neighbors : int
        Number of nearest neighbors.
    least : int
        Minimum number of examples in a bundle.

    Notes
    -----
    *Clusters* are computed like those of `Typical`, from aggregates of bundles of at least
    ``least`` unlabeled examples of all sites.  Their number is the number of labels after this
    query, at most 500.  The initial labels aim at one label for each cluster.  A cluster gets none
    if the sites that hold its examples spend their label budgets on others, or if two sites label
    the same cluster.  On digits at five sites, 85 to 90 % of the clusters get a label if sites
    differ (Dirichlet 0.1), and 95 % or more if they are similar
    (``tests/strategies/test_typical_unsure.py``).  If sites begin with the clusters that few sites
    hold, as in `Typical`, more clusters get a label, but classifiers are not more accurate.

    *Selection.*  The coordinator determines a number of labels w for each cluster.  Sites count
    their examples by u x typicality, in steps of 2 %.  From the aggregates, the coordinator
    determines digit by digit the level that w examples of all sites reach.  A site selects its
    examples that reach the level, those of the clusters with the largest weight first, up to its
    label budget; the rest goes to others in another turn.  Examples with the same level and random
    number are both selected.

    *Remaining label budget.*  The rest is spent on the site's own examples, by the same weights.
    Examples with non-finite features are ranked last.

    *Cost.*  Features are recomputed in three exchanges.  With a trained model, each requires one
    pass over the unlabeled pool; features of an encoder are cached on disk.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[0.0, 0.1 * k] for k in range(8)] + [[9.0, 0.1 * k] for k in range(6)]
    >>> labeled = ([[0.0, 0.3], [9.0, 0.3]], [0, 1])
    >>> sure = [[0.99, 0.01]] * 8 + [[0.4, 0.6]] * 6
    >>> selected = fl.select(
    ...     pool, fl.TypicalUnsure(), outputs=sure, labeled=labeled, classes=2, n=1
    ... )
    >>> selected >= 8  # there are fewer of them, but the model is unsure about these
    array([ True])
    """

    neighbors: PositiveInt = 20  # K, Eq. 4 of TypiClust
    least: Annotated[int, Limits(ge=2)] = LEAST  # minimum number of examples in a bundle

    contract: ClassVar[Contract] = Contract(
        title="Typical examples among uncertain ones",
        short="Typical-unsure",
        needs=("global",),
        local_dp=False,  # aggregates of features are sent without noise
        missing="stops: clusters are those of the rows of all sites; a resumed run asks again",
    )

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        clusters = cluster_sites(
            ask,
            budget,
            self.least,
            bundle=self.bundle,
            size=self.size,
            groups=self.groups,
            one_a_label=True,
        )
        is_trained = float(clusters.totals["labels"]) > 0.5
        centers = clusters.centers  # (K, D)
        result = sum_of_all(ask, self.counts, centers=centers, is_trained=is_trained)
        rows = result["rows"].round().clamp_min(0)
        masses = result["masses"].clamp_min(0)
        labels = result["labels"].round().clamp_min(0)
        wanted = (rows > 0).double()  # initial labels: one for each cluster
        if is_trained:
            wanted = share_labels(masses, labels, rows=rows, n=sum(budget.values()))
        ask.keep(
            self.group,
            to=label_counts(budget),
            centers=centers,
            is_trained=is_trained,
            masses=masses,
            labels=labels,
        )

        # in each turn, sites label their examples that reach the level of a cluster
        largest_count = float(clusters.totals["rows"])  # that one site can count
        bars = torch.empty(0, len(wanted), dtype=torch.int64)  # (turns, K) levels
        taken = torch.zeros_like(wanted)
        for _ in range(TURNS):
            bar = self.find_bar(ask, bars, wanted - taken, largest_count)
            bars = torch.cat([bars, bar[None]])
            taken = sum_of_all(ask, self.taken, bars=bars)["taken"].round()

        covered = labels + taken
        ask.keep(self.select, to=label_counts(budget), bars=bars, covered=covered)
        notes = {"clusters": len(wanted), "covered": int((covered > 0).sum())}
        return {**memo, "notes": notes}

    def find_bar(self, ask: Ask, bars: Tensor, need: Tensor, limit: float) -> Tensor:
        """Return the level that the needed number of free examples reaches, (K,).

        It is determined digit by digit, and is -1 for a cluster that needs none.
        """
        bar = torch.zeros(len(need), dtype=torch.int64)
        bar[need < 0.5] = NO_BID
        for digit in range(DIGITS):
            total = sum_of_all(ask, self.levels, limit, bars=bars, prefix=bar, digit=digit)
            bar, need = reach(bar, need, total["rows"].round())
        return bar

    # -- client side --------------------------------------------------------------------------

    @stores()
    def bundle(self, view: View) -> Values:
        return tie_bundles(view, self.least)

    @client.sum(
        "aggregates of numbers of examples and labels",
        returns={"rows": Count(of="rows"), "labels": Count(of="labels")},
    )
    def size(self, view: View) -> Values:
        return {"rows": float(view.pool), "labels": float(len(view.labels))}

    @client.sum(
        "sums of the examples of each cluster, in groups of several examples",
        returns=CLUSTERS,
        takes=CENTERS,
        times=OFTEN,
        reveals_parts="the coordinator sees the totals of each site's rows by cluster, which are "
        "means of five rows or more, and how many of them are how typical and how unsure",
    )
    def groups(
        self, view: View, centers: Tensor | None = None, planes: Tensor | None = None
    ) -> Values:
        return total_bundles(view.memory["bundle"], centers, planes)

    @client.sum(
        "aggregates of numbers of examples, uncertainty and labels in each cluster",
        returns={
            "rows": Count("clusters", of="rows", is_together=True),
            "masses": NonNegative("clusters", of="rows", is_together=True),
            "labels": Count("clusters", of="labels", is_together=True),
        },
        takes={"centers": Real((FEW_CLUSTERS, "columns")), "is_trained": Flag()},
    )
    def counts(self, view: View, centers: Tensor, is_trained: bool) -> Values:
        """Count examples, Σ u and labels nearest to each center: (K,)."""
        x = read_shared_features(view)
        u = weigh_rows(view, is_trained=is_trained)
        good = x.isfinite().all(1) & u.isfinite()
        near = nearest_center(x[good], centers)
        masses = torch.zeros(len(centers), dtype=torch.float64)
        labels = count_nearest(read_shared_features(view, "labeled"), centers)
        return {
            "rows": count_nearest(x, centers),
            "masses": masses.index_add(0, near, u[good]),
            "labels": labels,
        }

    @stores(
        centers=Real((FEW_CLUSTERS, "columns")),
        is_trained=Flag(),
        masses=NonNegative("clusters"),
        labels=NonNegative("clusters"),
        n=LabelCount(),
    )
    def group(
        self,
        view: View,
        centers: Tensor,
        is_trained: bool,
        masses: Tensor,
        labels: Tensor,
        n: int,
    ) -> Values:
        """Assign the examples of the pool to clusters.

        Returns the cluster of each example, (m,), -1 for a non-finite one, its u x typicality,
        (m,), the level of that, (m,), and a random order of ties, (m,); also the weights of the
        clusters and the label budget of the site.
        """
        x = read_shared_features(view)
        u = weigh_rows(view, is_trained=is_trained)
        is_finite = x.isfinite().all(1) & u.isfinite()
        require_finite(is_finite, "the features or outputs of all {n} examples")
        crowds = rank_in_clusters(
            x,
            is_finite.nonzero().squeeze(1),
            centers,
            neighbors=self.neighbors,
            ties=view.stream("crowds"),
            limit=CROWD,
        )
        score = crowds.score.double() * u  # (m,)
        amount = score.nan_to_num(-1.0)
        return {
            "cluster": crowds.cluster,
            "score": score,
            "level": bids_of(amount, view.stream("levels")),
            "order": shuffle_equal(amount, view.stream("ties")),
            "masses": masses,
            "labels": labels,
            "n": torch.tensor(n),
        }

    @client.sum(
        "aggregates of numbers of examples of each cluster, by level",
        returns={"rows": Count(("clusters", BASE), of="rows", is_together=True)},
        takes={
            "bars": Real((FEW_TURNS, FEW_CLUSTERS)),
            "prefix": Real(FEW_CLUSTERS),
            "digit": Whole(upto=(DIGITS - 1,)),
        },
        times=DIGITS * TURNS,
    )
    def levels(self, view: View, bars: Tensor, prefix: Tensor, digit: int) -> Values:
        """Count free examples of each cluster with ``prefix``, by next digit: (K, BASE).

        A site without remaining label budget has none.
        """
        counts = torch.zeros(len(prefix), BASE)
        if "group" not in view.memory:  # it has no label budget
            return {"rows": counts}
        kept = view.memory["group"]
        mine = self.find_taken(kept, bars)
        if len(mine) < int(kept["n"]):
            is_free = kept["level"] >= 0
            is_free[mine] = False
            free = is_free.nonzero().squeeze(1)
            counts = count_digits(kept["cluster"][free], kept["level"][free], prefix, digit)
        return {"rows": counts}

    @client.sum(
        "aggregates of new labels in each cluster",
        returns={"taken": Count("clusters", of="rows", is_together=True)},
        takes={"bars": Real((FEW_TURNS, FEW_CLUSTERS))},
        times=TURNS,
    )
    def taken(self, view: View, bars: Tensor) -> Values:
        counts = torch.zeros(bars.shape[1], dtype=torch.float64)
        if "group" in view.memory:
            kept = view.memory["group"]
            at = kept["cluster"][self.find_taken(kept, bars)]
            counts = torch.bincount(at, minlength=bars.shape[1]).double()
        return {"taken": counts}

    @selects(bars=Real((FEW_TURNS, FEW_CLUSTERS)), covered=Real("clusters"))
    def select(self, view: View, n: int, bars: Tensor, covered: Tensor) -> SelectedExamples:
        """Return examples that reach the level of their cluster, then other uncertain ones.

        ``covered``: (K,) labels of each cluster, including those of this query.
        """
        kept = view.memory["group"]
        first = self.find_taken(kept, bars)[:n]
        is_left = kept["level"] >= 0
        is_left[first] = False
        more = order_rows(kept, is_left, covered)[: n - len(first)]
        last = (kept["level"] < 0).nonzero().squeeze(1)
        rows = torch.cat([first, more, last])[:n]
        return SelectedExamples(rows, score=kept["score"][rows])

    def find_taken(self, kept: State, bars: Tensor) -> Tensor:
        """Return the examples that the site labels, in order of selection.

        In each turn, these are the ones that reach the level of their cluster, up to the label
        budget.
        """
        room = int(kept["n"])
        cluster = kept["cluster"]
        is_free = kept["level"] >= 0
        mine = torch.empty(0, dtype=torch.int64)
        for bar in bars:  # (K,)
            at = bar[cluster.clamp_min(0)]  # (m,) level of the cluster of an example
            is_good = is_free & (at >= 0) & (kept["level"] >= at)
            new = order_rows(kept, is_good, kept["labels"])[: room - len(mine)]
            mine = torch.cat([mine, new])
            is_free[new] = False
        return mine


def weigh_rows(view: View, *, is_trained: bool) -> Tensor:
    """Return u of each example, (m,) float64: 1 - margin.

    u is 1 without a trained model or a predicted class, and NaN for a non-finite prediction.
    """
    p = None
    if is_trained:
        p = predict(view)
    if p is None:
        return torch.ones(view.pool, dtype=torch.float64)
    return (1 - margins(p.double())).clamp_min(LITTLE)


def share_labels(masses: Tensor, labels: Tensor, *, rows: Tensor, n: int) -> Tensor:
    """Divide ``n`` labels over clusters by the D'Hondt method.

    Each label goes to the largest masses / (labels + 1), where labels include those already
    assigned, while the cluster has examples.  All arguments are (K,) float64.

    >>> masses = torch.tensor([6.0, 5.0, 2.0])
    >>> share_labels(masses, torch.tensor([1.0, 0.0, 0.0]), rows=torch.full((3,), 9.0), n=3)
    tensor([1., 1., 1.])
    """
    assigned = torch.zeros_like(masses)
    for _ in range(min(n, int(rows.sum()))):
        weight = masses / (labels + assigned + 1)
        assigned[int(weight.masked_fill(assigned >= rows, -1.0).argmax())] += 1
    return assigned


def reach(prefix: Tensor, need: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return a level one digit longer, (K,), and the number of examples still needed.

    counts: (K, BASE) examples by next digit; prefix: (K,), -1 if none is needed.

    >>> counts = torch.tensor([[4.0, 3.0, 1.0]])
    >>> reach(
    ...     torch.tensor([0]), torch.tensor([3.0]), counts
    ... )  # 1 has digit 2, 3 have digit 1
    (tensor([1]), tensor([2.]))
    """
    base = counts.shape[1]
    # (K, BASE) examples with this digit or a higher one
    at_least = counts.flip(1).cumsum(1).flip(1)
    is_enough = at_least >= need[:, None]
    digit = (is_enough * torch.arange(base)).amax(1)  # also 0 if all of them are too few
    higher = torch.cat([at_least, torch.zeros_like(need)[:, None]], 1)
    beyond = higher.gather(1, digit[:, None] + 1).squeeze(1)
    is_none = prefix < 0
    longer = (prefix * base + digit).masked_fill(is_none, NO_BID)
    return longer, torch.where(is_none, need, need - beyond)


def count_digits(cluster: Tensor, level: Tensor, prefix: Tensor, digit: int) -> Tensor:
    """Count examples of each cluster whose level begins with ``prefix``, by next digit.

    cluster, level: (m,); prefix: (K,) -> (K, BASE) float32.

    >>> digits = count_digits(
    ...     torch.tensor([0, 0, 1]),
    ...     torch.tensor([130, 131, 5]),
    ...     torch.tensor([1, 0]),
    ...     digit=1,
    ... )
    >>> digits.nonzero().tolist()  # 130 is 1, 2 in base 128, 131 is 1, 3, and 5 is 0, 5
    [[0, 2], [0, 3], [1, 5]]
    """
    rest = DIGITS - digit - 1
    begins_so = level // BASE ** (rest + 1) == prefix[cluster]
    at = BASE * cluster[begins_so] + level[begins_so] // BASE**rest % BASE
    counts = torch.bincount(at, minlength=len(prefix) * BASE)
    return counts.float().reshape(len(prefix), BASE)


def order_rows(kept: State, is_of: Tensor, labels: Tensor) -> Tensor:
    """Return the examples of ``is_of``, (m,), in the order in which a site selects them.

    The next one has the highest level in the cluster with the largest mass / (labels + 1); a
    selected example counts as a label.  labels: (K,) labels of the clusters.
    """
    rows = kept["order"]
    rows = rows[is_of[rows]]
    rows = rows[kept["level"][rows].argsort(descending=True, stable=True)]
    rows = rows[kept["cluster"][rows].argsort(stable=True)]  # by cluster, the best first
    cluster = kept["cluster"][rows]
    sizes = torch.bincount(cluster, minlength=len(labels))
    first = sizes.cumsum(0) - sizes  # (K,) start of the examples of each cluster
    rank = torch.arange(len(rows)) - first[cluster]  # 0 for the best of a cluster
    weight = kept["masses"][cluster] / (labels[cluster] + rank + 1)
    return rows[weight.argsort(descending=True, stable=True)]
