"""Properties of KCFU in full rounds: special cases equal to balanced softmax and FedAvg."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Loop
from fallow.engine.stacked import Stacked
from fallow.sites.store import Label
from fallow.training import KCFU, FedAvg
from tests.engine.jobs import assert_agree, linear, mlp, norm, optimizer_of
from tests.laws.test_training_laws import federated, sites, trained

CONFIG = TrainingConfig((TrainingStage(2),), 4, Optimizer("sgd", 0.05, momentum=0.9))
ONE = {"a": 8}


def balanced_softmax(make: Callable[[], nn.Module], rounds: int) -> State:
    """Train one site with ``torch.optim`` by cross-entropy of outputs + log n_c."""
    site = sites(make, KCFU(CONFIG), ONE).members["a"]
    tilt = torch.bincount(site.labels, minlength=3).double().log()
    model = make().train()
    for r in range(rounds):
        optimizer = optimizer_of(CONFIG.optimizer, model)
        for epoch in range(2):
            draw = site.streams("batches", "local", 0, r, epoch)
            for rows in torch.split(torch.randperm(8, generator=draw), 4):
                optimizer.zero_grad()
                outputs = model(site.x[rows]) + tilt
                nn.functional.cross_entropy(outputs, site.labels[rows]).backward()  # type: ignore[no-untyped-call]  # torch's
                optimizer.step()
    return Layout.of(model).flatten(model)


CASES = [(linear, Loop), (mlp, Loop), (mlp, Stacked), (norm, Loop)]
each_case = pytest.mark.parametrize(("make", "executor"), CASES)


@each_case
@pytest.mark.parametrize("pool", [0, 9])
def test_the_first_round_is_balanced_softmax_alone(
    make: Callable[[], nn.Module], executor: type, pool: int
) -> None:
    ours = federated(make, KCFU(CONFIG), ONE, executor, rounds=1, pool=pool)
    assert_agree(ours, balanced_softmax(make, 1))


@each_case
def test_without_a_pool_every_round_is(
    make: Callable[[], nn.Module], executor: type
) -> None:
    assert_agree(federated(make, KCFU(CONFIG), ONE, executor), balanced_softmax(make, 3))


@each_case
def test_with_a_pool_the_second_round_is_not(
    make: Callable[[], nn.Module], executor: type
) -> None:
    ours = federated(make, KCFU(CONFIG), ONE, executor, rounds=2, pool=9)
    assert float((ours["w"] - balanced_softmax(make, 2)["w"]).abs().max()) > 1e-6


@pytest.mark.parametrize("make", [mlp, norm])
def test_where_a_site_has_as_many_labels_of_each_class_the_first_round_is_fedavg(
    make: Callable[[], nn.Module],
) -> None:
    outcome = []
    for method in (KCFU(CONFIG), FedAvg(CONFIG)):
        channel = sites(make, method, {"a": 0}, pool=12)
        site = channel.members["a"]
        site.buy([Label(row, float(row % 3), cycle=0) for row in range(12)])
        outcome.append(
            trained(channel, method, Layout.of(make()).flatten(make()), rounds=1)
        )
    first, second = outcome
    assert_agree(first, second)
