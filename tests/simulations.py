"""A tiny in-memory federation in which tests set the predictions of every model.

An example contains its own predictions: the first C features are the logits of the local
model and the next C those of the global one. Both models are linear and read out their
half. Query strategies thus run with real sites, views, random streams and messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fallow.core.ask import Ask, Channel
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import ExchangeEntry, StateName
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.engine import Loop, row_loss
from fallow.models.networks import Linear
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.training import FedAvg
from fallow.transport.serialized import SerializingChannel

PLAIN = "closed-form:unlabeled=off"
"""Training of tests that are not about self-training, which would make them slower."""


@dataclass(frozen=True)
class Table:
    """One site: logits of its pool by both models, and its labels.

    ``local`` and ``common`` (global model) are (m, C), and ``labels`` are class ids.
    Labeled examples follow the pool, so that a pool position is a row of these tables. The
    hidden class of an example is the prediction of the global model.
    """

    local: Tensor
    common: Tensor
    labels: Sequence[int] = ()

    def rows(self, at: Tensor) -> Table:
        """Return the same site with its pool in the order ``at``."""
        return replace(self, local=self.local[at], common=self.common[at])

    def hidden(self) -> Tensor:
        """Return the true class of every example, pool first."""
        truth = self.common.nan_to_num().argmax(1)
        return torch.cat([truth, torch.tensor(self.labels, dtype=torch.int64)])

    def plus(self, constant: float) -> Table:
        """Return the same site with ``constant`` added to every logit."""
        return replace(self, local=self.local + constant, common=self.common + constant)


Tables = Mapping[str, Table]


def tables(
    seed: int = 0, sites: int = 3, rows: int = 12, classes: int = 3, labels: int = 8
) -> dict[str, Table]:
    """Return random sites without ties; label shares differ most in the lowest classes."""
    made = {}
    for name in "abcdefghijkl"[:sites]:
        draw = stream(seed, "table", name)
        local, common = (
            2 * torch.randn(rows, classes, generator=draw, dtype=torch.float64)
            for _ in range(2)
        )
        skew = torch.rand(classes, generator=draw, dtype=torch.float64) ** 3 + 0.01
        bought = torch.multinomial(skew, labels, replacement=True, generator=draw)
        made[name] = Table(local, common, bought.tolist())
    return made


class Forgetful:
    """Event log that stores nothing, so each exchange is sent."""

    def transaction(
        self, replaces: Collection[StateName] = ()
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def recall(self, key: ExchangeKey, digest: str) -> None:
        return None

    def record(self, key: ExchangeKey, digest: str, entry: ExchangeEntry) -> None:
        return None


@dataclass(frozen=True)
class Simulation:
    """Sites with both models, and a query strategy whose client functions they run."""

    strategy: Any
    members: dict[str, LocalSite]
    channel: Channel
    # messages sent by the sites so far
    shown: Disclosure = field(default_factory=Disclosure)

    def ask(self, owner: str = "query", cycle: int = 0) -> Ask:
        parts = next(iter(self.members.values())).parts
        disclosures = parts.asked[owner].contract.disclosures
        key = ExchangeKey("train", "round", cycle=cycle)
        if owner == "query":
            key = ExchangeKey("query", "query", cycle=cycle)
        return Ask(
            self.channel, Forgetful(), self.shown, key, owner, cycle, reveals=disclosures
        )

    def query(self, budget: int | Mapping[str, int], cycle: int = 0) -> dict[str, Any]:
        """Run the strategy once with one budget, or one per site; return the memo."""
        shares = dict.fromkeys(self.members, budget) if isinstance(budget, int) else budget
        memo: dict[str, Any] = self.strategy.query(self.ask(cycle=cycle), shares, {})
        return memo

    def selected(
        self, budget: int | Mapping[str, int], cycle: int = 0
    ) -> dict[str, list[int]]:
        """Return the selected examples of each site in order, without empty selections."""
        self.query(budget, cycle)
        kept = {name: site.memory.get("selected") for name, site in self.members.items()}
        return {
            name: selected["rows"].tolist()
            for name, selected in kept.items()
            if selected is not None
        }

    def buy(
        self, selected: Mapping[str, Sequence[int]], label: int, cycle: int = 0
    ) -> None:
        """End a cycle: every selected example gets the same ``label``."""
        for name, rows in selected.items():
            self.members[name].buy([Label(row, label, cycle) for row in rows])
            self.members[name].forget(keep=("local", "global"))


def simulation(
    sites: Tables,
    strategy: Any,
    seed: int = 0,
    runtime: type[InProcessChannel | SerializingChannel] = InProcessChannel,
) -> Simulation:
    """Return a federation of ``sites`` that runs ``strategy``, in float64."""
    classes = next(iter(sites.values())).local.shape[1]
    model = Linear((2 * classes,), classes).to(torch.float64)
    layout = Layout.of(model)
    methods: Methods = {"query": strategy, "training": FedAvg(), "plain": FedAvg()}
    fresh = _read_out(model, layout, 0, classes)
    hidden = {name: table.hidden() for name, table in sites.items()}
    parts = RunComponents(
        model,
        layout,
        methods,
        classes,
        seed,
        lambda generator: fresh,
        hidden=hidden,
        noise="seeded",
    )
    store, members = MemoryStore(), {}
    for name, table in sites.items():
        pool = torch.cat([table.local, table.common], 1)  # (m, 2C)
        draw = stream(0, "labeled rows", name)
        shape = (len(table.labels), 2 * classes)
        labeled = torch.randn(shape, generator=draw, dtype=torch.float64)
        site = LocalSite(name, torch.cat([pool, labeled]), parts, store)
        site.buy([Label(len(pool) + i, y, cycle=-1) for i, y in enumerate(table.labels)])
        site.remember("local", _read_out(model, layout, 0, classes))
        site.remember("global", _read_out(model, layout, classes, classes))
        members[name] = site
    engine = Loop(model, layout, row_loss("classification"))
    return Simulation(strategy, members, runtime(members, engine))


def _read_out(model: Linear, layout: Layout, first: int, classes: int) -> State:
    """Return the linear model whose logits are features ``first``, ``first + 1``, ..."""
    weight = torch.zeros(classes, 2 * classes, dtype=torch.float64)
    weight[:, first : first + classes] = torch.eye(classes, dtype=torch.float64)
    with torch.no_grad():
        model.head.weight.copy_(weight)
        model.head.bias.zero_()
    return layout.flatten(model)
