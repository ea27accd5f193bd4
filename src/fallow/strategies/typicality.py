"""TypiClust (Hacohen, Dekel, Weinshall, 2022), Algorithm 1: typical examples of new clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import PositiveInt
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.density import cover, members, typicality
from fallow.strategies.parts.kmeans import cluster_rows
from fallow.strategies.parts.top import rank_rows

MAX_CLUSTERS = 500  # maximum number of clusters, as in the paper


@explain_constructor
@final
@dataclass(frozen=True)
class Typicality:
    """Select the most typical example of each of the largest clusters without a label.

    The number of clusters is the number of labels after this query.  The strategy is for small
    label budgets, for which uncertainty sampling selects outliers.  Typicality is 1 / the mean
    distance to the ``neighbors`` nearest examples of the same cluster.

    Parameters
    ----------
    model : {"local", "global"}
        Model whose features are used.
    neighbors : int
        Number of nearest examples of the same cluster.

    Notes
    -----
    The paper's features come from self-supervised training; here they are those of the site's own
    model.  If every cluster has a label, those with the fewest come first.  The paper ignores
    clusters of fewer than 5 examples; here they come last among clusters with equally many labels,
    so the whole label budget is spent.  Examples with non-finite features are ranked last.

    References
    ----------
    Hacohen, Dekel, Weinshall. Active Learning on a Budget: Opposite Strategies Suit High and Low
    Budgets. 2022.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [1.2, 0.0], [9.0, 9.0]]
    >>> fl.select(pool, fl.Typicality(neighbors=2), outputs=[[0.5, 0.5]] * 4, n=1)
    array([1])
    """

    model: Literal["local", "global"] = "local"
    neighbors: PositiveInt = 20  # K, Eq. 4

    contract: ClassVar[Contract] = Contract(
        title="TypiClust",
        aliases=("typiclust",),
        paper="Active Learning on a Budget: Opposite Strategies Suit High and Low Budgets",
        year=2022,
        authors="Hacohen, Guy and Dekel, Avihu and Weinshall, Daphna",
        needs=("local",),
        draws=True,
        untrained="features",
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        pool = view.embed(self.model)
        is_whole = pool.isfinite().all(1)
        # NaN is ranked last
        level = torch.zeros(len(pool)).masked_fill(~is_whole, torch.nan)
        mixed = rank_rows(level, view.stream("ties"))
        good = mixed[is_whole[mixed]]
        x = torch.cat([pool[good], self.read_labeled(view)])
        k = min(n + len(x) - len(good), MAX_CLUSTERS)
        cluster = cluster_rows(x, k, view.stream("k-means"))
        score = torch.empty(len(x), dtype=x.dtype)
        for rows in members(cluster):
            score[rows] = typicality(x[rows], self.neighbors)
        selected = good[cover(cluster, score[: len(good)], n)]
        return SelectedExamples(torch.cat([selected, mixed[len(good) :]])[:n])

    def read_labeled(self, view: View) -> Tensor:
        """Return the finite features of labeled examples: (l, d)."""
        if not len(view.labels):
            return view.embed(self.model)[:0]
        x = view.embed(self.model, "labeled")
        return x[x.isfinite().all(1)]
