"""Properties of federated training for any data."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.local import Batch, slot
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Loop, row_loss
from fallow.engine.learner import Autograd
from fallow.engine.stacked import Stacked
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label, MemoryStore
from fallow.strategies import Random
from fallow.training import KCFU, Evidential, FedAvg, FedProx, Robust, Scaffold
from tests.engine.jobs import linear, mlp, norm, optimizer_of
from tests.simulations import Forgetful

CONFIG = TrainingConfig((TrainingStage(2),), 4, Optimizer("sgd", 0.05, momentum=0.9))
SHAPES: dict[Any, tuple[int, ...]] = {norm: (2, 5, 5)}
ROWS = {"a": 8, "b": 6, "c": 12}


def sites(
    make: Callable[[], nn.Module],
    method: Any,
    rows: Mapping[str, int],
    executor: type = Loop,
    pool: int = 0,
) -> InProcessChannel:
    """Return a federation whose sites have labeled all their examples except a pool."""
    model = make()
    layout, store, members = Layout.of(model), MemoryStore(), {}
    fresh = partial(_fresh, make)
    methods: Methods = {"query": Random(), "training": method, "plain": method}
    parts = RunComponents(model, layout, methods, 3, 0, fresh)
    for name, n in rows.items():
        draw = stream(0, "rows", name)
        x = torch.randn(
            max(n, 1), *SHAPES.get(make, (6,)), generator=draw, dtype=torch.float64
        )
        y = torch.randint(0, 3, (n,), generator=draw).tolist()
        u = torch.randn(
            pool, *x.shape[1:], generator=stream(0, "pool", name), dtype=x.dtype
        )
        members[name] = LocalSite(name, torch.cat([x, u]), parts, store)
        members[name].buy([Label(row, label, cycle=0) for row, label in enumerate(y)])
    return InProcessChannel(members, executor(model, layout, row_loss("classification")))


def _fresh(make: Callable[[], nn.Module], generator: torch.Generator) -> State:
    return Layout.of(make()).flatten(make())


def trained(channel: InProcessChannel, method: Any, start: State, rounds: int = 3) -> State:
    state = start
    for r in range(rounds):
        ask = Ask(
            channel,
            Forgetful(),
            Disclosure(),
            ExchangeKey("train", "round", round=r),
            "training",
        )
        state = method.round(state, ask)
        ask.flush()
    return state


def federated(
    make: Callable[[], nn.Module],
    method: Any,
    rows: Mapping[str, int] = ROWS,
    executor: type = Loop,
    rounds: int = 3,
    pool: int = 0,
) -> State:
    start = Layout.of(make()).flatten(make())
    return trained(sites(make, method, rows, executor, pool), method, start, rounds)


@pytest.mark.parametrize("make", [linear, mlp, norm])
def test_fedprox_without_a_penalty_is_fedavg_bit_for_bit(
    make: Callable[[], nn.Module],
) -> None:
    without, fedavg = (
        federated(make, FedProx(CONFIG, mu=0.0)),
        federated(make, FedAvg(CONFIG)),
    )
    assert torch.equal(without["w"], fedavg["w"])
    assert torch.equal(without["stats"], fedavg["stats"])


def test_a_larger_penalty_keeps_the_sites_nearer_to_the_model_they_were_sent() -> None:
    start, moved = Layout.of(mlp()).flatten(mlp()), []
    for mu in (0.0, 0.5, 2.0):
        method = FedProx(replace(CONFIG, optimizer=Optimizer(lr=0.02, momentum=0.0)), mu=mu)
        channel = sites(mlp, method, ROWS)
        trained(channel, method, start, rounds=1)
        away = [site.memory["local"]["w"] - start["w"] for site in channel.members.values()]
        moved.append(float(torch.stack(away).norm()))
    assert moved[0] > moved[1] > moved[2]


@pytest.mark.parametrize("executor", [Loop, Stacked])
def test_one_site_with_fedavg_is_plain_sgd(executor: type) -> None:
    training_config = replace(
        CONFIG, optimizer=Optimizer("sgd", 0.05, momentum=0.9, persist=True)
    )
    ours = federated(mlp, FedAvg(training_config), {"a": 10}, executor)
    site = sites(mlp, FedAvg(training_config), {"a": 10}).members["a"]
    model = mlp().train()
    optimizer = optimizer_of(training_config.optimizer, model)
    for r in range(3):
        for epoch in range(2):
            draw = site.streams("batches", "local", 0, r, epoch)
            for rows in torch.split(torch.randperm(10, generator=draw), 4):
                optimizer.zero_grad()
                nn.functional.cross_entropy(
                    model(site.x[rows]), site.labels[rows]
                ).backward()  # type: ignore[no-untyped-call]  # torch's
                optimizer.step()
    assert_close(ours["w"], Layout.of(model).flatten(model)["w"], rtol=0, atol=1e-10)


METHODS = (
    *(FedAvg(CONFIG), FedProx(CONFIG, mu=0.5), KCFU(CONFIG), Evidential(CONFIG)),
    *(Robust(CONFIG), Robust(CONFIG, rule="clipped"), Scaffold(CONFIG)),
)
each_method = pytest.mark.parametrize(
    "method", METHODS, ids=lambda method: type(method).__name__
)


@pytest.mark.long
@each_method
@pytest.mark.parametrize(("make", "executor"), [(mlp, Loop), (mlp, Stacked), (norm, Loop)])
def test_the_order_of_sites_does_not_matter(
    make: Callable[[], nn.Module], executor: type, method: Any
) -> None:
    there = federated(make, method, ROWS, executor, pool=5)
    back = federated(make, method, dict(reversed(ROWS.items())), executor, pool=5)
    assert torch.equal(there["w"], back["w"])
    assert torch.equal(there["stats"], back["stats"])


@each_method
def test_a_site_without_labels_changes_nothing(method: Any) -> None:
    for executor in (Loop, Stacked):
        alone = federated(mlp, method, ROWS, executor, pool=3)
        beside = federated(mlp, method, {**ROWS, "d": 0}, executor, pool=3)
        assert_close(alone["w"], beside["w"], rtol=0, atol=1e-14)


def test_where_nobody_has_a_label_the_model_stays() -> None:
    start = Layout.of(mlp()).flatten(mlp())
    assert torch.equal(federated(mlp, FedAvg(CONFIG), {"a": 0, "b": 0})["w"], start["w"])


def test_the_average_weighs_sites_by_their_labels() -> None:
    method, start = FedAvg(CONFIG), Layout.of(mlp()).flatten(mlp())
    channel = sites(mlp, method, ROWS)
    state = trained(channel, method, start, rounds=1)
    local = {name: site.memory["local"]["w"] for name, site in channel.members.items()}
    expected = (8 * local["a"] + 6 * local["b"] + 12 * local["c"]) / 26
    assert_close(state["w"], expected, rtol=0, atol=1e-14)


def test_batch_norm_statistics_are_averaged_with_the_weights() -> None:
    method, start = FedAvg(CONFIG), Layout.of(norm()).flatten(norm())
    channel = sites(norm, method, ROWS)
    state = trained(channel, method, start, rounds=1)
    local = {name: site.memory["local"]["stats"] for name, site in channel.members.items()}
    assert not torch.equal(local["a"], local["b"])
    expected = (8 * local["a"] + 6 * local["b"] + 12 * local["c"]) / 26
    assert_close(state["stats"], expected, rtol=0, atol=1e-14)
    assert not torch.equal(state["stats"], start["stats"])


@each_method
def test_local_batch_norm_statistics_never_leave_their_site(method: Any) -> None:
    method, start = replace(method, bn="local"), Layout.of(norm()).flatten(norm())
    channel = sites(norm, method, ROWS, pool=6)
    state = trained(channel, method, start)
    assert torch.equal(state["stats"], start["stats"])
    assert not torch.equal(state["w"], start["w"])


def test_local_batch_norm_statistics_go_on_from_round_to_round() -> None:
    method, start = FedAvg(CONFIG, bn="local"), Layout.of(norm()).flatten(norm())
    once, twice = (sites(norm, method, ROWS) for _ in range(2))
    trained(once, method, start, rounds=1)
    state = trained(twice, method, start, rounds=2)
    kept = [channel.members["a"].memory["own/bn"]["stats"] for channel in (once, twice)]
    assert not torch.equal(kept[0], kept[1])
    used = method.deploy(state, twice.members["a"].memory)
    assert torch.equal(used["stats"], kept[1]) and torch.equal(used["w"], state["w"])


@pytest.mark.parametrize("make", [linear, mlp])
def test_no_gradient_flows_through_padding(make: Callable[[], nn.Module]) -> None:
    model = make()
    executor = Stacked(model, Layout.of(model), row_loss("classification"))
    learn = Autograd(executor.network, executor.loss, CONFIG.optimizer)
    state = executor.layout.flatten(model)
    at = slot(
        {name: torch.stack([part] * 2) for name, part in state.items()}, CONFIG.optimizer
    )
    draw = stream(0, "batch")
    x, y = (
        torch.randn(2, 4, 6, generator=draw, dtype=torch.float64),
        torch.randint(0, 3, (2, 4), generator=draw),
    )
    weight = torch.ones(2, 4, dtype=torch.float64)
    weight[0, 2:] = 0

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        return learn.gradient(at, Batch(x, y, weight, 0.1))[0]

    other_x, other_y = x.clone(), y.clone()
    other_x[0, 2:], other_y[0, 2:] = 100.0, (y[0, 2:] + 1) % 3
    assert torch.equal(gradient(x, y), gradient(other_x, other_y))
    assert not torch.equal(gradient(x, y)[0], gradient(x.roll(1, 1), y)[0])


@pytest.mark.long
def test_long_training_of_many_sites_does_not_grow_the_process() -> None:
    method = FedAvg(
        TrainingConfig(
            (TrainingStage(1),), 4, Optimizer("sgd", 0.01, momentum=0.9, persist=True)
        )
    )
    rows = {f"s{i:03d}": 1 + i % 8 for i in range(100)}
    channel = sites(linear, method, rows, Stacked)
    state = trained(channel, method, Layout.of(linear()).flatten(linear()), rounds=2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trained(channel, method, state, rounds=100)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB on Linux
    assert grown < 25 * 1024
