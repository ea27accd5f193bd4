"""The oracle histogram of AHFAL's Finding 3 (Figure 4): sites know the true class shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.values import Count, LabelCount, Share
from fallow.core.view import Release, SelectedExamples, View
from fallow.models.scores import entropy
from fallow.strategies.base import Budget, Memo, label_counts
from fallow.strategies.parts.density import typicality
from fallow.strategies.parts.top import fill, rank_rows


@explain_constructor
@final
@dataclass(frozen=True)
class OracleHistogram:
    """Select labels that move each site towards the true class shares of the federation.

    The strategy is an upper bound for simulations: it uses the true class of every example, which
    no site knows in practice.  Within a class, examples are ranked by a heuristic of the local
    model.  A comparison of ``score="entropy"`` with plain entropy sampling therefore shows the
    value of class balance alone.

    Parameters
    ----------
    score : {"entropy", "typicality", "random"}
        Heuristic that ranks the examples of a class.

    Notes
    -----
    The paper names its second heuristic "typicality" without details.  Here it is the density of
    Hacohen et al. (2022), without clusters.  If a site has too few examples of a class, the other
    missing classes receive its share, in the same proportions.  Examples without a finite score are
    ranked last; ``score="random"`` uses no model.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[0.0], [1.0], [2.0]]
    >>> labeled = ([[3.0], [4.0], [5.0]], [0, 0, 1])
    >>> strategy = fl.OracleHistogram(score="random")
    >>> fl.select(pool, strategy, labeled=labeled, hidden=[0, 1, 0], n=1)
    array([2])
    """

    score: Literal["entropy", "typicality", "random"] = "entropy"

    contract: ClassVar[Contract] = Contract(
        title="Oracle histogram",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        needs=("local",),
        simulator_only=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        total = ask.sum(self.histogram)["counts"].clamp_min(0)
        ask.keep(
            self.select,
            to=label_counts(budget),
            share=total / total.sum().clamp_min(1e-300),
        )
        return memo

    @client.sum(
        "simulation only: aggregates of the true classes of all examples",
        returns={"counts": Count("classes", of="rows", is_together=True, is_released=True)},
        release=True,
    )
    def histogram(self, view: View) -> Release:
        return Release(
            view.counts + count_classes(view.hidden, view.classes), sensitivity=2
        )

    @client.keep(
        "simulation only: number of selected examples, from the true class of every "
        "example",
        takes={"n": LabelCount(), "share": Share("classes")},
    )
    def select(self, view: View, n: int, share: Tensor) -> SelectedExamples:
        score = self.scores(view)
        order = rank_rows(score, view.stream("ties"))
        scored = order[score[order].isfinite()]
        truth = view.hidden[scored]
        lacks = (share * (view.counts.sum() + n) - view.counts).clamp_min(0)
        quota = fill(n, lacks, count_classes(truth, view.classes).long())
        best = [scored[truth == c][:q] for c, q in enumerate(quota.tolist())]
        return SelectedExamples(torch.cat([*best, order[len(scored) :]])[:n])

    def scores(self, view: View) -> Tensor:
        if self.score == "entropy":
            return entropy(view.logits("local"))
        if self.score == "typicality":
            return typicality(view.embed("local"))
        return torch.zeros(view.pool)  # all equal: ties are broken at random


def count_classes(labels: Tensor, classes: int) -> Tensor:
    """Count the examples of each class.  (m,) -> (C,) float64."""
    return torch.bincount(labels, minlength=classes).double()
