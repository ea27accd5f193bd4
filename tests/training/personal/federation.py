"""A small federation with a personalized training algorithm, and its deployed models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from fallow.core.ask import Ask
from fallow.core.build import names
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Loop
from fallow.sites.in_process import InProcessChannel
from fallow.strategies import Random
from fallow.training import FedAvg, personal
from fallow.training.personal import (
    APFL,
    Ditto,
    FedAvgFT,
    FedAvgPost,
    FedProxFT,
    FedRep,
    KNNPer,
    Local,
    PerFedAvg,
    PFedGraph,
)
from tests.laws.test_training_laws import ROWS, sites
from tests.simulations import Forgetful

TRAINING_ANY_MODEL = tuple(
    name
    for name in names(personal)
    # closed-form algorithms fit a linear model
    if not getattr(personal, name).contract.model
)
"""The personalized methods that take local steps, whatever the model."""

CONFIG = TrainingConfig(
    (TrainingStage(2),), 4, Optimizer("sgd", 0.05, momentum=0.9, weight_decay=1e-3)
)
METHODS: tuple[Any, ...] = (
    APFL(CONFIG),
    Ditto(CONFIG),
    FedAvgFT(CONFIG),
    FedAvgPost(CONFIG),
    FedProxFT(CONFIG),
    FedRep(CONFIG),
    KNNPer(CONFIG),
    Local(CONFIG),
    PerFedAvg(CONFIG),
    PFedGraph(CONFIG, lam=0.1),
)


def federation(
    make: Callable[[], nn.Module],
    method: Any,
    rows: Mapping[str, int] = ROWS,
    executor: type = Loop,
) -> InProcessChannel:
    """Return sites with all examples labeled and plain gradient descent as optimizer."""
    channel = sites(make, method, rows, executor)
    for site in channel.members.values():
        methods: Methods = {"query": Random(), "training": method, "plain": FedAvg()}
        site.parts = replace(site.parts, methods=methods)
    return channel


def first_state(make: Callable[[], nn.Module]) -> State:
    """Return the initial model of all sites."""
    return Layout.of(make()).flatten(make())


def rounds(
    channel: InProcessChannel,
    method: Any,
    state: State,
    n: int = 3,
    cohorts: Mapping[int, Sequence[str]] | None = None,
    shown: Disclosure | None = None,
    first: int = 0,
) -> State:
    """Return the state after n rounds; ``cohorts`` gives participants of partial rounds."""
    shown = shown or Disclosure()
    for r in range(first, first + n):
        cohort = tuple((cohorts or {}).get(r, ()))
        ask = Ask(
            channel,
            Forgetful(),
            shown,
            ExchangeKey("train", "round", round=r),
            "training",
            cohort=cohort,
        )
        state = method.round(state, ask)
        ask.flush()
    return state


def run_last(channel: InProcessChannel, method: Any, state: State) -> None:
    """Run what an algorithm does after the last round."""
    ask = Ask(
        channel,
        Forgetful(),
        Disclosure(),
        ExchangeKey("train", "last", round=9),
        "training",
    )
    method.last(state, ask)
    ask.flush()


def deploy_to_sites(
    channel: InProcessChannel, method: Any, state: State
) -> dict[str, State]:
    return {
        name: method.deploy(state, site.memory) for name, site in channel.members.items()
    }


def train_and_deploy(
    make: Callable[[], nn.Module],
    method: Any,
    rows: Mapping[str, int] = ROWS,
    executor: type = Loop,
    n: int = 3,
) -> dict[str, State]:
    """Return the models deployed by the sites after n rounds."""
    channel = federation(make, method, rows, executor)
    state = rounds(channel, method, first_state(make), n)
    if hasattr(method, "last"):
        run_last(channel, method, state)
    return deploy_to_sites(channel, method, state)
