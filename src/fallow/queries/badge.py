"""BADGE (Ash et al., 2020), Algorithm 1: k-means++ on gradients of the last layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, View
from fallow.queries.base import Budget, Memo, check_choices, orders
from fallow.queries.parts import by_gradient


@final
@dataclass(frozen=True)
class BADGE:
    """Rows whose gradient, for the predicted label, is large and unlike the others'.

    Notes
    -----
    Gradients stay in their factors: memory is that of predictions and features.  The first pick is
    the row with the largest gradient, and a pick is never drawn again.  Rows whose gradient is not
    finite come last.
    """

    model: Literal["local", "global"] = "local"

    contract: ClassVar[Contract] = Contract(
        title="BADGE",
        paper="Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds",
        year=2020,
        verbs={"select": "number of picks"},
        needs=("local",),
        draws=True,
    )

    def __post_init__(self) -> None:
        check_choices(self)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep("select", to=orders(budget))
        return memo

    def select(self, view: View, n: int) -> Picks:
        p = view.logits(self.model).double().softmax(1)
        z, ties, draw = view.embed(self.model), view.stream("ties"), view.stream("select")
        return Picks(by_gradient(p, z, n, ties, draw))
