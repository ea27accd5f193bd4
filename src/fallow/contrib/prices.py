"""Prices of classes: uncertain examples of all sites, balanced over classes.

The coordinator sends a price for each class, sites reply with the number of examples of each class
that they would select at these prices, and the coordinator updates the prices.  This is dual ascent
(Arrow, Hurwicz, Uzawa, 1958) towards equal numbers of labels in every class.  No site sends its own
histogram, and each spends its own label budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.types import Values
from fallow.core.values import Count, LabelCount, Real
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
    stores,
)
from fallow.strategies.parts import margins, top

TURNS = 5  # exchanges in which prices are sent
RATE = 0.5  # initial step of the price of a class without any label


@explain_constructor
@final
@dataclass(frozen=True)
class Prices:
    """Select by 1 - margin + the price of the class that the global model predicts.

    Notes
    -----
    *Target.*  The target is an equal number of labels of each class after the query; classes that
    already exceed it get none.  The deficit of a class, in units of the mean number of labels per
    class, changes its price by 0.5, 0.35, 0.29 ... times that deficit.

    *Choice of prices.*  Five price vectors are tried.  The one at which sites would select the most
    examples of missing classes is used.  The first one is 0, so prices are never worse in this
    respect than no prices.

    *Predicted classes* are those of the global model, which is often wrong about rare classes.  A
    class that is never predicted is not selected.  Examples with non-finite predictions are ranked
    last.

    Examples
    --------
    >>> import fallow as fl
    >>> p = [[0.6, 0.4], [0.7, 0.3], [0.55, 0.45], [0.2, 0.8]]
    >>> labeled = ([[0.0]], [0])
    >>> pool = [[0.0], [0.1], [0.2], [0.3]]
    >>> selected = fl.select(
    ...     pool, fl.contrib.Prices(), outputs=p, labeled=labeled, classes=2, n=1
    ... )
    >>> selected.tolist()  # not the least sure, because the other class has no label
    [3]
    """

    contract: ClassVar[Contract] = Contract(
        title="Prices of classes",
        short="Prices",
        needs=("global",),
        local_dp=False,  # counts of predicted classes are sent without noise
        missing="stops: prices are those of all sites; a resumed run asks again",
    )

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.order, to=label_counts(budget))
        labels = sum_of_all(ask, self.labels)["counts"].clamp_min(0)  # (C,)
        n = sum(budget.values())
        largest_share = float(max(budget.values(), default=0))  # that one site can select
        wanted = even_out(labels, n)
        prices = torch.zeros_like(wanted)
        best = prices
        most_met = -1.0
        for turn in range(TURNS):
            taken = sum_of_all(ask, self.demand, largest_share, prices=prices)["counts"]
            met = float(torch.minimum(taken.round(), wanted).sum())
            if met > most_met:
                best = prices
                most_met = met
            lacking = (wanted - taken) * len(wanted) / max(n, 1)
            prices = prices + RATE / (turn + 1) ** 0.5 * lacking.clamp(-1, 1)
        ask.keep(self.select, to=label_counts(budget), prices=best)
        return {**memo, "notes": {"prices": best.tolist(), "met": most_met}}

    # -- client side --------------------------------------------------------------------------

    @stores(n=LabelCount())
    def order(self, view: View, n: int) -> Values:
        return {"n": torch.tensor(n)}

    @client.sum(
        "aggregates of numbers of labels of each class",
        returns={"counts": Count("classes", of="labels", is_together=True)},
    )
    def labels(self, view: View) -> Values:
        return {"counts": view.counts}

    @client.sum(
        "aggregates of demand for examples of each predicted class",
        returns={"counts": Count("classes", of="rows", is_together=True)},
        takes={"prices": Real("classes")},
        times=TURNS,
    )
    def demand(self, view: View, prices: Tensor) -> Values:
        counts = torch.zeros(len(prices), dtype=torch.float64)
        if "order" in view.memory:  # otherwise it has no label budget
            n = int(view.memory["order"]["n"])
            rows, predicted = take_rows(view, prices, n)
            counts = torch.bincount(predicted[rows], minlength=len(prices)).double()
        return {"counts": counts}

    @selects(prices=Real("classes"))
    def select(self, view: View, n: int, prices: Tensor) -> SelectedExamples:
        rows, _ = take_rows(view, prices, n)
        return SelectedExamples(rows)


def take_rows(view: View, prices: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the ``n`` examples selected at these prices, (n,), and all predicted classes, (m,)."""
    p = view.logits("global").softmax(1).double()
    predicted = p.argmax(1)
    score = 1 - margins(p) + prices[predicted]
    return top(score, n, view.stream("ties")), predicted


def even_out(labels: Tensor, n: int) -> Tensor:
    """Divide ``n`` labels so that the smallest classes have as many as possible: (C,).

    >>> even_out(torch.tensor([5.0, 1.0, 0.0]), 5)
    tensor([0., 2., 3.])
    """
    level = float(labels.min())
    for fewest in labels.sort().values.tolist():  # the level rises from class to class
        is_below = labels <= fewest
        level = float((n + labels[is_below].sum()) / is_below.sum())
        if not bool((~is_below).any()) or level <= float(labels[~is_below].min()):
            break
    return (level - labels).clamp_min(0)
