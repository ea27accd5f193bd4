"""A federation whose sites choose collaborators, with counts of models sent and held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import Delivered, Request
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Loop, row_loss
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Random
from fallow.training import FedAvg
from fallow.training.personal import DPFL
from fallow.transport.serialized import SerializingChannel
from tests.engine.jobs import CLASSES, linear
from tests.simulations import Forgetful

NAMES = "abcdefghijklmnopqrstuvwxyz"
ROWS = (8, 6, 12, 5, 9)
N = len(ROWS)
CONFIG = TrainingConfig((TrainingStage(2),), 4, Optimizer("sgd", 0.05, momentum=0.9))


@dataclass
class ProgressWatcher:
    """Counts the models received by each site, and the most peer models held."""

    inner: InProcessChannel | SerializingChannel
    received: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    routes: list[dict[str, list[str]]] = field(default_factory=list)

    @property
    def sites(self) -> tuple[str, ...]:
        return self.inner.sites

    def exchange(
        self,
        requests: Mapping[str, Request],
        routes: Mapping[str, Sequence[str]] | None = None,
    ) -> Delivered:
        values = self.inner.exchange(requests, routes)
        for to, senders in (routes or {}).items():
            self.received[to] = self.received.get(to, 0) + len(senders)
        if routes is not None:
            self.routes.append({to: list(senders) for to, senders in routes.items()})
        for name, site in self.inner.members.items():
            models = sum(kept.startswith("model/") for kept in site.memory)
            self.highest[name] = max(self.highest.get(name, 0), models)
        return values


@dataclass
class Federation:
    """Sites with training and validation labels, and the state of their algorithm."""

    method: Any
    watch: ProgressWatcher
    start: State
    state: State
    shown: Disclosure = field(default_factory=Disclosure)
    history: list[State] = field(default_factory=list)

    @property
    def members(self) -> dict[str, LocalSite]:
        return self.watch.inner.members

    def rounds(self, *numbers: int) -> Federation:
        for r in numbers:
            key = ExchangeKey("train", "round", round=r)
            disclosures = self.method.contract.disclosures
            ask = Ask(
                self.watch, Forgetful(), self.shown, key, "training", reveals=disclosures
            )
            self.state = self.method.round(self.state, ask)
            ask.flush()
            self.history.append(self.state)
        return self

    def stack_models(self, name: str) -> Tensor:
        """Return a model that every site keeps, (N, d)."""
        return torch.stack([self.members[s].memory[name]["w"] for s in self.watch.sites])

    @property
    def labels(self) -> Tensor:
        return torch.tensor(
            [len(self.members[s].labels) for s in self.watch.sites]
        ).double()


def federation(
    method: Any,
    rows: Sequence[int] = ROWS,
    make: Callable[[], nn.Module] = linear,
    shape: tuple[int, ...] = (6,),
    labels_of_site: int | Sequence[int] = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    flipped: Sequence[int] = (),
    runtime: type[InProcessChannel | SerializingChannel] = InProcessChannel,
) -> Federation:
    """Return sites of learnable examples.

    Site i has ``rows[i]`` training labels and ``labels_of_site`` validation labels, or
    ``labels_of_site[i]``. Labels of ``flipped`` sites are mirrored.
    """
    model = make().to(dtype)
    layout = Layout.of(model)
    store = MemoryStore()
    members = {}
    first = layout.flatten(model)
    methods: Methods = {"query": Random(), "training": method, "plain": FedAvg()}
    parts = RunComponents(model, layout, methods, CLASSES, seed, lambda generator: first)
    center = 2 * torch.randn(CLASSES, *shape, generator=stream(4, "class means"))
    spare = (
        [labels_of_site] * len(rows) if isinstance(labels_of_site, int) else labels_of_site
    )
    for i, (n, v) in enumerate(zip(rows, spare, strict=True)):
        draw = stream(seed, "rows", NAMES[i])
        y = torch.randint(0, CLASSES, (n + v,), generator=draw)
        x = center[y] + torch.randn(n + v, *shape, generator=draw)
        y = CLASSES - 1 - y if i in flipped else y
        members[NAMES[i]] = LocalSite(NAMES[i], x.to(dtype), parts, store)
        members[NAMES[i]].buy(
            [
                Label(row, float(c), cycle=0, is_validation=row >= n)
                for row, c in enumerate(y)
            ]
        )
    engine = Loop(model, layout, row_loss("classification"))
    return Federation(method, ProgressWatcher(runtime(members, engine)), first, first)


def dpfl(**fields: Any) -> DPFL:
    return DPFL(**{"training_config": CONFIG, **fields})


def ran(rounds: int, simulation: dict[str, Any] | None = None, **fields: Any) -> Federation:
    """Run rounds of DPFL with these fields, by default with two epochs per round."""
    return federation(dpfl(**fields), **(simulation or {})).rounds(*range(rounds))


def share_from(graph: torch.Tensor, marked: torch.Tensor) -> float:
    """Return the share of links from ``marked`` sites (N,) bool.

    The share is the mean over the other sites with links; NaN if none has any.
    """
    rows = graph[~marked].double()
    rows = rows[rows.sum(1) > 0]
    return float((rows[:, marked].sum(1) / rows.sum(1)).mean())
