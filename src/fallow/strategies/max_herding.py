"""MaxHerding (Bae, Noh, Sutherland, 2024), Algorithm 1: greedy coverage with a smooth kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

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
from fallow.strategies.parts.max_coverage import WIDTH, herd


@explain_constructor
@final
@dataclass(frozen=True)
class MaxHerding:
    """Select examples with the largest total similarity to the unlabeled pool.

    The strategy is for small label budgets.  The similarity of two examples is a Gaussian kernel
    of the distance between their features, scaled to unit length.

    Parameters
    ----------
    model : {"local", "global"}
        Model whose features are used.
    width : float, optional
        Width of the kernel exp(-(distance / width)²).  None: the smallest distance between
        labeled examples, between 0.2 and 1.

    Notes
    -----
    The paper uses width 1 on self-supervised features.  Sites select independently.

    References
    ----------
    Bae, Noh, Sutherland. Generalized Coverage for More Robust Low-Budget Active Learning. ECCV 2024.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]
    >>> fl.select(pool, fl.MaxHerding(), outputs=[[0.5, 0.5]] * 4, n=2)
    array([2, 3])
    """

    model: Literal["local", "global"] = "local"
    width: Annotated[float, WIDTH] | None = None  # σ

    contract: ClassVar[Contract] = Contract(
        title="MaxHerding",
        paper="Generalized Coverage for More Robust Low-Budget Active Learning",
        year=2024,
        authors="Bae, Wonho and Noh, Junhyug and Sutherland, Danica J.",
        needs=("local",),
        untrained="features",
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        weight = torch.ones(view.pool, dtype=torch.float64)
        return SelectedExamples(herd(view, self.model, weight, self.width, n))
