"""Entropy sampling: each site selects the examples with the largest predictive entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.types import Values
from fallow.core.values import Count, Model, Statistics
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import Over, entropy, score_labels
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    selects,
)
from fallow.strategies.parts.committee import logits
from fallow.strategies.parts.top import top

ModelName = Literal["local", "global", "personal", "collaborators", "average", "better"]


@explain_constructor
@final
@dataclass(frozen=True)
class Entropy:
    """Select the examples with the largest predictive entropy.

    The entropy is H(P) = -sum_c P_c log P_c.

    Parameters
    ----------
    model : str
        Model that provides the prediction.  "local" is the model that the site trained last, before
        averaging; "global" is the model that it deploys.  "personal" is its average with its
        collaborators, for training algorithms that compute one (DPFL), otherwise the deployed
        model.  "collaborators" is that average without the site's own model; a site without
        collaborators uses its own.  "better" is the local or the personal model, whichever is
        correct on more validation examples.  "average" is the mean of the local models of all
        sites, weighted by their numbers of labels; it costs one model up and one down and cannot be
        used with local differential privacy.
    over : {"mean", "max"}
        Combination of the scores of several labels of an example.

    References
    ----------
    Settles. Active Learning Literature Survey. 2009.
    Esuli, Sebastiani. Active Learning Strategies for Multi-Label Text Classification. 2009.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]]
    >>> fl.select([[0.0], [1.0], [2.0]], fl.Entropy(), outputs=outputs, n=1)
    array([1])
    """

    model: ModelName = "local"
    over: Over = "mean"

    contract: ClassVar[Contract] = Contract(
        title="Entropy sampling",
        paper="Active Learning Literature Survey",
        year=2009,
        authors="Settles, Burr",
        needs=("local",),
        untrained="predictions",
        multilabel=True,
        fields_of_task={"over": "multilabel"},
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.model == "average":  # models leave sites, without noise
            contract = Entropy.contract.narrowed(self, local_dp=False)
            object.__setattr__(self, "contract", contract)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        mean: Values = {}
        if self.model == "average":
            total = ask.sum(self.upload)
            mean = {k: total[k] / total["n"].clamp_min(1) for k in ("w", "stats")}
        ask.keep(self.select, to=label_counts(budget), **mean)
        return memo

    @client.sum(
        "aggregates of numbers of examples and of weighted models, for the average only",
        returns={"n": Count(of="labels"), "w": Model(), "stats": Statistics()},
        when=lambda self: self.model == "average",
    )
    def upload(self, view: View) -> Values:
        n = float(len(view.labels))
        own = view.model("local")
        return {"n": n, "w": n * own["w"].double(), "stats": n * own["stats"].double()}

    @selects(w=Model(), stats=Statistics())
    def select(
        self, view: View, n: int, w: Tensor | None = None, stats: Tensor | None = None
    ) -> SelectedExamples:
        if w is None or stats is None:
            outputs = logits(view, self.model)
        else:  # the mean of all sites, computed in float64
            dtype = view.model("local")["w"].dtype
            mean = {"w": w.to(dtype), "stats": stats.to(dtype)}
            outputs = view.forward(mean, view.rows())
        h = score_labels(entropy, outputs, view.n_labels, self.over)
        rows = top(h, n, view.stream("ties"))
        return SelectedExamples(rows, score=h[rows])
