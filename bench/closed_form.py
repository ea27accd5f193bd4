"""Closed-form training: the contribution of a site, leave-one-out predictions, and a cycle.

In a cycle, the products of features, one decomposition, and the product of features and
eigenvectors take 1.0 of 1.5 s.  No exact leave-one-out path omits them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import Ridge, RidgeCV
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
from fallow.engine import Loop, row_loss
from fallow.engine.stacked import Stacked
from fallow.models import build_model
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Random
from fallow.strategies.parts.kmeans import in_one_thread
from fallow.training import BoostedTrees, ClosedForm, FedAvg
from fallow.training.parts.ridge import (
    MOST_AWAY,
    PENALTIES,
    TEMPERATURES,
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
    rows: Rows,
    model: str,
    method: TrainingAlgorithm,
    rounds: int,
    sites: int = SITES,
    **fields: int,
) -> Phase:
    """Return a training phase on sites of equal size with a global model of these fields."""
    shape = tuple(rows.x.shape[1:])
    network = build_model(model, shape, CLASSES, stream(0, "init"), **fields)
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


def race_many_classes(is_quick: bool) -> Race:
    """Race losses of 1,000 classes, all penalties and temperatures, to torch's log_softmax."""
    n, size, classes = (40, 6, 70) if is_quick else (400, 512, 1000)
    draw = stream(0, "bench classes")
    truth = torch.randint(classes, (n,), generator=draw)
    z = torch.randn(n, size, generator=draw)
    z += torch.randn(classes, size, generator=draw)[truth]
    y = torch.nn.functional.one_hot(truth, classes).double()
    s = torch.ones(n, dtype=torch.float64)
    path = decompose(centered(add_up(z, y, s)))
    results: dict[str, Tensor] = {}

    def theirs() -> None:
        log = torch.empty(len(PENALTIES), len(TEMPERATURES), dtype=torch.float64)
        for at, penalty in enumerate(PENALTIES):
            (block,) = leave_one_out(path, z, y, s, [penalty])
            away = (y - block.outputs).clamp(-MOST_AWAY, MOST_AWAY)
            for column, temperature in enumerate(TEMPERATURES):
                logits = (temperature * (y - away)).log_softmax(1)
                log[at, column] = -logits.gather(1, truth[:, None]).sum()
        results["theirs"] = log

    def ours() -> None:
        results["ours"] = losses(path, z, y, s, PENALTIES, is_class=True)["log"]

    return Race(
        theirs,
        ours,
        lambda: torch.allclose(results["theirs"], results["ours"], rtol=0, atol=1e-5 * n),
        runs=3,
    )


def race_cycle(is_quick: bool) -> Race:
    """Race a cycle of ten sites to scikit-learn's cross-validation on the pooled data."""
    n, size = (400, 24) if is_quick else (8000, 1024)
    rows = features(n, size)
    ours = phase(rows, "linear", ClosedForm(unlabeled="off"), 1)
    x = rows.x.double().numpy()
    targets = torch.nn.functional.one_hot(rows.y, CLASSES).double().numpy()
    alphas = [penalty * n for penalty in PENALTIES]

    def theirs() -> None:
        with in_one_thread():
            RidgeCV(alphas).fit(x, targets)

    def is_ridge() -> bool:
        """Check the weights against scikit-learn's ridge regression on the pooled data."""
        state = ours.train()
        y = torch.nn.functional.one_hot(rows.y, CLASSES).double().numpy()
        alpha = float(state["penalty"]) * n
        fitted = Ridge(alpha=alpha, solver="cholesky").fit(rows.x.double().numpy(), y)
        expected = float(state["temperature"]) * torch.from_numpy(fitted.coef_).flatten()
        ridge = state["w"][: CLASSES * size].double()
        return torch.allclose(ridge, expected, rtol=1e-4, atol=1e-5)

    return Race(theirs, ours.train, is_ridge, runs=3)


def race_trees(is_quick: bool) -> Race:
    """Race ten stages of ten trees at ten sites to scikit-learn's on the pooled data.

    Equal gains, of nodes with few examples, are resolved differently, so the losses are compared.
    """
    n, stages = (300, 1) if is_quick else (8000, 10)
    rows = features(n, 24)
    rows = Rows((2 * rows.x).round(), rows.y)  # each value is one bin
    method = BoostedTrees(stages=stages, least=1e-3)
    ours = phase(rows, "trees", method, 1, stages=stages, depth=method.depth)
    theirs = HistGradientBoostingClassifier(
        max_iter=stages,
        max_depth=method.depth,
        max_leaf_nodes=None,
        min_samples_leaf=1,
        l2_regularization=method.penalty,
        early_stopping=False,
    )

    def fit() -> None:
        with in_one_thread():
            theirs.fit(rows.x.numpy(), rows.y.numpy())

    def is_equal() -> bool:
        network = build_model(
            "trees",
            (24,),
            CLASSES,
            stream(0, "init"),
            stages=stages,
            depth=method.depth,
        )
        Layout.of(network).load(network, ours.train())
        log = network(rows.x).log_softmax(1)
        expected = torch.from_numpy(theirs.predict_proba(rows.x.numpy())).log().float()
        loss = torch.nn.functional.nll_loss(log, rows.y)
        return bool(
            (loss / torch.nn.functional.nll_loss(expected, rows.y) - 1).abs() < 1e-3
        )

    return Race(fit, ours.train, is_equal, runs=3)


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
        "closed-form-classes",
        "the same leave-one-out outputs, and torch's log_softmax for each temperature",
        bar=1.5,
        compared="log losses of all penalties and temperatures: 1e-5 per example",
        prepare=race_many_classes,
    ),
    Entry(
        "closed-form-cycle",
        "scikit-learn's RidgeCV on all rows: leave-one-out for the same penalties",
        bar=2.0,
        compared="weights with scikit-learn's Ridge on all rows: 1e-5 in float32",
        prepare=race_cycle,
    ),
    Entry(
        "boosted-trees",
        "scikit-learn's HistGradientBoosting on all rows: the same trees, without exchanges",
        bar=0.1,
        compared="loss on the labeled rows: 0.1 %",
        prepare=race_trees,
    ),
)
