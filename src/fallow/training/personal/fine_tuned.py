"""FedAvg and FedProx with one local fine-tuning of the global model, after the last round.

They are FedAvg+FT and FedProx+FT in the comparison of DPFL (Kharrat, Canini, Horvath, 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.client import ClientCall
from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration
from fallow.core.limits import Conflict, NonNegativeFloat
from fallow.core.local import Batch, Learner, Proximal, TrainState
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.training.base import average, contribution, uploads
from fallow.training.personal.base import model

tells_choice = client.keep(
    "number of sites that selected a model by their validation examples"
)
"""Declaration of a client function that returns the result of `best`."""


def _tune_by(training: Any, requested: TrainingConfig) -> tuple[TrainingConfig, ...]:
    return tuning_configs(training.training_config)


def _train_or_tune_by(
    training: Any, requested: TrainingConfig
) -> tuple[TrainingConfig, ...]:
    config: TrainingConfig = training.training_config
    if not training.tune_prox:
        return (config,)
    return (config, *tuning_configs(config))


@explain_constructor
@final
@dataclass(frozen=True)
class FedAvgFT(StepTraining):
    """Run FedAvg, then fine-tune all layers at each site.

    Fine-tuning takes twice as many epochs as a round.  It starts from the global model of the round
    with the best score on the validation examples of the site, or from the last one without
    validation examples.  The site deploys the model of the last epoch.  The additional cost
    corresponds to two rounds.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas. Communication-Efficient Learning of Deep
    Networks from Decentralized Data. 2017.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.FedAvgFT(), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    contract: ClassVar[Contract] = Contract(
        title="FedAvg with fine-tuning",
        short="FedAvg+FT",
        paper="Communication-Efficient Learning of Deep Networks from Decentralized Data",
        year=2017,
        authors="McMahan, H. Brendan and Moore, Eider and "
        "Ramage, Daniel and Hampson, Seth and Agüera y Arcas, Blaise",
        fit=FitDeclaration({"tuned": Fit(by=_tune_by)}),
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    def last(self, state: State, ask: Ask) -> None:
        tune(self.training_config, "tuned", state, ask, self.chosen)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    @tells_choice
    def chosen(self, view: View) -> Values:
        return best(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("tuned", state)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


@explain_constructor
@final
@dataclass(frozen=True)
class FedProxFT(StepTraining):
    """Run FedProx, then fine-tune all layers at each site, as in `FedAvgFT`.

    Parameters
    ----------
    mu : float
        Weight of the proximal term (μ).
    tune_prox : bool
        Keep the proximal term in fine-tuning, towards the model from which it starts.

    Notes
    -----
    DPFL reports FedProx+FT several points below FedAvg+FT and does not describe the fine-tuning.
    ``tune_prox`` shows whether the proximal term explains the difference.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated Optimization in Heterogeneous Networks.
    2020.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.FedProxFT(mu=0.5), model="mlp", cycles=0, rounds=5)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    # μ, λ in DPFL's comparison; FedProx tunes it in {0.001, 0.01, 0.1, 0.5, 1}
    mu: NonNegativeFloat = 0.1
    tune_prox: bool = False

    CONFLICTS = (
        Conflict(
            ("tune_prox", "mu"),
            lambda tune_prox, mu: tune_prox and mu == 0,
            ", so there is no proximal term; set mu above 0 or omit tune_prox",
        ),
    )
    contract: ClassVar[Contract] = Contract(
        title="FedProx with fine-tuning",
        short="FedProx+FT",
        paper="Federated Optimization in Heterogeneous Networks",
        year=2020,
        authors="Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and "
        "Sanjabi, Maziar and Talwalkar, Ameet and Smith, Virginia",
        fit=FitDeclaration({"local": Fit(by=_train_or_tune_by), "tuned": Fit(by=_tune_by)}),
    )

    def round(self, state: State, ask: Ask) -> State:
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    def last(self, state: State, ask: Ask) -> None:
        if not self.tune_prox:
            tune(self.training_config, "tuned", state, ask, self.chosen)
            return
        # the proximal term of `step` is part of the loss
        tune(self.training_config, "local", state, ask, self.chosen)
        ask.keep(self.tuned)

    @uploads
    def upload(self, view: View) -> Values:
        return contribution(view)

    @tells_choice
    def chosen(self, view: View) -> Values:
        return best(view)

    @client.keep("number of sites that tuned", when=lambda self: self.tune_prox)
    def tuned(self, view: View) -> Values:
        return dict(view.memory["local"])

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("tuned", state)

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b, Proximal(self.mu, w_t.w))}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}


def tune(
    training_config: TrainingConfig,
    into: str,
    state: State,
    ask: Ask,
    chosen: ClientCall,
) -> None:
    """Train twice the epochs of a round, from the model selected by validation examples.

    Sites without validation examples start from the last model.
    """
    from_sent, from_best = tuning_configs(training_config)
    if ask.keep(chosen):
        ask.fit(from_best, into)
    else:
        ask.fit(from_sent, into, None, **model(state))


def tuning_configs(
    training_config: TrainingConfig,
) -> tuple[TrainingConfig, TrainingConfig]:
    """Return twice the epochs of a round: from the received model, and from the best one."""
    twice = replace(training_config, stages=training_config.trained_stages * 2)
    return twice, replace(twice, start="best")


def best(view: View) -> Values:
    """Return a flag that the site has the model of its best round."""
    if "best" in view.memory:
        return {"best": True}
    return {}
