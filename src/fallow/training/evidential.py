"""Evidential training, the local update of FEAL (Chen et al., 2024): logits become evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState, weighted_mean
from fallow.core.step_training import StepTraining
from fallow.core.terms import explain_constructor
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.models.evidence import alpha, from_uniform
from fallow.training.base import (
    addend,
    average,
    class_counts,
    model_at_site,
    own_statistics,
    with_own_statistics,
)

SIDE = 0.01  # weight of the two terms beside the fit
ANNEALED = 10  # rounds of a cycle after which the divergence counts in full


@explain_constructor
@final
@dataclass(frozen=True)
class Evidential(StepTraining):
    """The expected cross-entropy under Dir(α), α = relu(logits) + 1, rare classes first; evidence
    for wrong classes is drawn to 0, and that for the right one up.

    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.Evidential(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)

    Notes
    -----
    The shares of classes that weigh rows are those of the labels bought so far.  Weights of labels
    enter the mean over rows.  The last term keeps a gradient where all logits of a row are below 0
    and its evidence is none.
    """

    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="Evidential training (FEAL)",
        paper="Think Twice Before Selection: Federated Evidential Active Learning for Medical "
        "Image Analysis with Domain Shifts",
        year=2024,
        authors="Chen, Jiayi and Ma, Benteng and Cui, Hengfei and Xia, Yong",
        sum={"upload": "totals over sites of rows and of weighted models"},
        regression=False,
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum("upload"), state)

    def upload(self, view: View) -> Answer:
        return addend(view, "local", self.bn)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model_at_site(state, memory)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": with_own_statistics(w, own)}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        counts = class_counts(b, "evidential")
        shares = counts / counts.sum(-1, keepdim=True)  # (..., C)
        share = shares.gather(-1, b.y)  # of each row's class, (..., b)
        annealed = min(1.0, b.round / ANNEALED)

        def objective(forward: Callable[[Tensor], Tensor]) -> Tensor:
            return weighted_mean(loss(forward(b.x), b.y, share, annealed), b.weight)

        return {"w": learn.descend(s["w"], b, objective=objective)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], own_statistics(s["w"], self.bn)


def loss(logits: Tensor, y: Tensor, share: Tensor, annealed: float) -> Tensor:
    """Loss of each row.  logits: (..., b, C); y: (..., b) class ids; share: (..., b) of each row's
    class among the site's labels; annealed: in [0, 1], how much the divergence counts -> (..., b)
    """
    a = alpha(logits)  # α of the Dirichlet distribution, (..., b, C)
    label = y.unsqueeze(-1)
    a_label = a.gather(-1, label).squeeze(-1)
    logit_label = logits.gather(-1, label).squeeze(-1)
    strength = a.sum(-1)

    fit = (2 - share) * (strength.digamma() - a_label.digamma())  # rare classes count more
    wrong = from_uniform(a.scatter(-1, label, 1.0))  # the evidence for other classes
    # the logit and not α: it has a gradient also where the evidence is cut off at 0
    right = -logits.shape[-1] / strength.detach() * logit_label
    return fit + SIDE * (annealed * wrong + right)
