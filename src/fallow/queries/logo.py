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
from fallow.queries.parts import ranked


@final
@dataclass(frozen=True)
class LoGo:
    """k-means on the local model's gradients; of each cluster the row most uncertain globally.

    The paper trains the local model from scratch: ``local_source = "scratch"`` in the recipe.

    Notes
    -----
    Where k-means leaves clusters empty, the others give their next most uncertain rows in turn.
    """

    contract: ClassVar[Contract] = Contract(
        title="LoGo",
        paper="Re-thinking Federated Active Learning based on Inter-class Diversity",
        year=2023,
        verbs={"select": "number of picks"},
        needs=("local", "global"),
        draws=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep("select", to=orders(budget))
        return memo

    def select(self, view: View, n: int) -> Picks:
        sure = view.logits("local").softmax(1).amax(1)
        reduced = view.embed("local") * (1 - sure)[:, None]  # macro step: block of the argmax class
        cluster = clusters(reduced, min(n, view.pool), view.stream("k-means"))
        order = ranked(entropy(view.logits("global")), view.stream("ties"))  # micro step
        return Picks(in_turn(cluster[order], order)[:n])


def clusters(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k-means (k-means++ start, one run): the cluster of each row.  x: (m, d) -> (m,) int64."""
    from sklearn.cluster import KMeans

    k = min(k, len(torch.unique(x, dim=0)))  # equal rows cannot be told apart
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    found = KMeans(k, n_init=1, random_state=seed).fit_predict(x.numpy())
    return torch.from_numpy(found).long()


def in_turn(cluster: Tensor, rows: Tensor) -> Tensor:
    """Rows in rounds: first the best of each cluster, then the second best, and so on.

    cluster: (m,) cluster of each of ``rows`` (m,), which come best first.
    """
    rank = torch.empty_like(cluster)
    for c in torch.unique(cluster):
        inside = cluster == c
        rank[inside] = torch.arange(int(inside.sum()))
    order = (rank * (int(cluster.max()) + 1) + cluster).argsort()
    return rows[order]
