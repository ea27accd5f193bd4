"""Entropy sampling: each site labels the rows with the largest H(P) = -sum_c P_c log P_c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, View
from fallow.models.scores import entropy
from fallow.queries.base import Budget, Memo, check_choices, orders
from fallow.queries.parts import top


@final
@dataclass(frozen=True)
class Entropy:
    """Shannon entropy of the prediction, by the site's local or the global model."""

    model: Literal["local", "global"] = "local"

    contract: ClassVar[Contract] = Contract(
        title="Entropy sampling",
        paper="Settles, Active Learning Literature Survey",
        year=2009,
        verbs={"select": "number of picks"},
        needs=("local",),
    )

    def __post_init__(self) -> None:
        check_choices(self)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep("select", to=orders(budget))
        return memo

    def select(self, view: View, n: int) -> Picks:
        return Picks(top(entropy(view.logits(self.model)), n, view.stream("ties")))
