"""The oracle histogram of AHFAL's Finding 3 (Figure 4): sites are told what is true everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, Release, View
from fallow.models.scores import entropy
from fallow.strategies.base import Budget, Memo, check_choices, orders
from fallow.strategies.parts import fill, rank_rows, typicality


@final
@dataclass(frozen=True)
class OracleHistogram:
    """Each site buys what its labels lack to the true class shares of the whole federation.

    An upper bound for simulations: it reads the true class of every row, which no real site knows.
    Inside a class it takes what a plain heuristic of the local model likes best, so that
    ``score="entropy"`` beside plain entropy sampling shows what balance alone is worth.

    >>> import fallow as fl
    >>> pool = [[0.0], [1.0], [2.0]]
    >>> labeled = ([[3.0], [4.0], [5.0]], [0, 0, 1])
    >>> strategy = fl.OracleHistogram(score="random")
    >>> fl.select(pool, strategy, labeled=labeled, hidden=[0, 1, 0], n=1)
    array([2])

    Notes
    -----
    The paper names its second heuristic "typicality" and says no more.  Here it is the density of
    Hacohen et al. (2022), without their clusters.  A class that a site has too few rows of leaves
    its share to the other lacking classes, in the same proportions.  Rows without a finite score
    come last; ``score="random"`` looks at no model.
    """

    score: Literal["entropy", "typicality", "random"] = "entropy"

    contract: ClassVar[Contract] = Contract(
        title="Oracle histogram",
        paper="Federated Active Learning via Class-Adaptive Local-Global Balancing",
        year=2025,
        authors="Anonymous",
        sum={
            "histogram": "simulation only: totals over sites of the true classes of all rows"
        },
        keep={
            "select": "simulation only: number of picks, made with the true class of every row"
        },
        needs=("local",),
        simulator_only=True,
    )

    def __post_init__(self) -> None:
        check_choices(self)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        total = ask.sum("histogram")["counts"].clamp_min(0)
        ask.keep("select", to=orders(budget), share=total / total.sum().clamp_min(1e-300))
        return memo

    def histogram(self, view: View) -> Release:
        return Release(
            view.counts + count_classes(view.hidden, view.classes), sensitivity=2
        )

    def select(self, view: View, n: int, share: Tensor) -> Picks:
        score = self.scores(view)
        order = rank_rows(score, view.stream("ties"))
        scored = order[score[order].isfinite()]
        truth = view.hidden[scored]
        lacks = (share * (view.counts.sum() + n) - view.counts).clamp_min(0)
        quota = fill(n, lacks, count_classes(truth, view.classes).long())
        best = [scored[truth == c][:q] for c, q in enumerate(quota.tolist())]
        return Picks(torch.cat([*best, order[len(scored) :]])[:n])

    def scores(self, view: View) -> Tensor:
        if self.score == "entropy":
            return entropy(view.logits("local"))
        if self.score == "typicality":
            return typicality(view.embed("local"))
        return torch.zeros(view.pool)  # all equal: ties are broken at random


def count_classes(labels: Tensor, classes: int) -> Tensor:
    """Rows of each class.  (m,) -> (C,) float64."""
    return torch.bincount(labels, minlength=classes).double()
