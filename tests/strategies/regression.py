"""Tiny regression federations, and reference implementations of FALE's computations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor

from fallow.core.ask import Channel
from fallow.core.messages import Delivered, Request
from fallow.core.methods import Methods, Query, TrainingAlgorithm
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.types import SiteId, Values
from fallow.engine import Loop, row_loss
from fallow.models.networks import Linear
from fallow.privacy.settings import Privacy
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies.fale import FALE
from fallow.training import FedAvg
from fallow.training.scaling import Scaling
from fallow.training.server_solve import ServerSolve
from fallow.transport.serialized import SerializingChannel
from tests.simulations import Simulation

EPS = torch.finfo(torch.float64).eps
SIZES = (30, 12, 3, 15)  # of `table`: site c has fewer examples than columns
ANYWHERE, AT_SITES = FALE(), FALE(allot="site")
Rows = Mapping[str, Tensor]


def draws(*shape: int, seed: int = 0, name: str = "rows") -> Tensor:
    return torch.randn(*shape, generator=stream(seed, name), dtype=torch.float64)


def shared(x: Tensor, sizes: Sequence[int]) -> dict[str, Tensor]:
    """Return the examples of sites a, b, c, ..."""
    return dict(zip("abcdefghij", torch.split(x, list(sizes)), strict=False))


def stacked(sites: Rows) -> Tensor:
    return torch.cat([sites[name] for name in sorted(sites)])


def federation(
    sites: Rows,
    strategy: Query | Scaling,
    *,
    seed: int = 0,
    runtime: type[InProcessChannel | SerializingChannel] = InProcessChannel,
    privacy: Privacy | None = None,
    solver: TrainingAlgorithm | None = None,
    bias: bool = True,
) -> Simulation:
    """Return sites without labels, and a linear model of zeros."""
    x = next(iter(sites.values()))
    model = Linear(tuple(x.shape[1:]), 1, bias=bias).to(x.dtype)
    layout, store = Layout.of(model), MemoryStore()
    zero = {
        "w": torch.zeros(layout.d, dtype=x.dtype),
        "stats": torch.zeros(0, dtype=x.dtype),
    }
    methods: Methods = {
        "query": cast(Query, strategy),  # requests of Scaling are also made for the query
        "training": solver or ServerSolve(),
        "plain": FedAvg(),
    }
    parts = RunComponents(
        model, layout, methods, 0, seed, lambda generator: zero, noise="seeded"
    )
    if privacy is not None:
        parts = replace(parts, privacy=privacy)
    members = {name: LocalSite(name, rows, parts, store) for name, rows in sites.items()}
    return Simulation(
        strategy, members, runtime(members, Loop(model, layout, row_loss("regression")))
    )


def bought(simulation: Simulation, targets: Rows) -> Simulation:
    """Label the selected examples, as oracle and ledger do after a query."""
    for name, site in simulation.members.items():
        kept = site.memory.get("selected", {"rows": torch.empty(0, dtype=torch.int64)})
        rows = kept["rows"].tolist()
        weight = kept["weight"].tolist() if "weight" in kept else [1.0] * len(rows)
        chance = (
            kept["probability"].tolist() if "probability" in kept else [None] * len(rows)
        )
        lines = zip(rows, weight, chance, strict=True)
        site.buy([Label(row, float(targets[name][row]), 0, w, p) for row, w, p in lines])
        site.forget()
    return simulation


def labeled(simulation: Simulation, targets: Rows) -> Simulation:
    """Label every example, at weight 1."""
    for name, site in simulation.members.items():
        site.buy([Label(row, y, 0) for row, y in enumerate(targets[name].tolist())])
    return simulation


def solve(simulation: Simulation, solver: TrainingAlgorithm | None = None) -> Tensor:
    """Return (d + 1,) slopes and bias by the federation's training algorithm."""
    site = next(iter(simulation.members.values()))
    method = solver or site.parts.methods["training"]
    state = site.parts.fresh(torch.Generator())
    return method.round(state, simulation.ask("training"))["w"]


@dataclass
class Overheard:
    """Transport that records messages."""

    channel: Channel
    sent: list[tuple[Mapping[str, Request], Mapping[str, Values]]] = field(
        default_factory=list
    )

    @property
    def sites(self) -> tuple[str, ...]:
        return self.channel.sites

    def exchange(
        self,
        requests: Mapping[SiteId, Request],
        routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
    ) -> Delivered:
        done = self.channel.exchange(requests, routes)
        self.sent.append((requests, done.replies))
        return done

    def asked(self, function: str, at: int = -1) -> dict[str, Values]:
        """Return the instructions to each site for a client function."""
        return {
            site: request.steps[-1].args
            for site, request in self._of(function, at)[0].items()
        }

    def answered(self, function: str, at: int = -1) -> dict[str, dict[str, Tensor]]:
        """Return the replies of each site."""
        result = self._of(function, at)[1].items()
        return {s: {k: torch.as_tensor(v) for k, v in a.items()} for s, a in result}

    def _of(
        self, function: str, at: int
    ) -> tuple[Mapping[str, Request], Mapping[str, Values]]:
        of = [
            s for s in self.sent if next(iter(s[0].values())).steps[-1].function == function
        ]
        return of[at]


def overheard(simulation: Simulation) -> tuple[Simulation, Overheard]:
    channel = Overheard(simulation.channel)
    return replace(simulation, channel=channel), channel


def with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)


def svd_leverage(x: Tensor) -> tuple[Tensor, int, float]:
    """Return leverage scores, rank and condition number of the columns at length 1."""
    length = x.norm(dim=0)
    left, size, _ = torch.linalg.svd(
        x / torch.where(length > 0, length, 1.0), full_matrices=False
    )
    rank = int((size > max(x.shape) * EPS * size[0]).sum())
    return left[:, :rank].square().sum(1), rank, float(size[0] / size[rank - 1])


def table(d: int = 5, seed: int = 0) -> dict[str, Tensor]:
    """Return sites with heavy-tailed features, so that scores differ."""
    x = draws(sum(SIZES), d, seed=seed)
    return shared(x / draws(sum(SIZES), 1, seed=seed, name="tail").abs().sqrt(), SIZES)


def picked(
    simulation: Simulation, budget: int | Mapping[str, int]
) -> dict[str, dict[str, Tensor]]:
    simulation.query(budget)
    selected = {
        name: site.memory.get("selected", {}) for name, site in simulation.members.items()
    }
    return {name: kept for name, kept in selected.items() if len(kept.get("rows", ()))}


def scores(sites: dict[str, Tensor]) -> dict[str, Tensor]:
    x = stacked(sites)
    score, _, _ = svd_leverage(with_ones(x - x.mean(0)))
    return shared(score, [len(sites[name]) for name in sorted(sites)])


def equal(a: dict[str, dict[str, Tensor]], b: dict[str, dict[str, Tensor]]) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[name]["rows"], b[name]["rows"])
        and torch.allclose(a[name]["weight"], b[name]["weight"], rtol=1e-9)
        for name in a
    )
