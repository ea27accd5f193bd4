"""Shared parts of the closed-form benchmarks: examples, sites and a training phase."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bench.query_seconds import Nothing
from fallow.core.ask import Ask
from fallow.core.banks import Layout
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods, TrainingAlgorithm
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Loop, Stacked, row_loss
from fallow.models import build_model
from fallow.sites import LocalSite, Parts
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Random
from fallow.training import FedAvg

CLASSES = 10
SITES = 10


@dataclass(frozen=True)
class Rows:
    """Examples x (n, *shape) float32 and class ids y (n,)."""

    x: Tensor
    y: Tensor


def features(n: int, size: int) -> Rows:
    """Return standardized features whose first columns determine the class."""
    draw = stream(0, "bench features")
    y = torch.randint(CLASSES, (n,), generator=draw)
    x = torch.randn(n, size, generator=draw)
    x[torch.arange(n), y] += 1
    return Rows(x, y)


@dataclass(frozen=True)
class Phase:
    """Training phase of ``rounds`` rounds of ``method`` on fully labeled sites."""

    ask: Ask
    method: TrainingAlgorithm
    fresh: State
    rounds: int

    def train(self) -> State:
        state = self.fresh
        for _ in range(self.rounds):
            state = self.method.round(state, self.ask)
            self.ask.flush()
        return state


def phase(
    rows: Rows, model: str, method: TrainingAlgorithm, rounds: int, sites: int = SITES
) -> Phase:
    """Return a training phase on sites of equal size with a global model."""
    shape = tuple(rows.x.shape[1:])
    network = build_model(model, shape, CLASSES, stream(0, "init"))
    layout = Layout.of(network)
    fresh = layout.flatten(network)
    methods: Methods = {"query": Random(), "training": method, "plain": FedAvg()}
    parts = Parts(network, layout, methods, CLASSES, 0, lambda _: fresh, noise="seeded")
    members = {}
    for at, indices in enumerate(torch.arange(len(rows.y)).chunk(sites)):
        name = f"site-{at:04d}"
        site = LocalSite(name, rows.x[indices], parts, MemoryStore())
        labels = rows.y[indices].tolist()
        site.buy([Label(row, float(y), 0) for row, y in enumerate(labels)])
        members[name] = site
    loss = row_loss("classification")
    engine: Loop | Stacked = Loop(network, layout, loss)
    if model == "mlp":
        engine = Stacked(network, layout, loss)
    ask = Ask(
        InProcessChannel(members, engine),
        Nothing(),
        Disclosure(),
        ExchangeKey("train", "round"),
        "training",
    )
    return Phase(ask, method, fresh, rounds)


def fedavg() -> FedAvg:
    """Return FedAvg with the settings of the recipe strategies/mnist."""
    return FedAvg(TrainingConfig((TrainingStage(2),), 16, Optimizer(lr=0.01, momentum=0.9)))
