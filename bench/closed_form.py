"""Closed-form training: the contribution of a site, leave-one-out predictions, and a cycle.

In a cycle, the products of features, one decomposition, and the product of features and
eigenvectors take 1.0 of 1.5 s.  No exact leave-one-out path omits them.  The reference trains all
sites stacked in about 4 s, so no ratio above 4 is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.linear_model import Ridge
from torch import Tensor

from bench.query_seconds import Nothing
from bench.timing import Entry, Race
from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.methods import Methods, TrainingAlgorithm
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Loop, Stacked, row_loss
from fallow.models import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Random
from fallow.training import ClosedForm, FedAvg
from fallow.training.parts.ridge import (
    PENALTIES,
    LinearHead,
    add_up,
    centered,
    decompose,
    head_of,
    leave_one_out,
    losses,
)

CLASSES = 10
SITES = 10
ROUNDS = 15


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
    parts = RunComponents(
        network, layout, methods, CLASSES, 0, lambda _: fresh, noise="seeded"
    )
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
    """Return FedAvg with the settings of the configuration strategies/mnist."""
    return FedAvg(TrainingConfig((TrainingStage(2),), 16, Optimizer(lr=0.01, momentum=0.9)))


def race_totals(is_quick: bool) -> Race:
    """Race the contribution of a site to one matrix product z'z in float64.

    A target of 0.6 is 60 % of the speed of that product, counted as if both triangles were
    computed.
    """
    rows = features(8192, 1024)
    if is_quick:
        rows = features(300, 24)
    y = torch.nn.functional.one_hot(rows.y, CLASSES).double()
    s = torch.ones(len(y), dtype=torch.float64)
    z = rows.x.double()

    def is_equal() -> bool:
        total = centered(add_up(rows.x, y, s))
        details = z - z.mean(0)
        return torch.allclose(total.a, details.T @ details, rtol=0, atol=1e-8)

    return Race(lambda: z.T @ z, lambda: add_up(rows.x, y, s), is_equal)


def race_left_out(is_quick: bool) -> Race:
    """Race leave-one-out predictions for 13 penalties to one fit with its products."""
    rows = features(8000, 1024)
    if is_quick:
        rows = features(200, 24)
    y = torch.nn.functional.one_hot(rows.y, CLASSES).double()
    s = torch.ones(len(y), dtype=torch.float64)
    total = centered(add_up(rows.x, y, s))
    path = decompose(total)
    size = len(path.z)
    grid = PENALTIES

    def solve() -> LinearHead:
        return head_of(decompose(centered(add_up(rows.x, y, s))), grid[0])

    def leave_out() -> dict[str, Tensor]:
        return losses(path, rows.x, y, s, grid, is_class=True)

    def is_refitted() -> bool:
        """Check the first example's outputs against a classifier fitted without it."""
        refitted = next(leave_one_out(path, rows.x, y, s, [grid[6]])).outputs[0]
        z = rows.x[1:].double()
        mean = z.mean(0)
        shifted = z - mean
        ridge = grid[6] * len(y) * torch.eye(size, dtype=torch.float64)
        weight = torch.linalg.solve(
            shifted.T @ shifted + ridge, shifted.T @ (y[1:] - y[1:].mean(0))
        )
        expected = y[1:].mean(0) + (rows.x[0].double() - mean) @ weight
        return torch.allclose(refitted, expected, rtol=0, atol=1e-9)

    return Race(solve, leave_out, is_refitted)


def race_cycle(is_quick: bool) -> Race:
    """Race a cycle of 1,024 features to a phase of ``strategies/mnist``, all labeled."""
    n = 8000
    size = 1024
    pixels = 784
    rounds = ROUNDS
    if is_quick:
        n = 400
        size = 24
        pixels = 36
        rounds = 1
    rows = features(n, size)
    theirs = phase(features(n, pixels), "mlp", fedavg(), rounds)
    ours = phase(rows, "linear", ClosedForm(), 1)

    def is_ridge() -> bool:
        """Check the weights against scikit-learn's ridge regression on the pooled data."""
        state = ours.train()
        y = torch.nn.functional.one_hot(rows.y, CLASSES).double().numpy()
        alpha = float(state["penalty"]) * n
        fitted = Ridge(alpha=alpha, solver="cholesky").fit(rows.x.double().numpy(), y)
        expected = float(state["temperature"]) * torch.from_numpy(fitted.coef_).flatten()
        ridge = state["w"][: CLASSES * size].double()
        return torch.allclose(ridge, expected, rtol=1e-4, atol=1e-5)

    return Race(theirs.train, ours.train, is_ridge, runs=3)


ENTRIES = (
    Entry(
        "closed-form-totals",
        "torch's z.T @ z in float64, rows converted before",
        bar=0.6,
        compared="centered products: 1e-8",
        prepare=race_totals,
    ),
    Entry(
        "closed-form-left-out",
        "products of the rows, one decomposition and one head of 1,024 features in float64",
        bar=0.5,
        compared="outputs of a row left out with refitting: 1e-9",
        prepare=race_left_out,
    ),
    Entry(
        "closed-form-cycle",
        "FedAvg, 15 rounds of 2 epochs of an MLP on 784 pixels (strategies/mnist), stacked sites",
        bar=2.0,
        compared="weights with scikit-learn's Ridge on all rows: 1e-5 in float32",
        prepare=race_cycle,
    ),
)
