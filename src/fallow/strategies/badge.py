"""BADGE (Ash et al., 2020), Algorithm 1: k-means++ on gradients of the last layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

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
from fallow.strategies.parts.kcenter import FeatureVectors
from fallow.strategies.parts.kmeans import k_means_pp, pick_by_gradient
from fallow.strategies.parts.posterior import SIGMA, LastLayer, Sigma


@explain_constructor
@final
@dataclass(frozen=True)
class BADGE:
    """Select examples with large and diverse gradients of the last layer.

    The gradient is that of the loss for the predicted label.  Examples are drawn with k-means++.

    Parameters
    ----------
    model : {"local", "global"}
        Model that provides predictions and features.
    sigma : float
        Standard deviation of the label noise, for regression.

    Notes
    -----
    Gradients are stored as their two factors, so memory is that of predictions and features.  The
    first selected example has the largest gradient, and no example is drawn twice.  Examples with a
    non-finite gradient are ranked last.

    For regression, the gradient at the predicted value is 0.  The variant of Holzmüller et al.
    (2023) is used instead: distances are measured under the posterior of the last layer, given the
    labeled examples and noise ``sigma``, and the first example is drawn uniformly.

    References
    ----------
    Ash, Zhang, Krishnamurthy, Langford, Agarwal. Deep Batch Active Learning by Diverse, Uncertain
    Gradient Lower Bounds. 2020.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]]
    >>> fl.select([[0.0], [1.0], [2.0]], fl.BADGE(), outputs=outputs, n=1)
    array([2])
    """

    model: Literal["local", "global"] = "local"
    sigma: Sigma = SIGMA  # σ, for regression only

    contract: ClassVar[Contract] = Contract(
        title="BADGE",
        paper="Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds",
        year=2020,
        authors="Ash, Jordan T. and Zhang, Chicheng and "
        "Krishnamurthy, Akshay and Langford, John and Agarwal, Alekh",
        needs=("local",),
        draws=True,
        regression=True,
        fields_of_task={"sigma": "regression"},
        untrained="predictions",
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
        p = view.logits(self.model).double().softmax(1)
        z = view.embed(self.model)
        ties = view.stream("ties")
        draw = view.stream("select")
        return SelectedExamples(pick_by_gradient(p, z, n, ties, draw))

    def pick_for_numbers(self, view: View, n: int) -> SelectedExamples:
        rows = LastLayer.of(view, self.model).posterior(self.sigma)
        draw = view.stream("select")
        first = int(torch.randint(len(rows.pool), (1,), generator=view.stream("first")))
        return rows.selected(k_means_pp(FeatureVectors.of(rows.pool), n, draw, first), n)
