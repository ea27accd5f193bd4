"""SCAFFOLD (Karimireddy et al., 2020), Algorithm 1: control variates correct the drift of sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import Indicator, Model, Real, Statistics
from fallow.core.view import View
from fallow.training.base import (
    average,
    contribution,
    model_at_site,
    model_fields,
    own_statistics,
    with_own_statistics,
)


@explain_constructor
@final
@dataclass(frozen=True)
class Scaffold(StepTraining):
    """Correct the gradients of each site by the difference to those of all sites.

    A site steps along g_i(y) - c_i + c, where its control variate c_i is the mean of its gradients
    in its last round, and c is the mean of all c_i.  Local models therefore drift less from each
    other than in `FedAvg` when sites differ.  Each round sends twice the numbers of `FedAvg`.

    Parameters
    ----------
    bn : {"average", "local"}
        Average batch-norm statistics, or keep them at the sites (FedBN).

    Notes
    -----
    c_i is computed by the paper's option II.  It equals the mean of the gradients along the local
    steps, which does not depend on momentum, weight decay or a decreasing learning rate; published
    code divides the change of the model by the number of steps and the learning rate.  Models are
    weighted by labels, as in `FedAvg`, and the server's learning rate is 1.  Control variates start
    at 0, in each cycle unless models are trained further.  The mean of all c_i is over sites with
    labels: their share among the sites of a round times the number of all sites.

    References
    ----------
    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning. 2020.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.Scaffold(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    bn: Literal["average", "local"] = "average"

    contract: ClassVar[Contract] = Contract(
        title="SCAFFOLD",
        paper="SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        year=2020,
        authors="Karimireddy, Sai Praneeth and Kale, Satyen and Mohri, Mehryar and "
        "Reddi, Sashank J. and Stich, Sebastian U. and Suresh, Ananda Theertha",
        fit=FitDeclaration(
            {"local": Fit(by=lambda training, _: (training.local_training_config,))},
            kept=("variate", "change", "bn"),
            server=("variate",),
        ),
    )

    @property
    def local_training_config(self) -> TrainingConfig:
        """Return the training configuration of a round, which starts from a received model."""
        return replace(self.training_config, start="receive")

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        variate = state.get("variate", torch.zeros_like(state["w"]))  # c
        ask.keep(self.receive, w=state["w"], stats=state["stats"])
        # steps receive c as the model ``w_t``, which has no statistics
        c: Values = {"w": variate, "stats": state["stats"][:0]}
        ask.fit(self.local_training_config, "local", None, **c)
        total = ask.sum(self.upload)
        share = total["has_labels"] / len(ask.cohort)
        n_sites = (share * len(ask.channel.sites)).clamp_min(1)
        change = (total["change"] / n_sites).to(variate.dtype)
        return {**average(total, state), "variate": variate + change}

    # -- client side --------------------------------------------------------------------------

    @client.keep("nothing", takes={"w": Model(), "stats": Statistics()})
    def receive(self, view: View, w: Tensor, stats: Tensor) -> Values:
        """Store the global model."""
        return {"w": w, "stats": stats}

    @client.sum(
        "aggregates of numbers of examples and sites, of weighted models and of mean gradients",
        returns=lambda self: {
            **model_fields(self),
            "change": Real("weights"),
            "has_labels": Indicator(),
        },
    )
    def upload(self, view: View) -> Values:
        """Return the weighted model, and the change of the control variate, (d,)."""
        return {
            **contribution(view, self.bn),
            "change": view.memory["own/change"]["w"].double(),
            "has_labels": float(len(view.labels) > 0),
        }

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return model_at_site(state, memory)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        nothing = w._replace(w=torch.zeros_like(w.w), t=torch.zeros_like(w.t))
        return {
            "w": with_own_statistics(w, own),
            "variate": own.get("variate", nothing),
            "sum": nothing,
        }

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        g, stats = learn.gradient(s["w"], b)
        at = learn.apply(s["w"], g - s["variate"].w + w_t.w, b.lr)
        gradients = s["sum"]
        return {
            "w": at._replace(stats=stats),
            "variate": s["variate"],
            "sum": gradients._replace(w=gradients.w + g, t=gradients.t + 1),
        }

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        variate = s["variate"]
        steps = s["sum"].t
        mean = torch.where(steps > 0, s["sum"].w / steps.clamp_min(1), variate.w)
        return s["w"], {
            **own_statistics(s["w"], self.bn),
            "variate": variate._replace(w=mean),
            "change": variate._replace(w=mean - variate.w),
        }
