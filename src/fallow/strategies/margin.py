"""Margin sampling: each site selects examples with the smallest gap of the two largest P."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import Over, margin, score_labels
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.top import top


@explain_constructor
@final
@dataclass(frozen=True)
class Margin:
    """Select the examples with the smallest gap between the two largest probabilities.

    The prediction is that of the site's local or of the global model.

    Parameters
    ----------
    model : {"local", "global"}
        Model that predicts.
    over : {"mean", "max"}
        Combination of the scores of several labels of an example.

    References
    ----------
    Scheffer, Decomain, Wrobel. Active Hidden Markov Models. 2001.
    Esuli, Sebastiani. Active Learning Strategies for Multi-Label Text Classification. 2009.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]]
    >>> fl.select([[0.0], [1.0], [2.0]], fl.Margin(), outputs=outputs, n=1)
    array([1])
    """

    model: Literal["local", "global"] = "local"
    over: Over = "mean"

    contract: ClassVar[Contract] = Contract(
        title="Margin sampling",
        paper="Active Hidden Markov Models",
        year=2001,
        authors="Scheffer, Tobias and Decomain, Christian and Wrobel, Stefan",
        needs=("local",),
        untrained="predictions",
        multilabel=True,
        fields_of_task={"over": "multilabel"},
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        score = score_labels(margin, view.logits(self.model), view.n_labels, self.over)
        rows = top(score, n, view.stream("ties"))
        return SelectedExamples(rows, score=score[rows])
