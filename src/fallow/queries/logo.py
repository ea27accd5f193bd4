"""LoGo (Kim et al., 2023): diversity by the local model, then uncertainty by the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, View
from fallow.models.scores import entropy
from fallow.queries.base import Budget, Memo, orders
from fallow.queries.parts import clusters, ranked


@final
@dataclass(frozen=True)
class LoGo:
    """k-means on the local model's gradients; of each cluster the row most uncertain globally.

    The local model is one that the site trains from scratch, unless the recipe says otherwise.

    Notes
    -----
    Where k-means leaves clusters empty, the others give their next most uncertain rows in turn.
    Rows whose prediction or feature is not finite come last.
    """

    contract: ClassVar[Contract] = Contract(
        title="LoGo",
        paper="Re-thinking Federated Active Learning based on Inter-class Diversity",
        year=2023,
        verbs={"select": "number of picks"},
        needs=("local", "global"),
        local_source="scratch",
        draws=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep("select", to=orders(budget))
        return memo

    def select(self, view: View, n: int) -> Picks:
        sure = view.logits("local").double().softmax(1).amax(1)
        reduced = view.embed("local") * (1 - sure)[:, None]  # macro step: block of the argmax class
        h = entropy(view.logits("global"))  # micro step
        h = h.masked_fill(~reduced.isfinite().all(1), torch.nan)
        order = ranked(h, view.stream("ties"))
        scored = order[h[order].isfinite()]
        if n >= len(scored):
            return Picks(order[:n])
        return Picks(in_turn(clusters(reduced[scored], n, view.stream("k-means")), scored)[:n])


def in_turn(cluster: Tensor, rows: Tensor) -> Tensor:
    """Rows in rounds: first the best of each cluster, then the second best, and so on.

    cluster: (m,) cluster of each of ``rows`` (m,), which come best first.
    """
    by_cluster, sizes = cluster.argsort(stable=True), torch.bincount(cluster)
    rank = torch.cat([torch.arange(size) for size in sizes.tolist()])
    return rows[by_cluster[rank.argsort(stable=True)]]
