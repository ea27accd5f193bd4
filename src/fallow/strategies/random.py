"""Random sampling: each site selects examples uniformly from its unlabeled pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)


@explain_constructor
@final
@dataclass(frozen=True)
class Random:
    """Select examples uniformly without replacement.

    Random sampling is the baseline of every comparison, and the default first query.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.select([[0.0], [1.0], [2.0]], fl.Random(), n=3).shape
    (3,)
    """

    contract: ClassVar[Contract] = Contract(
        title="Random sampling",
        paper="-",
        year=0,
        draws=True,
        untrained="features",
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        # The initial labels and the first query share a cycle, so the cycle does not identify a draw.
        draw = view.stream(f"select after {len(view.labels)} labels")
        return SelectedExamples(torch.randperm(view.pool, generator=draw)[:n])
