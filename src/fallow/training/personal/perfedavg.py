"""Per-FedAvg (Fallah, Mokhtari, Ozdaglar, 2020), Algorithm 1 with first-order gradients.

The global model is trained so that one step adapts it to each site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, Fit, FitDeclaration
from fallow.core.limits import PositiveFloat
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import average, contribution, uploads
from fallow.training.personal.base import encode_sites, model


@explain_constructor
@final
@dataclass(frozen=True)
class PerFedAvg(StepTraining):
    """Train a global model that adapts to each site in one step (first-order MAML).

    With two batches B₁ and B₂: u = w - α ∇F(w; B₁), then w <- w - β ∇F(u; B₂), and w is averaged.
    β is the learning rate of the training configuration.  A pair of batches is one step with two
    gradients.

    Parameters
    ----------
    inner : float
        Learning rate of the inner step (α).
    eval_adapt : {"one_epoch", "one_step", "after_local"}
        Adaptation of the global model for deployment: an epoch of SGD with rate α, a single step on
        all examples of the site, or the locally trained model without adaptation.

    Notes
    -----
    A pair consists of two consecutive batches, divided into alternating examples.  The remainder of
    an odd number of batches is divided in the same way, and no example is used twice.  A single
    example is in both batches.  Momentum and weight decay of the training configuration apply to
    the update of w, not to that of u.  The paper adapts by one step.  DPFL's comparison does not
    describe the adaptation, and one step does not explain its results.

    The model that a site adapted is the initial model of the next round, so it is not sent twice to
    the same sites.

    References
    ----------
    Fallah, Mokhtari, Ozdaglar. Personalized Federated Learning with Theoretical Guarantees: A
    Model-Agnostic Meta-Learning Approach. 2020.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(
    ...     federation, training=fl.PerFedAvg(inner=0.1), model="mlp", cycles=0, rounds=5
    ... )
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    inner: PositiveFloat = 0.01  # α
    eval_adapt: Literal["one_epoch", "one_step", "after_local"] = "one_epoch"

    contract: ClassVar[Contract] = Contract(
        title="Per-FedAvg",
        paper="Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic "
        "Meta-Learning Approach",
        year=2020,
        authors="Fallah, Alireza and Mokhtari, Aryan and Ozdaglar, Asuman",
        fit=FitDeclaration(
            {
                "local": Fit(by=lambda training, _: training.pair_configs),
                "common": STORED,
                "adapted": Fit(
                    by=lambda training, requested: training.adapts_by(requested)
                ),
            },
            server=("holders",),
        ),
    )

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        cohort = encode_sites(ask.cohort)
        is_there = ask.round > 0 and torch.equal(state.get("holders", cohort[:0]), cohort)
        from_sent, from_stored = self.pair_configs
        if is_there:
            ask.fit(from_stored, "local")
        else:
            ask.fit(from_sent, "local", None, **model(state))
        total = ask.sum(self.upload)
        state = average(total, state)
        if self.eval_adapt == "after_local":
            return state
        ask.fit(None, "common", None, **model(state))
        ask.fit(self.adaptation(int(total["n"])), "adapted")
        return {**state, "holders": cohort}

    def adaptation(self, rows: int) -> TrainingConfig:
        """Return the training configuration of the adaptation, for at most ``rows`` examples."""
        size = max(rows, 1)  # one step on all examples at once
        if self.eval_adapt == "one_epoch":
            size = self.training_config.examples_per_step
        sgd = Optimizer("sgd", self.inner, momentum=0.0)
        return replace(
            self.training_config,
            stages=(TrainingStage(1),),
            batch_size=size,
            optimizer=sgd,
            schedule=Schedule(),
            start="common",
        )

    @property
    def pair_configs(self) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the training configurations of a round: from the received and the stored model."""
        size = 2 * self.training_config.examples_per_step
        pairs = replace(self.training_config, batch_size=size)
        return pairs, replace(pairs, start="common")

    def adapts_by(self, requested: TrainingConfig) -> tuple[TrainingConfig, ...]:
        """Return the training configurations of the adaptation, on at most as many examples."""
        if self.eval_adapt == "after_local":
            return ()
        return (self.adaptation(requested.examples_per_step),)

    # -- client side --------------------------------------------------------------------------

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        if self.eval_adapt == "after_local":
            return memory.get("local", state)
        return memory.get("adapted", state)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        one, two = pair(b)  # B₁ and B₂
        w = s["w"]
        g, stats = learn.gradient(w, one)
        u = w._replace(w=w.w - self.inner * g, stats=stats)
        g, stats = learn.gradient(u, two)  # first order: the gradient at u updates w
        return {"w": learn.apply(w, g, b.lr)._replace(stats=stats)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


def pair(b: Batch) -> tuple[Batch, Batch]:
    """Divide a batch into alternating examples; without a rest, use the first ones twice.

    In a stack, a site may have a single example and padding: the rest then has weight 0.
    """
    rows = b.weight.shape[-1]
    one = every_other(b, first=0)
    if rows == 1:
        return one, one
    two = every_other(b, first=1)
    again = every_other(b, first=0, end=rows - rows % 2)  # as many examples as in the rest

    is_empty = two.weight.sum(-1, keepdim=True) == 0  # (..., 1)
    # for examples (..., b, *shape)
    one_each = is_empty.shape + (1,) * (b.x.ndim - b.y.ndim)
    x = torch.where(is_empty.view(one_each), again.x, two.x)
    y = torch.where(is_empty, again.y, two.y)
    weight = torch.where(is_empty, again.weight, two.weight)
    return one, two._replace(x=x, y=y, weight=weight)


def every_other(b: Batch, first: int, end: int | None = None) -> Batch:
    """Rows ``first``, ``first + 2``, ... of a batch, before ``end``."""
    dimension = b.weight.ndim - 1  # dimension of the examples
    cut = (slice(None),) * dimension + (slice(first, end, 2),)
    return b._replace(x=b.x[cut], y=b.y[cut], weight=b.weight[cut])
