"""Typical rows of all sites: one label for each cluster of the federation, by totals.

TypiClust (Hacohen, Dekel, Weinshall, 2022) labels the most typical row of each largest cluster that
has no label.  Here the clusters are those of all sites together, and a cluster that several sites
share is labeled once, at the site whose row is the most typical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.contract import Contract
from fallow.core.types import Answer, State
from fallow.core.view import Picks, View
from fallow.strategies.base import Budget, Memo, orders
from fallow.strategies.parts import (
    CROWD,
    DIGITS,
    LEAST,
    NO_BID,
    OFTEN,
    add_digit,
    bids_of,
    check_labels,
    check_turns,
    cluster_sites,
    count_nearest,
    cover,
    next_digits,
    rank_in_clusters,
    read_bundles,
    read_shared_features,
    shuffle_equal,
    tie_bundles,
    total_bundles,
)

TURNS = 3  # in which sites bid for clusters


@final
@dataclass(frozen=True)
class Typical:
    """As many clusters over all sites as there are labels after this query, and one label for each
    that has none yet: its most typical row, at the site that has it.

    For the first labels of a study, with ``initial_by=typical``, and for small budgets: nothing is
    predicted, so no model is needed.  Typicality is 1 / the mean distance to the ``neighbors``
    nearest rows of the same cluster at the same site.

    >>> import fallow as fl
    >>> near, far = [[0.0, 0.1 * k] for k in range(8)], [[9.0, 0.1 * k] for k in range(8)]
    >>> sites = {"north": fl.Site(near + far), "south": fl.Site(near[:6])}
    >>> picks = fl.select(sites, fl.Typical(neighbors=3), n=1)
    >>> picks["north"] >= 8, picks["south"] < 6  # one row of each cluster
    (array([ True]), array([ True]))

    Notes
    -----
    *Clusters* (`find_centers`) are those of the unlabeled rows of all sites, in features that sites
    share: the global model's where there is one, else the rows as an encoder makes them.  The usual
    start of k-means is rows, which the coordinator would see; here clusters are split until there
    are enough of them.  Sites tie ``least`` rows or more into bundles first, so no total is one row.

    *Who labels a cluster.*  Sites bid for the clusters that have no label, with the typicality of
    their best row, in steps of 2 %.  The coordinator finds the highest bid of each cluster digit by
    digit from counts, so it sees how many sites bid and not which.  A site takes as many of the
    clusters that it won as its budget allows, first those that the fewest sites have rows of; what it
    leaves goes to the next bidder in another turn.  Two sites with the same bid both take the
    cluster: one label too many, and another cluster has none.

    *What is left of a budget* goes to clusters that are the largest at the site among those with the
    fewest labels of all sites, so that a budget is always spent.  Rows whose features are not finite
    come last.  Of a site with more than 10,000 rows every second, third ... row makes the clusters;
    all of them can be picked.

    *Passes.*  Features are looked up anew in three exchanges, since nothing so large is kept in
    between: three passes of the pool through a trained model; an encoder's features are on disk.
    """

    neighbors: int = 20  # K, Eq. 4 of TypiClust
    least: int = LEAST  # rows of a bundle

    contract: ClassVar[Contract] = Contract(
        title="Typical rows of all sites",
        short="Typical",
        keep={
            "bundle": "number of tensors kept",
            "group": "number of tensors kept",
            "select": "number of picks",
        },
        sum={
            "size": "totals over sites of rows and labels",
            "groups": "totals over sites of the rows of each cluster, in bundles of several",
            "found": "totals over sites of rows and labels in each cluster, and of who has any",
            "bids": "totals over sites of who has a row of which typicality in each cluster",
            "taken": "totals over sites of labels that each cluster will get",
        },
        regression=True,
        local_dp=False,  # totals of features leave without noise
        missing="stops: clusters are those of the rows of all sites; a resumed run asks again",
        often={"groups": OFTEN, "bids": DIGITS * TURNS, "taken": TURNS},
        parts_show="the coordinator sees the totals of each site's rows by cluster, which are means of "
        "five rows or more, and how typical the site's best row of each cluster is",
    )

    def __post_init__(self) -> None:
        for name, least in (("neighbors", 1), ("least", 2)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"Typical's {name} is {value}; it must be {least} or more")

    # -- server half ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        centers = cluster_sites(ask, budget, self.least, one_a_label=True).centers
        outcome = sum_of_all(ask, "found", centers=centers)
        bought = sum(budget.values())
        order = order_clusters(
            outcome["rows"], outcome["labels"], outcome["holders"], bought
        )
        labels = outcome["labels"][order].round()  # (K,); masked sums are not quite whole
        ask.keep("group", to=orders(budget), centers=centers[order])

        # site by site and turn by turn, who has the most typical row of a cluster labels it
        winners = torch.empty(0, len(order), dtype=torch.int64)  # (turns, K) highest bids
        taken = torch.zeros_like(labels)  # labels to come
        for turn in range(TURNS):
            is_open = (labels + taken) == 0
            if turn == 0:  # the largest ones first
                is_open[bought:] = False
            best = self.find_best(ask, winners, is_open)
            winners = torch.cat([winners, best[None]])
            taken = sum_of_all(ask, "taken", winners=winners)["taken"].round()

        covered = labels + taken
        ask.keep("select", to=orders(budget), winners=winners, covered=covered)
        notes = {"clusters": len(order), "covered": int((covered > 0).sum())}
        return {**memo, "notes": notes}

    def find_best(self, ask: Ask, winners: Tensor, is_open: Tensor) -> Tensor:
        """The highest bid for each open cluster, (K,), from the first digit to the last."""
        prefix = torch.zeros(len(is_open), dtype=torch.int64)
        prefix[~is_open] = NO_BID
        for digit in range(DIGITS):
            total = sum_of_all(
                ask, "bids", 1.0, winners=winners, prefix=prefix, digit=digit
            )
            bids = total["bids"]  # (K, BASE) sites whose bid begins so
            prefix = add_digit(prefix, bids)
        return prefix

    # -- site half --------------------------------------------------------------------------

    def bundle(self, view: View) -> Answer:
        return tie_bundles(view, self.least)

    def size(self, view: View) -> Answer:
        return {"rows": float(view.pool), "labels": float(len(view.labels))}

    def groups(
        self, view: View, centers: Tensor | None = None, planes: Tensor | None = None
    ) -> Answer:
        return total_bundles(read_bundles(view), centers, planes)

    def found(self, view: View, centers: Tensor) -> Answer:
        """Rows and labeled rows whose nearest center each is, and whether there are rows: (K,)."""
        rows = count_nearest(read_shared_features(view), centers)
        labels = count_nearest(read_shared_features(view, "labeled"), centers)
        holders = (rows > 0).double()
        return {"rows": rows, "labels": labels, "holders": holders}

    def group(self, view: View, centers: Tensor, n: int) -> Answer:
        """The cluster of each row of the pool, (m,), -1 for one that is not finite, how typical it
        is of that, (m,), all rows, the most typical first, (m,), and what the site may buy, ()."""
        x = read_shared_features(view)
        good = x.isfinite().all(1).nonzero().squeeze(1)
        if not len(good):
            raise ValueError(
                f"the features of all {len(x)} rows are NaN or infinite: the model has diverged; "
                "lower the learning rate or check the rows"
            )
        crowds = rank_in_clusters(
            x,
            good,
            centers,
            neighbors=self.neighbors,
            ties=view.stream("crowds"),
            most=CROWD,
        )
        cluster = crowds.cluster
        score = crowds.score
        far = crowds.far
        order = shuffle_equal(far, view.stream("ties"))
        order = order[
            far[order].argsort(stable=True)
        ]  # two rows that have only each other are alike
        order = order[score[order].nan_to_num(-1.0).argsort(descending=True, stable=True)]
        return {"cluster": cluster, "score": score, "order": order, "n": torch.tensor(n)}

    def bids(self, view: View, winners: Tensor, prefix: Tensor, digit: int) -> Answer:
        """For each cluster for which the site still bids, the next digit of its bid: (K, BASE) of
        0 and 1.  ``prefix``: (K,) what the highest bid begins with."""
        own = torch.full((len(prefix),), NO_BID)
        if "group" in view.memory:  # else it buys nothing
            room = int(view.memory["group"]["n"]) - len(self.find_won(view, winners))
            if room > 0:
                own = self.make_bids(view, len(prefix))
        return {"bids": next_digits(own, prefix, digit)}

    def taken(self, view: View, winners: Tensor) -> Answer:
        counts = torch.zeros(winners.shape[1], dtype=torch.float64)
        if "group" in view.memory:
            counts[self.find_won(view, winners)] = 1
        return {"taken": counts}

    def select(self, view: View, n: int, winners: Tensor, covered: Tensor) -> Picks:
        """The best row of each cluster that the site has won, then more where few labels are.
        ``covered``: (K,) labels of each cluster, those to come too."""
        kept = self.read_groups(view)
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
        rank[order] = torch.arange(len(order)).flip(0).float()  # the best row has the most
        more = left[cover(at, rank[left], n - len(first))]
        last = (cluster < 0).nonzero().squeeze(1)
        rows = torch.cat([first, more, last])[:n]
        return Picks(rows, score=score[rows])

    def find_won(self, view: View, winners: Tensor) -> Tensor:
        """The clusters that the site takes, in the order in which it won them: in each turn the
        first of those where no other site bid more, as many as it has room for."""
        check_turns(winners, TURNS)
        kept = self.read_groups(view)
        room = int(kept["n"])
        own = self.make_bids(view, winners.shape[1])
        mine: list[int] = []
        for best in winners:  # (K,)
            is_won = (own == best) & (best >= 0)
            new = [c for c in is_won.nonzero().squeeze(1).tolist() if c not in mine]
            mine += new[: room - len(mine)]
        return torch.tensor(mine, dtype=torch.int64)

    def make_bids(self, view: View, clusters: int) -> Tensor:
        """What the site bids for each cluster, (K,): its best typicality in steps of a 32nd of an
        octave, and a number that it draws; -1 where it has no row."""
        kept = self.read_groups(view)
        is_there = kept["cluster"] >= 0
        cluster = kept["cluster"][is_there]
        score = kept["score"][is_there]
        best = torch.full((clusters,), -1.0).scatter_reduce(0, cluster, score, "amax")
        return bids_of(best, view.stream("bids"))

    def read_groups(self, view: View) -> State:
        """What `group` left at the site; raises where the pool is another one by now."""
        kept = view.memory["group"]
        if len(kept["cluster"]) != view.pool:
            raise ValueError(
                f"site {view.site} has grouped {len(kept['cluster'])} rows and has {view.pool} "
                "without a label now: its rows changed during the query; start the query anew"
            )
        return kept


def order_clusters(rows: Tensor, labels: Tensor, holders: Tensor, n: int) -> Tensor:
    """Clusters by their labels, the fewest first, and of as many by their rows, the most first.

    All arguments but ``n`` are (K,) totals.  Of the first ``n`` clusters those without a label are
    ordered by how many sites have rows of them, the fewest first: whoever is the only one to have
    rows of a cluster takes it before others.

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
