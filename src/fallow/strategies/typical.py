"""Typical examples of all sites: one label per cluster of the federation, from aggregates.

TypiClust (Hacohen, Dekel, Weinshall, 2022) labels the most typical example of each of the largest
clusters without a label.  Here clusters are computed over all sites, and a cluster that several
sites share is labeled once, at the site with the most typical example.
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
from fallow.core.types import Values
from fallow.core.values import AtMost, Count, Indicator, LabelCount, Real, Whole
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
    add_digit,
    bids_of,
    check_labels,
    cluster_sites,
    count_nearest,
    next_digits,
    read_shared_features,
    tie_bundles,
    total_bundles,
)
from fallow.strategies.parts.density import CROWD, cover, rank_in_clusters
from fallow.strategies.parts.top import require_finite, shuffle_equal

TURNS = 3  # turns in which sites bid for clusters
FEW_TURNS = AtMost("turns", TURNS)


@explain_constructor
@final
@dataclass(frozen=True)
class Typical:
    """Select the most typical example of each cluster of the federation without a label.

    The number of clusters over all sites is the number of labels after this query.  Each cluster is
    labeled at the site with its most typical example.

    The strategy is for the initial labeled set, with ``initial_by=typical``, and for small label
    budgets.  It needs no model.  Typicality is 1 / the mean distance to the ``neighbors`` nearest
    examples of the same cluster at the same site.

    Parameters
    ----------
    neighbors : int
        Number of nearest neighbors.
    least : int
        Minimum number of examples in a bundle.

    Notes
    -----
    *Clusters* (`find_centers`) are those of the unlabeled examples of all sites.  Features are
    those of the global model if there is one, otherwise those of the encoder.  Standard
    initializations of k-means are examples, which the coordinator would see; here clusters are
    split until there are enough.  Sites first combine at least ``least`` examples into bundles, so
    no aggregate is a single example.

    *Assignment of clusters.*  Sites bid for the clusters without a label.  A bid is the typicality
    of the site's best example, in steps of 2 %.  The coordinator determines the highest bid of each
    cluster digit by digit from counts.  It therefore sees how many sites bid, but not which ones.
    A site selects from the clusters that it won up to its label budget, first from those with
    examples at the fewest sites.  The remaining clusters go to the next bidder in another turn.  If
    two sites have the same bid, both label the cluster, and another cluster has no label.

    *Remaining label budget.*  The rest goes to the largest clusters at the site among those with
    the fewest labels over all sites, so the whole label budget is spent.  Examples with non-finite
    features are ranked last.  At a site with more than 10,000 examples, every second, third ...
    example determines the clusters; all of them can be selected.

    *Cost.*  Features are recomputed in three exchanges, because sites do not store them in between.
    With a trained model, each requires one pass over the unlabeled pool; features of an encoder are
    cached on disk.

    Examples
    --------
    >>> import fallow as fl
    >>> near, far = [[0.0, 0.1 * k] for k in range(8)], [[9.0, 0.1 * k] for k in range(8)]
    >>> sites = {"north": fl.Site(near + far), "south": fl.Site(near[:6])}
    >>> selected = fl.select(sites, fl.Typical(neighbors=3), n=1)
    >>> selected["north"] >= 8, selected["south"] < 6  # one row of each cluster
    (array([ True]), array([ True]))
    """

    neighbors: PositiveInt = 20  # K, Eq. 4 of TypiClust
    least: Annotated[int, Limits(ge=2)] = LEAST  # minimum number of examples in a bundle

    contract: ClassVar[Contract] = Contract(
        title="Typical rows of all sites",
        short="Typical",
        regression=True,
        local_dp=False,  # aggregates of features are sent without noise
        missing="stops: clusters are those of the rows of all sites; a resumed run asks again",
        untrained="features",
    )

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        centers = cluster_sites(
            ask,
            budget,
            self.least,
            bundle=self.bundle,
            size=self.size,
            groups=self.groups,
            one_a_label=True,
        ).centers
        outcome = sum_of_all(ask, self.counts, centers=centers)
        bought = sum(budget.values())
        order = order_clusters(
            outcome["rows"], outcome["labels"], outcome["holders"], bought
        )
        # (K,); masked sums are integers up to rounding
        labels = outcome["labels"][order].round()
        ask.keep(self.group, to=label_counts(budget), centers=centers[order])

        # in each turn, the site with the most typical example of a cluster labels it
        winners = torch.empty(0, len(order), dtype=torch.int64)  # (turns, K) highest bids
        taken = torch.zeros_like(labels)  # labels of this query
        for turn in range(TURNS):
            is_open = (labels + taken) == 0
            if turn == 0:  # the largest ones first
                is_open[bought:] = False
            best = self.find_best(ask, winners, is_open)
            winners = torch.cat([winners, best[None]])
            taken = sum_of_all(ask, self.taken, winners=winners)["taken"].round()

        covered = labels + taken
        ask.keep(self.select, to=label_counts(budget), winners=winners, covered=covered)
        notes = {"clusters": len(order), "covered": int((covered > 0).sum())}
        return {**memo, "notes": notes}

    def find_best(self, ask: Ask, winners: Tensor, is_open: Tensor) -> Tensor:
        """Return the highest bid for each open cluster, (K,), digit by digit."""
        prefix = torch.zeros(len(is_open), dtype=torch.int64)
        prefix[~is_open] = NO_BID
        for digit in range(DIGITS):
            total = sum_of_all(
                ask, self.bids, 1.0, winners=winners, prefix=prefix, digit=digit
            )
            bids = total["bids"]  # (K, BASE) number of sites by next digit
            prefix = add_digit(prefix, bids)
        return prefix

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
        "means of five rows or more, and how typical the site's best row of each cluster is",
    )
    def groups(
        self, view: View, centers: Tensor | None = None, planes: Tensor | None = None
    ) -> Values:
        return total_bundles(view.memory["bundle"], centers, planes)

    @client.sum(
        "aggregates of numbers of examples, labels and sites in each cluster",
        returns={
            "rows": Count("clusters", of="rows", is_together=True),
            "labels": Count("clusters", of="labels", is_together=True),
            "holders": Indicator("clusters"),
        },
        takes={"centers": Real((FEW_CLUSTERS, "columns"))},
    )
    def counts(self, view: View, centers: Tensor) -> Values:
        """Count examples and labels nearest to each center, and whether there are any: (K,)."""
        rows = count_nearest(read_shared_features(view), centers)
        labels = count_nearest(read_shared_features(view, "labeled"), centers)
        holders = (rows > 0).double()
        return {"rows": rows, "labels": labels, "holders": holders}

    @stores(centers=Real((FEW_CLUSTERS, "columns")), n=LabelCount())
    def group(self, view: View, centers: Tensor, n: int) -> Values:
        """Assign the examples of the pool to clusters.

        Returns the cluster of each example, (m,), -1 for a non-finite one, its typicality, (m,),
        all examples in descending order of typicality, (m,), and the label budget of the site, ().
        """
        x = read_shared_features(view)
        is_finite = x.isfinite().all(1)
        require_finite(is_finite)
        crowds = rank_in_clusters(
            x,
            is_finite.nonzero().squeeze(1),
            centers,
            neighbors=self.neighbors,
            ties=view.stream("crowds"),
            limit=CROWD,
        )
        cluster = crowds.cluster
        score = crowds.score
        far = crowds.far
        order = shuffle_equal(far, view.stream("ties"))
        # two examples alone in a cluster are equally typical
        order = order[far[order].argsort(stable=True)]
        order = order[score[order].nan_to_num(-1.0).argsort(descending=True, stable=True)]
        return {"cluster": cluster, "score": score, "order": order, "n": torch.tensor(n)}

    @client.sum(
        "aggregates of bids for each cluster, by typicality",
        returns={"bids": Indicator(("clusters", BASE))},
        takes={
            "winners": Real((FEW_TURNS, FEW_CLUSTERS)),
            "prefix": Real(FEW_CLUSTERS),
            "digit": Whole(upto=(DIGITS - 1,)),
        },
        times=DIGITS * TURNS,
    )
    def bids(self, view: View, winners: Tensor, prefix: Tensor, digit: int) -> Values:
        """Return the next digit of each open bid of the site: (K, BASE) of 0 and 1.

        ``prefix``: (K,) first digits of the highest bid.
        """
        own = torch.full((len(prefix),), NO_BID)
        if "group" in view.memory:  # otherwise it has no label budget
            room = int(view.memory["group"]["n"]) - len(self.find_won(view, winners))
            if room > 0:
                own = self.make_bids(view, len(prefix))
        return {"bids": next_digits(own, prefix, digit)}

    @client.sum(
        "aggregates of new labels in each cluster",
        returns={"taken": Indicator("clusters")},
        takes={"winners": Real((FEW_TURNS, FEW_CLUSTERS))},
        times=TURNS,
    )
    def taken(self, view: View, winners: Tensor) -> Values:
        counts = torch.zeros(winners.shape[1], dtype=torch.float64)
        if "group" in view.memory:
            counts[self.find_won(view, winners)] = 1
        return {"taken": counts}

    @selects(winners=Real((FEW_TURNS, FEW_CLUSTERS)), covered=Real("clusters"))
    def select(
        self, view: View, n: int, winners: Tensor, covered: Tensor
    ) -> SelectedExamples:
        """Return the best example of each cluster that the site has won, then others.

        The others are from clusters with few labels.  ``covered``: (K,) labels of each cluster,
        including those of this query.
        """
        kept = view.memory["group"]
        cluster = kept["cluster"]
        score = kept["score"]
        order = kept["order"]
        best = []
        for c in self.find_won(view, winners).tolist():
            rows = order[cluster[order] == c]
            best.append(rows[:1])
        first = torch.cat([torch.empty(0, dtype=torch.int64), *best])[:n]

        check_labels(float(covered.sum()))
        is_left = cluster >= 0
        is_left[first] = False
        left = is_left.nonzero().squeeze(1)
        labels = torch.repeat_interleave(torch.arange(len(covered)), covered.long())
        at = torch.cat([cluster[left], labels])
        rank = torch.empty(len(order))
        # the best example has the highest rank
        rank[order] = torch.arange(len(order)).flip(0).float()
        more = left[cover(at, rank[left], n - len(first))]
        last = (cluster < 0).nonzero().squeeze(1)
        rows = torch.cat([first, more, last])[:n]
        return SelectedExamples(rows, score=score[rows])

    def find_won(self, view: View, winners: Tensor) -> Tensor:
        """Return the clusters that the site labels, in the order in which it won them.

        In each turn, these are the first clusters without a higher bid, up to the label budget.
        """
        kept = view.memory["group"]
        room = int(kept["n"])
        own = self.make_bids(view, winners.shape[1])
        mine: list[int] = []
        for best in winners:  # (K,)
            is_won = (own == best) & (best >= 0)
            new = [c for c in is_won.nonzero().squeeze(1).tolist() if c not in mine]
            mine += new[: room - len(mine)]
        return torch.tensor(mine, dtype=torch.int64)

    def make_bids(self, view: View, clusters: int) -> Tensor:
        """Return the bid of the site for each cluster, (K,); -1 without an example of it.

        A bid is the highest typicality, in steps of a 32nd of an octave, with a random number for
        ties.
        """
        kept = view.memory["group"]
        is_there = kept["cluster"] >= 0
        cluster = kept["cluster"][is_there]
        score = kept["score"][is_there]
        best = torch.full((clusters,), -1.0).scatter_reduce(0, cluster, score, "amax")
        return bids_of(best, view.stream("bids"))


def order_clusters(rows: Tensor, labels: Tensor, holders: Tensor, n: int) -> Tensor:
    """Order clusters by labels, the fewest first, then by size, the largest first.

    All arguments except ``n`` are aggregates (K,).  Among the first ``n`` clusters, those without a
    label are ordered by the number of sites that hold examples of them, the fewest first.  A site
    that alone holds examples of a cluster therefore labels it before others.

    >>> rows = torch.tensor([5.0, 9.0, 7.0, 1.0])
    >>> labels = torch.tensor([0.0, 1.0, 0.0, 0.0])
    >>> order_clusters(rows, labels, holders=torch.tensor([1.0, 3.0, 2.0, 1.0]), n=2)
    tensor([0, 2, 3, 1])
    """
    order = rows.round().argsort(descending=True, stable=True)
    order = order[labels.round()[order].argsort(stable=True)]
    first = order[:n][labels[order[:n]].round() == 0]
    order[: len(first)] = first[holders[first].round().argsort(stable=True)]
    return order
