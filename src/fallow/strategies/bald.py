"""BALD (Houlsby et al., 2011) with dropout at query time (Gal, Islam, Ghahramani, 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

import torch
from torch import Generator, Tensor
from torch.nn.functional import linear

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import Limits
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    selects,
)
from fallow.strategies.parts.top import top

DROPPED = 0.5  # share of features dropped if the model has no dropout layer


PASSES = Limits(ge=2, advice=", since a single pass has no disagreement")


@explain_constructor
@final
@dataclass(frozen=True)
class BALD:
    """Select examples on which the members of a committee are certain and disagree.

    The score is the mutual information H(mean P) - mean H(P).  The committee consists of ``passes``
    forward passes with dropout through one model, or, with ``ensemble``, of the local and the
    global model.  An ensemble draws nothing and ignores ``model``.

    Parameters
    ----------
    model : {"local", "global"}
        Model with dropout; ignored with ``ensemble``.
    passes : int
        Number of forward passes with dropout.
    ensemble : bool
        Whether the committee consists of the local and the global model.

    Notes
    -----
    Without dropout, all passes are equal and the score is 0.  A model without dropout layers
    therefore gets dropout of half its features before the last layer, at query time only.  Batch
    norm stays in evaluation mode: in training mode, scores would depend on the batch and running
    statistics would change.  At a site without labels, the ensemble contains the global model
    twice, so examples are selected at random.

    References
    ----------
    Gal, Islam, Ghahramani. Deep Bayesian Active Learning with Image Data. 2017.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = {
    ...     "local": [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]],
    ...     "global": [[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]],
    ... }
    >>> labeled = ([[0.5], [8.0]], [0, 1])
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> fl.select(pool, fl.BALD(ensemble=True), labeled=labeled, outputs=outputs, n=1)
    array([0])
    """

    model: Literal["local", "global"] = "local"
    passes: Annotated[int, PASSES] = 10  # T
    ensemble: bool = False

    contract: ClassVar[Contract] = Contract(
        title="BALD",
        paper="Deep Bayesian Active Learning with Image Data",
        year=2017,
        authors="Gal, Yarin and Islam, Riashat and Ghahramani, Zoubin",
        needs=("local",),
        draws=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        refuse_unused(self, "model", "passes", switch="ensemble", used_with=(False,))
        if self.ensemble:
            contract = BALD.contract.narrowed(self, needs=("local", "global"), draws=False)
            object.__setattr__(self, "contract", contract)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        return SelectedExamples(
            top(information(self.committee(view)), n, view.stream("ties"))
        )

    def committee(self, view: View) -> Iterator[Tensor]:
        """Return the logits of each member: (m, C)."""
        if self.ensemble:
            return (view.logits(model) for model in ("local", "global"))
        state = view.model(self.model)
        draw = view.stream("dropout")
        if view.draws:
            rows = view.rows()
            return (view.forward(state, rows, draw) for _ in range(self.passes))
        z = view.embed(self.model)  # (m, d)
        layers = view.layout.views(state["w"])
        w = layers["head.weight"]
        bias = layers.get("head.bias")
        return (linear(drop_features(z, draw), w, bias) for _ in range(self.passes))


def drop_features(z: Tensor, generator: Generator) -> Tensor:
    """Apply dropout to each feature of z (m, d); the mean is preserved."""
    kept = torch.rand(z.shape, generator=generator, dtype=z.dtype) >= DROPPED
    return z * kept / (1 - DROPPED)


def information(logits: Iterable[Tensor]) -> Tensor:
    """Return the mutual information H(mean P) - mean H(P), in nats.  (m, C) each -> (m,).

    >>> sure, unsure = torch.tensor([[200.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    >>> information([sure, sure.flip(1)]), information([unsure, unsure])
    (tensor([0.6931], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    members = [member.double().softmax(1) for member in logits]
    p = torch.stack(members)  # (T, m, C)
    of_mean: Tensor = torch.special.entr(p.mean(0)).sum(1)  # (m,)
    of_each: Tensor = torch.special.entr(p).sum(2)  # (T, m)
    return of_mean - of_each.mean(0)
