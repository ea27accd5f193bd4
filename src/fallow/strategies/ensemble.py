"""EnsLogit and EnsRank (baselines of Kim et al., 2023): a combination of both models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.view import Rows, SelectedExamples, View
from fallow.models.scores import SCORES
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    selects,
)
from fallow.strategies.parts.kcenter import pick_by_cover
from fallow.strategies.parts.kmeans import pick_by_gradient
from fallow.strategies.parts.top import top

BOTH = ("local", "global")
OFFSET = 20  # an example of rank r, from 1, scores 1 / (20 + r)


@explain_constructor
@final
@dataclass(frozen=True)
class Ensemble:
    """Combine the local and the global model by the mean of predictions or of ranks.

    With ``by="logits"``, the rule uses the mean of both softmax outputs and of both models'
    features.  With ``by="rank"``, each model ranks the n examples that it would select.  The score
    of an example is the sum of 1 / (20 + rank) over both rankings, and the n highest scores are
    selected.  Ties are ordered by the local model's rank.

    Parameters
    ----------
    rule : str
        Rule by which examples are selected.
    by : {"logits", "rank"}
        Whether to combine predictions or ranks.

    Notes
    -----
    The paper combines ranks for entropy and BADGE only; here every rule has an order of selection,
    so all five can be used.  The BADGE gradient is that of the mean prediction and the mean
    features, because a mean of two gradients has no such factors.  Ranks start at 1, which the
    paper leaves open.  Examples that either model cannot predict are ranked last.

    References
    ----------
    Kim, Bae, Song, Yun. Re-thinking Federated Active Learning based on Inter-class Diversity. 2023.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = {
    ...     "local": [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]],
    ...     "global": [[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]],
    ... }
    >>> labeled = ([[0.5], [8.0]], [0, 1])
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> fl.select(pool, fl.Ensemble(rule="entropy"), labeled=labeled, outputs=outputs, n=1)
    array([1])
    """

    rule: Literal["entropy", "margin", "least_confidence", "badge", "core_set"] = "entropy"
    by: Literal["logits", "rank"] = "logits"

    contract: ClassVar[Contract] = Contract(
        title="Ensemble (EnsLogit, EnsRank)",
        paper="Re-thinking Federated Active Learning based on Inter-class Diversity",
        year=2023,
        authors="Kim, SangMook and Bae, Sangmin and Song, Hwanjun and Yun, Se-Young",
        needs=BOTH,
        local_source="scratch",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rule == "badge":
            object.__setattr__(
                self, "contract", Ensemble.contract.narrowed(self, draws=True)
            )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        if self.by == "logits":
            return SelectedExamples(self.order(view, BOTH, n))
        of_each = [self.order(view, (model,), n) for model in BOTH]
        return SelectedExamples(fuse_ranks(of_each)[:n])

    def order(self, view: View, models: Sequence[str], n: int) -> Tensor:
        """Return the n examples that ``models`` select together, in order of selection."""
        is_lost = ~probabilities(view, BOTH).isfinite().all(1, keepdim=True)
        p = probabilities(view, models).masked_fill(is_lost, torch.nan)
        ties = view.stream(f"ties of {'+'.join(models)}")
        if self.rule in SCORES:
            return top(SCORES[self.rule](p.log()), n, ties)
        z = features(view, models).masked_fill(is_lost, torch.nan)
        if self.rule == "badge":
            return pick_by_gradient(
                p, z, n, ties, view.stream(f"select by {'+'.join(models)}")
            )
        anchors = None
        if len(view.labels):
            anchors = features(view, models, "labeled")
        return pick_by_cover(z, anchors, n, ties)


def probabilities(view: View, models: Sequence[str]) -> Tensor:
    """Return the mean of the models' softmax outputs: (m, C) float64."""
    of_each = [view.logits(model).double().softmax(1) for model in models]
    return torch.stack(of_each).mean(0)


def features(view: View, models: Sequence[str], which: Rows = "pool") -> Tensor:
    """Return the mean of the models' features: (m, d)."""
    return torch.stack([view.embed(model, which) for model in models]).mean(0)


def fuse_ranks(lists: Sequence[Tensor]) -> Tensor:
    """Return all examples of the lists by the sum of 1 / (20 + rank) over the lists.

    Ties are ordered by the first list.

    Here example 2 scores 1/21 + 1/22, example 1 scores 1/21 and example 0 scores 1/22:

    >>> fuse_ranks([torch.tensor([2, 0]), torch.tensor([1, 2])])
    tensor([2, 1, 0])
    """
    worth: dict[int, float] = {}
    for rows in lists:
        for rank, row in enumerate(rows.tolist(), start=1):
            worth[row] = worth.get(row, 0.0) + 1 / (OFFSET + rank)
    return torch.tensor(sorted(worth, key=lambda row: -worth[row]), dtype=torch.int64)
