"""Core-Set (Sener, Savarese, 2018): greedy k-center in feature space, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

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
from fallow.strategies.parts.kcenter import k_center, pick_by_cover
from fallow.strategies.parts.posterior import LastLayer


@explain_constructor
@final
@dataclass(frozen=True)
class CoreSet:
    """Select examples so that no example is far from a labeled one (greedy k-center).

    Distances are Euclidean distances between features.

    Parameters
    ----------
    model : {"local", "global"}
        Model whose features are used.

    Notes
    -----
    This is the greedy algorithm; the paper's mixed-integer refinement is not implemented.  A site
    without labels starts with the example closest to the mean of its unlabeled pool.  Ties are
    broken at random.  Examples with non-finite features are ranked last.

    For regression, the variant of Holzmüller et al. (2023) is used: a site without labels starts
    with the example of the largest norm.

    References
    ----------
    Sener, Savarese. Active Learning for Convolutional Neural Networks: A Core-Set Approach. 2018.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [0.0, 3.0], [0.1, 3.0]]
    >>> outputs = [[0.5, 0.5]] * 4
    >>> fl.select(pool, fl.CoreSet(), labeled=([[0.0, 0.0]], [0]), outputs=outputs, n=2)
    array([3, 1])
    """

    model: Literal["local", "global"] = "local"

    contract: ClassVar[Contract] = Contract(
        title="Core-Set",
        aliases=("k-center",),
        paper="Active Learning for Convolutional Neural Networks: A Core-Set Approach",
        year=2018,
        authors="Sener, Ozan and Savarese, Silvio",
        needs=("local",),
        regression=True,
        untrained="features",
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        if view.classes:
            return self.pick_for_classes(view, n)
        return self.pick_for_numbers(view, n)

    def pick_for_classes(self, view: View, n: int) -> SelectedExamples:
        anchors = None
        if len(view.labels):
            anchors = view.embed(self.model, "labeled")
        return SelectedExamples(
            pick_by_cover(view.embed(self.model), anchors, n, view.stream("ties"))
        )

    def pick_for_numbers(self, view: View, n: int) -> SelectedExamples:
        rows = LastLayer.of(view, self.model)
        ties = view.stream("ties")
        pool, labeled, start = rows.points(ties)
        return rows.selected(k_center(pool, n, pool.nearest(labeled), start, ties), n)
