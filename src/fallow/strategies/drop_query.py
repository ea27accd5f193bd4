"""DropQuery (Gupte et al., 2024), Algorithm 1: examples with unstable predictions, spread out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import Limits, PositiveInt
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.density import members
from fallow.strategies.parts.kmeans import cluster_rows
from fallow.strategies.parts.top import rank_rows


@explain_constructor
@final
@dataclass(frozen=True)
class DropQuery:
    """Select examples whose predicted class changes under dropout, one per cluster.

    Candidates are the examples of which more than half of ``passes`` predictions differ from the
    prediction without dropout.  K-means divides them into as many clusters as there are labels to
    obtain, and the example closest to each center is selected.

    Parameters
    ----------
    model : {"local", "global"}
        Model that predicts.
    rate : float
        Share of input features that are set to 0.
    passes : int
        Number of predictions with dropout.

    Notes
    -----
    The strategy is for a linear classifier on features of a frozen encoder, such as
    `ClosedForm`. With another network, features of the example itself are dropped.  If
    there are fewer candidates than requested labels, the examples with the most changed
    predictions follow, with ties in random order.  Sites select independently.

    Features that are kept are not divided by 1 - ``rate``, as in scikit-activeml.  The public code
    of the paper scales features to unit length before k-means; here they keep their length.
    Examples with non-finite features or predictions are ranked last.

    References
    ----------
    Gupte, Aklilu, Nirschl, Yeung-Levy. Revisiting Active Learning in the Era of Vision Foundation
    Models. TMLR 2024.

    Examples
    --------
    >>> import fallow as fl
    >>> import torch
    >>> pool = torch.eye(4)
    >>> fl.select(pool, fl.DropQuery(), model=torch.nn.Linear(4, 2), n=2).shape
    (2,)
    """

    model: Literal["local", "global"] = "local"
    rate: Annotated[float, Limits(gt=0, lt=1)] = 0.75  # ρ
    passes: PositiveInt = 3  # M

    contract: ClassVar[Contract] = Contract(
        title="DropQuery",
        paper="Revisiting Active Learning in the Era of Vision Foundation Models",
        year=2024,
        authors="Gupte, Sanket Rajan and Aklilu, Josiah and Nirschl, Jeffrey J. and "
        "Yeung-Levy, Serena",
        needs=("local",),
        draws=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        changed = self.count_changes(view)
        features = view.embed(self.model)
        is_finite = features.isfinite().all(1) & view.logits(self.model).isfinite().all(1)
        changed = changed.masked_fill(~is_finite, torch.nan)  # NaN comes last
        ranked = rank_rows(changed, view.stream("ties"))
        candidates = int((changed > self.passes / 2).sum())
        if candidates <= n:
            return SelectedExamples(ranked[:n])
        rows = ranked[:candidates]
        return SelectedExamples(
            rows[_nearest_to_centers(features[rows], n, view.stream("k-means"))]
        )

    def count_changes(self, view: View) -> Tensor:
        """Return the number of predictions with dropout that differ from the one without,
        (m,) float64.
        """
        state = view.model(self.model)
        generator = view.stream("dropout")
        usual = view.logits(self.model).argmax(1)
        changed = torch.zeros(view.pool, dtype=torch.float64)
        first = 0
        for block in view.blocks():
            places = slice(first, first + len(block))
            for _ in range(self.passes):
                kept = torch.rand(block.shape, generator=generator) >= self.rate
                outputs = view.forward(state, block * kept)
                changed[places] += outputs.argmax(1) != usual[places]
            first += len(block)
        return changed


def _nearest_to_centers(x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Return the example closest to the mean of each of ``n`` clusters, then the next
    closest, (n,).
    """
    cluster = cluster_rows(x, n, generator)
    x = x.double()
    # In single precision: two examples alone in a cluster are equally far from its center, and
    # rounding must not rank them.
    distance = torch.empty(len(x), dtype=torch.float32)
    rank = torch.empty(len(x), dtype=torch.int64)
    for rows in members(cluster):
        distance[rows] = (x[rows] - x[rows].mean(0)).norm(dim=1).float()
        order = distance[rows].argsort(stable=True)
        rank[rows[order]] = torch.arange(len(rows))
    # Duplicates give fewer clusters: then the second closest follow.
    by_distance = distance.argsort(stable=True)
    return by_distance[rank[by_distance].argsort(stable=True)][:n]
