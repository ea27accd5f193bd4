"""Uncertainty Herding (Bae et al., 2025), Algorithm 1: coverage of uncertain examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import margin
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.max_coverage import WIDTH, herd
from fallow.strategies.parts.top import ALL_SCORES, require_finite


@explain_constructor
@final
@dataclass(frozen=True)
class UncertaintyHerding:
    """Select as `MaxHerding`, with each example of the pool weighted by its uncertainty.

    Parameters
    ----------
    model : {"local", "global"}
        Model whose features and predictions are used.
    width : float, optional
        Width of the kernel exp(-(distance / width)²).  None: the smallest distance between
        labeled examples, between 0.2 and 1, as the paper adapts it.

    Notes
    -----
    The uncertainty of an example is 1 minus the margin of its prediction.  The paper also calibrates
    the predictions by a temperature; here they are used without calibration.  Each site selects
    independently.

    References
    ----------
    Bae, Oliveira, Sutherland. Uncertainty Herding: One Active Learning Method for All Label
    Budgets. ICLR 2025.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.0, 0.1], [0.1, 1.0], [0.0, 1.0]]
    >>> outputs = [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.5, 0.5]]
    >>> fl.select(pool, fl.UncertaintyHerding(), outputs=outputs, n=1)
    array([2])
    """

    model: Literal["local", "global"] = "local"
    width: Annotated[float, WIDTH] | None = None  # σ

    contract: ClassVar[Contract] = Contract(
        title="Uncertainty Herding",
        paper="Uncertainty Herding: One Active Learning Method for All Label Budgets",
        year=2025,
        authors="Bae, Wonho and Oliveira, Gabriel L. and Sutherland, Danica J.",
        needs=("local",),
        untrained="predictions",
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        uncertainty = margin(view.logits(self.model)).double()
        require_finite(uncertainty.isfinite(), ALL_SCORES)
        return SelectedExamples(herd(view, self.model, uncertainty, self.width, n))
