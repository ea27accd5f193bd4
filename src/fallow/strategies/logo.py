"""LoGo (Kim et al., 2023): diversity by the local model, uncertainty by the global model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import entropy
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.kmeans import cluster_rows
from fallow.strategies.parts.posterior import SIGMA, LastLayer, Reduction
from fallow.strategies.parts.top import rank_rows


@explain_constructor
@final
@dataclass(frozen=True)
class LoGo:
    """Cluster by the local model, and select the example most uncertain globally.

    K-means clusters the gradients of the local model; from each cluster, the example with the
    largest uncertainty under the global model is selected.  The local model is trained from scratch
    at the site, unless the experiment configuration overrides this.

    Notes
    -----
    If k-means leaves clusters empty, the other clusters provide their next most uncertain examples
    in turn.  Examples with a non-finite prediction or feature are ranked last.

    For regression (Tang et al., 2025, who do not specify the details), k-means uses the features of
    the local model.  Uncertainty is the decrease by one greedy step of BAIT with the features of
    the global model.  Empty clusters are replaced by the most uncertain examples.

    References
    ----------
    Kim, Bae, Song, Yun. Re-thinking Federated Active Learning based on Inter-class Diversity. 2023.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = {
    ...     "local": [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]],
    ...     "global": [[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]],
    ... }
    >>> labeled = ([[0.5], [8.0]], [0, 1])
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> fl.select(pool, fl.LoGo(), labeled=labeled, outputs=outputs, n=1)
    array([1])
    """

    contract: ClassVar[Contract] = Contract(
        title="LoGo",
        paper="Re-thinking Federated Active Learning based on Inter-class Diversity",
        year=2023,
        authors="Kim, SangMook and Bae, Sangmin and Song, Hwanjun and Yun, Se-Young",
        needs=("local", "global"),
        local_source="scratch",
        draws=True,
        regression=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        if view.classes:
            x, h = score_for_classes(view)
        else:
            x, h = score_for_numbers(view)
        h = h.masked_fill(~x.isfinite().all(1), torch.nan)
        order = rank_rows(h, view.stream("ties"))
        scored = order[h[order].isfinite()]
        if n >= len(scored):
            return SelectedExamples(order[:n])
        cluster = cluster_rows(x[scored], n, view.stream("k-means"))
        if view.classes:
            return SelectedExamples(take_in_turn(cluster, scored)[:n])
        return SelectedExamples(fill_empty_clusters(cluster, scored)[:n])


def score_for_classes(view: View) -> tuple[Tensor, Tensor]:
    """Return gradients of the local model, (m, d), and uncertainty of the global one, (m,)."""
    sure = view.logits("local").double().softmax(1).amax(1)  # (m,)
    # the block of the most likely class
    gradients = view.embed("local") * (1 - sure)[:, None]
    return gradients, entropy(view.logits("global"))


def score_for_numbers(view: View) -> tuple[Tensor, Tensor]:
    """Return the same for regression."""
    rows = LastLayer.of(view, "global")
    score = torch.full((view.pool,), torch.nan, dtype=torch.float64)
    score[rows.rows[: len(rows.pool)]] = Reduction.of(rows, SIGMA).gain()
    return view.embed("local"), score


def take_in_turn(cluster: Tensor, rows: Tensor) -> Tensor:
    """Order examples in rounds: the best of each cluster, then the second best, and so on.

    cluster: (m,) cluster of each of ``rows`` (m,), which are sorted with the best first.
    """
    by_cluster = cluster.argsort(stable=True)
    sizes = torch.bincount(cluster)
    rank = torch.cat([torch.arange(size) for size in sizes.tolist()])
    return rows[by_cluster[rank.argsort(stable=True)]]


def fill_empty_clusters(cluster: Tensor, rows: Tensor) -> Tensor:
    """Return the best example of each cluster, then all others; shapes as in `take_in_turn`."""
    at = torch.arange(len(rows))
    first = torch.full_like(at, len(rows)).scatter_reduce(0, cluster, at, "amin")
    return rows[(first[cluster] != at).long().argsort(stable=True)]
