"""KSAS, the query strategy of KAFAL (Cao et al., 2023): disagreement of two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

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
from fallow.strategies.parts.top import top


@explain_constructor
@final
@dataclass(frozen=True)
class KSAS:
    """Select by the symmetric KL divergence between the local and the global model.

    The predictions are adjusted by the class counts of the site.

    Notes
    -----
    The adjustment adds log n_c to both logits.  A class without labels at the site is removed from
    both predictions, which corresponds to log 0.  With -inf as a logit, every score is NaN and the
    query is random; this happens in the public code if a site lacks a class.

    References
    ----------
    Cao, Shi, Yu, Wang, Tao. Knowledge-Aware Federated Active Learning with Non-IID Data. 2023.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = {
    ...     "local": [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]],
    ...     "global": [[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]],
    ... }
    >>> labeled = ([[0.5], [8.0]], [0, 1])
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> fl.select(pool, fl.KSAS(), labeled=labeled, outputs=outputs, n=1)
    array([0])
    """

    contract: ClassVar[Contract] = Contract(
        title="KSAS (KAFAL)",
        paper="Knowledge-Aware Federated Active Learning with Non-IID Data",
        year=2023,
        authors="Cao, Yu-Tong and Shi, Ye and "
        "Yu, Baosheng and Wang, Jingya and Tao, Dacheng",
        needs=("local", "global"),
        tags=("disagreement",),
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        score = discrepancy(view.logits("local"), view.logits("global"), view.counts)
        return SelectedExamples(top(score, n, view.stream("ties")))


def discrepancy(local: Tensor, globe: Tensor, counts: Tensor) -> Tensor:
    """Return half the symmetric KL divergence of the adjusted predictions.

    Without labels, the adjustment is uniform over all classes.  (n, C), (n, C), (C,) -> (n,).
    """
    is_owned = counts > 0
    if not bool(is_owned.any()):
        is_owned = ~is_owned
        counts = counts + 1
    tilt = counts[is_owned].log().to(local.dtype)
    a = (local[:, is_owned] + tilt).log_softmax(1)
    b = (globe[:, is_owned] + tilt).log_softmax(1)
    return ((a.exp() - b.exp()) * (a - b)).sum(1) / 2
