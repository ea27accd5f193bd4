"""KSAS in public code: a class without labels makes every score NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.types import Value, Values
from fallow.core.values import Count, NonNegative
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.top import top


@final
@dataclass(frozen=True)
class NaNKSAS:
    """KSAS in which log 0 makes a query random, as in public code. For reproduction only.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation,
    ...     "fallow_papers.ahfal.codes:NaNKSAS",
    ...     training="fedavg",
    ...     model="mlp",
    ...     cycles=1,
    ...     rounds=1,
    ... )
    Run(fallow_papers.ahfal.codes:NaNKSAS on iris, seed 0: 2 phases, ... labels, accuracy 0...)

    Notes
    -----
    Differences from `fallow.strategies.KSAS`, which removes a class without labels at the
    site:

    * The adjustment adds log n_c = -inf to both logits; PyTorch's divergence is then 0 ·
      inf, NaN, for every example of the site, and the order of examples is arbitrary.  Here
      it is drawn from a named random stream, so that a run is reproducible.
    * The counts n_c are those of the initial labeled set and never change: if a class is
      missing there, the site stays random for the whole run.

    The notes of each cycle contain the number of such sites, ``nan_sites``.  The server
    side stores the counts, because a site deletes the memory of a cycle.  Unlike in
    `fallow.strategies.KSAS`, it therefore sees every site's counts, and secure aggregation
    is not supported.
    """

    contract: ClassVar[Contract] = Contract(
        title="KSAS (public code)",
        paper="Knowledge-Aware Federated Active Learning with Non-IID Data",
        year=2023,
        authors="Cao, Yu-Tong and Shi, Ye and "
        "Yu, Baosheng and Wang, Jingya and Tao, Dacheng",
        needs=("local", "global"),
        secure_sum=False,
        local_dp=False,
        draws=True,
    )

    # -- server side -------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        if "first" not in memo:
            replies = ask.each(self.first)
            memo = {**memo, "first": {s: list_of(a["counts"]) for s, a in replies.items()}}
        first = memo["first"]
        to = {
            s: {**args, "counts": torch.tensor(first[s])}
            for s, args in label_counts(budget).items()
        }
        ask.keep(self.select, to=to)
        return {**memo, "notes": {"nan_sites": sum(0 in first[site] for site in to)}}

    # -- client side -------------------------------------------------------------------

    @client.each(
        "each site's class counts in the initial labeled set",
        returns={"counts": Count("classes", of="labels", is_together=True)},
    )
    def first(self, view: View) -> Values:
        return {"counts": view.counts}

    @selects(counts=NonNegative("classes"))
    def select(self, view: View, n: int, counts: Tensor) -> SelectedExamples:
        score = discrepancy(view.logits("local"), view.logits("global"), counts)
        if bool((counts == 0).any()):  # all NaN: any order
            score = torch.zeros(view.pool)
        return SelectedExamples(top(score, n, view.stream("ties")))


def discrepancy(local: Tensor, globe: Tensor, counts: Tensor) -> Tensor:
    """Return half the symmetric KL divergence of both predictions adjusted by log n, as in
    PyTorch.

    (m, C), (m, C), (C,) -> (m,); NaN for every example if a count is 0.
    """
    a = (local + counts.log().to(local.dtype)).log_softmax(1)
    b = (globe + counts.log().to(globe.dtype)).log_softmax(1)
    both = kl_div(a, b.exp(), reduction="none") + kl_div(b, a.exp(), reduction="none")
    return both.sum(1) / 2


def list_of(counts: Value) -> list[float]:
    result: list[float] = torch.as_tensor(counts).tolist()
    return result
