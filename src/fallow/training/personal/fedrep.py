"""FedRep (Collins et al., 2021), Algorithm 1: a shared body, and a head for every site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import MODEL, Fit, FitDeclaration
from fallow.core.limits import NonNegativeInt
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig, TrainingStage
from fallow.core.types import SiteId, State, Values
from fallow.core.values import Count, Model, Optional, Statistics
from fallow.core.view import View
from fallow.training.base import average
from fallow.training.personal.base import decode_sites, encode_sites


@explain_constructor
@final
@dataclass(frozen=True)
class FedRep(StepTraining):
    """Train a shared body and a separate head for each site.

    In each round, a site receives the shared body, trains its head with the body fixed, then the
    body with the head fixed.  Bodies are averaged.  A site deploys its head on the body that it has
    just trained.  The head is the last linear layer of the model.

    Parameters
    ----------
    head_epochs : int, optional
        Number of epochs of the head.  None: two thirds of the epochs, at least one, as in the
        experiments of the paper (5 epochs: 3 and 2).
    body_epochs : int, optional
        Number of epochs of the body.  None: the remaining epochs, at least one.

    Notes
    -----
    Sites are weighted by their numbers of labels in the average, as in all algorithms here; in the
    paper, sites have equal sizes.  All heads start from the same values: a site receives a head
    with the first body, and only then.  Batch-norm statistics are averaged with the bodies.

    References
    ----------
    Collins, Hassani, Mokhtari, Shakkottai. Exploiting Shared Representations for Personalized
    Federated Learning. 2021.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.FedRep(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    head_epochs: NonNegativeInt | None = None  # τ_h
    body_epochs: NonNegativeInt | None = None  # τ_b

    contract: ClassVar[Contract] = Contract(
        title="FedRep",
        paper="Exploiting Shared Representations for Personalized Federated Learning",
        year=2021,
        authors="Collins, Liam and Hassani, Hamed and "
        "Mokhtari, Aryan and Shakkottai, Sanjay",
        fit=FitDeclaration(
            {"local": Fit(by=lambda training, _: (training.local_training_config,))},
            sent={**MODEL, "body": Model("body")},
            kept=("w",),
            server=("begun",),
        ),
    )

    @property
    def local_training_config(self) -> TrainingConfig:
        """Return the training configuration of a round: epochs of the head, then of the body.

        >>> [
        ...     (s.epochs, s.part)
        ...     for s in FedRep(
        ...         TrainingConfig((TrainingStage(5),))
        ...     ).local_training_config.stages
        ... ]
        [(3, 'head'), (2, 'body')]
        """
        tau = self.training_config.epochs
        head = self.head_epochs
        if head is None:
            head = max(1, round(2 * tau / 3))
        body = self.body_epochs
        if body is None:
            body = max(1, tau - head)
        parts = (TrainingStage(head, "head"), TrainingStage(body, "body"))
        return replace(self.training_config, stages=parts, start="receive")

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        old_sites = decode_sites(state.get("begun"))
        common: Values = {name: state[name] for name in ("body", "stats") if name in state}
        first: Values = {**common, "w": state["w"]}  # a new site also needs a head
        to: dict[SiteId, Values] = {}
        for site in ask.cohort:
            to[site] = first
            if site in old_sites:
                to[site] = common

        ask.keep(self.receive, to)
        ask.fit(self.local_training_config, "local")
        state = average(ask.sum(self.upload), state, ("body", "stats"))
        return {**state, "begun": encode_sites(old_sites | set(ask.cohort))}

    # -- client side --------------------------------------------------------------------------

    @client.keep(
        "number of sites that took the common body",
        takes={
            "stats": Statistics(),
            "body": Optional(Model("body")),
            "w": Optional(Model()),
        },
    )
    def receive(
        self, view: View, stats: Tensor, body: Tensor | None = None, w: Tensor | None = None
    ) -> Values:
        """Return the model of the site, initially ``w`` (d,), with the shared body."""
        if w is None:
            w = view.memory["own/w"]["w"]
        whole = w.clone()
        if body is not None:
            whole[view.layout.part("body")] = body
        return {"w": whole, "stats": stats}

    @client.sum(
        "aggregates of numbers of examples and of weighted bodies",
        returns={"n": Count(of="labels"), "body": Model("body"), "stats": Statistics()},
    )
    def upload(self, view: View) -> Values:
        n = float(len(view.labels))
        own = view.memory["local"]
        body = own["w"][view.layout.part("body")]
        return {"n": n, "body": n * body.double(), "stats": n * own["stats"].double()}

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("local", state)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {"w": s["w"]}
