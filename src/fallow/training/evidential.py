"""Evidential training, the local update of FEAL (Chen et al., 2024): logits as evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import FitDeclaration
from fallow.core.local import Batch, Learner, TrainState, weighted_mean
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.models.scores import alpha, from_uniform
from fallow.training.base import (
    average,
    contribution,
    model_at_site,
    own_statistics,
    uploads,
    with_own_statistics,
)

SIDE = 0.01  # weight of the two regularization terms
ANNEALED = 10  # round of a cycle from which the divergence has full weight


@explain_constructor
@final
@dataclass(frozen=True)
class Evidential(StepTraining):
    """Train with the evidential loss of FEAL.

    The loss is the expected cross-entropy under Dir(α), α = relu(logits) + 1, with larger weights
    for rare classes.  Regularization terms lower the evidence for wrong classes and raise that for
    the true class.

    Parameters
    ----------
    bn : {"average", "local"}
        Average batch-norm statistics, or keep them at the sites (FedBN).

    Notes
    -----
    Class weights follow the class shares of the labels collected so far.  Weights of labels enter
    the mean over examples.  The last term provides a gradient if all logits of an example are below
    0, so that it has no evidence.

    References
    ----------
    Chen, Ma, Cui, Xia. Think Twice Before Selection: Federated Evidential Active Learning for
    Medical Image Analysis with Domain Shifts. 2024.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.Evidential(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="Evidential training (FEAL)",
        paper="Think Twice Before Selection: Federated Evidential Active Learning for Medical "
        "Image Analysis with Domain Shifts",
        year=2024,
        authors="Chen, Jiayi and Ma, Benteng and Cui, Hengfei and Xia, Yong",
        regression=False,
        fit=FitDeclaration(kept=("bn",)),
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view, self.bn)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model_at_site(state, memory)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": with_own_statistics(w, own)}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        counts = b.counts
        shares = counts / counts.sum(-1, keepdim=True)  # (..., C)
        share = shares.gather(-1, b.y)  # share of the class of each example, (..., b)
        annealed = min(1.0, b.round / ANNEALED)

        def objective(forward: Callable[[Tensor], Tensor]) -> Tensor:
            return weighted_mean(loss(forward(b.x), b.y, share, annealed), b.weight)

        return {"w": learn.descend(s["w"], b, objective=objective)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], own_statistics(s["w"], self.bn)


def loss(logits: Tensor, y: Tensor, share: Tensor, annealed: float) -> Tensor:
    """Return the loss of each example.

    logits: (..., b, C); y: (..., b) class ids; share: (..., b) share of the class of each example
    among the labels of the site; annealed: in [0, 1], weight of the divergence -> (..., b)
    """
    a = alpha(logits)  # α of the Dirichlet distribution, (..., b, C)
    label = y.unsqueeze(-1)
    a_label = a.gather(-1, label).squeeze(-1)
    logit_label = logits.gather(-1, label).squeeze(-1)
    strength = a.sum(-1)

    # larger weights for rare classes
    fit = (2 - share) * (strength.digamma() - a_label.digamma())
    wrong = from_uniform(a.scatter(-1, label, 1.0))  # the evidence for other classes
    # the logit instead of α, whose gradient vanishes if the evidence is 0
    right = -logits.shape[-1] / strength.detach() * logit_label
    return fit + SIDE * (annealed * wrong + right)
