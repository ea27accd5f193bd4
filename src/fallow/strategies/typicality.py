"""TypiClust (Hacohen, Dekel, Weinshall, 2022), Algorithm 1: typical rows of uncovered clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, View
from fallow.strategies.base import Budget, Memo, check_choices, orders
from fallow.strategies.parts import cluster_rows, cover, members, rank_rows, typicality

MOST = 500  # clusters, as in the paper


@final
@dataclass(frozen=True)
class Typicality:
    """As many clusters as labels after this query; the most typical row of each largest cluster
    that has no label yet.  For small budgets, where uncertainty picks outliers.

    Typicality is 1 / the mean distance to the ``neighbors`` nearest rows of the same cluster.

    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [1.2, 0.0], [9.0, 9.0]]
    >>> fl.select(pool, fl.Typicality(neighbors=2), outputs=[[0.5, 0.5]] * 4, n=1)
    array([1])

    Notes
    -----
    The paper's features come from self-supervised training; here they are those of the site's own
    model, as they are.  Where every cluster has a label, those with the fewest come first.
    The paper leaves out clusters of fewer than 5 rows; here they come last among their likes, so
    that a budget is always spent.  Rows whose features are not finite come last.
    """

    model: Literal["local", "global"] = "local"
    neighbors: int = 20  # K, Eq. 4

    contract: ClassVar[Contract] = Contract(
        title="TypiClust",
        aliases=("typiclust",),
        paper="Active Learning on a Budget: Opposite Strategies Suit High and Low Budgets",
        year=2022,
        authors="Hacohen, Guy and Dekel, Avihu and Weinshall, Daphna",
        keep={"select": "number of picks"},
        needs=("local",),
        draws=True,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        if self.neighbors < 1:
            raise ValueError(
                f"Typicality has {self.neighbors} neighbors; it needs at least one"
            )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep("select", to=orders(budget))
        return memo

    def select(self, view: View, n: int) -> Picks:
        pool = view.embed(self.model)
        is_whole = pool.isfinite().all(1)
        level = torch.zeros(len(pool)).masked_fill(~is_whole, torch.nan)  # NaN comes last
        mixed = rank_rows(level, view.stream("ties"))
        good = mixed[is_whole[mixed]]
        x = torch.cat([pool[good], self.read_labeled(view)])
        k = min(n + len(x) - len(good), MOST)
        cluster = cluster_rows(x, k, view.stream("k-means"))
        score = torch.empty(len(x), dtype=x.dtype)
        for rows in members(cluster):
            score[rows] = typicality(x[rows], self.neighbors)
        picks = good[cover(cluster, score[: len(good)], n)]
        return Picks(torch.cat([picks, mixed[len(good) :]])[:n])

    def read_labeled(self, view: View) -> Tensor:
        """Features of the labeled rows that have finite ones: (l, d)."""
        if not len(view.labels):
            return view.embed(self.model)[:0]
        x = view.embed(self.model, "labeled")
        return x[x.isfinite().all(1)]
