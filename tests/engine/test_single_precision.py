"""The device executor in float32 against the loop in float64, within rounding.

All cases run if FALLOW_TEST_DEVICE names a device or with ``-m soak``, else a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fallow.core.local import LocalTraining
from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import Fitted, Job, row_loss
from fallow.engine.device import Device
from fallow.engine.placement import Placement
from fallow.training import FedAvg
from tests.engine.jobs import (
    DEVICE,
    dropout,
    in_single,
    jobs,
    linear,
    loop,
    mlp,
    norm,
    over_rounds,
    regression,
    some_cells,
    with_pools,
)
from tests.engine.test_device import ADAM, CONFIG, METHODS, SGD, STOPPING, resnet, rows_of

MODELS = {make.__name__: make for make in (linear, mlp, regression, norm, dropout)}
ROUNDS = 3

APART = {"sgd": 1e-4, "adam": 1e-3}
"""How far a weight may be from that of float64, as a share of how far the weights of a site went.

On a processor the farthest of all cells were 3.4e-6 by descent (per-fedavg) and 5.8e-5 by Adam (of
batch norm; a first step of Adam has the size of the rate whatever the gradient, so that it turns on
the sign of what is nearly 0).  Factors of 29 and 17 are left, for sums in another order.  Products in
fewer digits are beyond them, as a test sees.
"""
DEEP = 5e-4
"""The same for ResNet-8 after one epoch at a low rate: batch norm over four rows multiplies what
rounding made, step after step.  It was 1.9e-5 away on a processor, a factor of 26."""


def device(make: Callable[[], nn.Module], precision: str = "float32") -> Device:
    model = make().float()
    kind = "classification"
    if make is regression:
        kind = "regression"
    where = Placement.open(DEVICE, precision)
    return Device(model, Layout.of(model), row_loss(kind), placement=where)


def measure(
    ours: Sequence[Fitted], theirs: Sequence[Fitted], many_jobs: Sequence[Job]
) -> float:
    """Return the largest differences of weights and statistics.

    They are relative to the update of each site's weights and to its largest statistic.
    Raise for non-finite or non-float32 values.
    """
    apart = 0.0
    for one, other, job in zip(ours, theirs, many_jobs, strict=True):
        assert one.steps == other.steps
        assert one.sent["w"].dtype == torch.float32
        scales = {
            "w": largest(other.sent["w"] - job.start["w"]),
            "stats": largest(other.sent["stats"]),
        }
        for name, scale in scales.items():
            if scale == 0:  # no statistics or no examples: nothing changed
                continue
            far = largest(one.sent[name].double() - other.sent[name])
            assert far < torch.inf
            apart = max(apart, far / scale)
    return apart


def largest(x: Tensor) -> float:
    """Return the largest absolute value, or 0 for an empty tensor."""
    if not x.numel():
        return 0.0
    return float(x.abs().max())


def race(
    make: Callable[[], nn.Module],
    method: LocalTraining,
    training_config: TrainingConfig,
    many_jobs: Sequence[Job],
    rounds: int,
) -> float:
    theirs = over_rounds(loop(make), method, training_config, many_jobs, rounds)
    ours = over_rounds(device(make), method, training_config, in_single(many_jobs), rounds)
    return max(measure(a, b, many_jobs) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("name", some_cells(MODELS, few=("mlp",)))
def test_models_are_near_to_those_of_double_precision(
    name: str, optimizer: Optimizer
) -> None:
    make = MODELS[name]
    training_config = replace(CONFIG, optimizer=replace(optimizer, persist=True))
    value = jobs(make, rows_of(make), weighted=True)
    assert 0 < race(make, FedAvg(), training_config, value, ROUNDS) <= APART[optimizer.name]


@pytest.mark.parametrize("name", some_cells(METHODS, few=("PerFedAvg",)))
def test_so_is_what_every_method_of_training_makes(name: str) -> None:
    training_config = replace(CONFIG, mix=0.4 if name == "KCFU" else None)
    pools = with_pools(jobs(norm, (12, 8, 4, 8, 16)))
    assert 0 < race(norm, METHODS[name](), training_config, pools, 2) <= APART["sgd"]


@pytest.mark.parametrize("name", some_cells(STOPPING, few=("crops",)))
def test_so_is_every_kind_of_training_config(name: str) -> None:
    value = jobs(norm, rows_of(norm))
    assert 0 < race(norm, FedAvg(), STOPPING[name], value, 1) <= APART["sgd"]


@pytest.mark.parametrize("name", some_cells(["resnet"], few=()))
def test_a_deep_network_stays_near_for_an_epoch(name: str) -> None:
    training_config = replace(
        CONFIG, stages=(TrainingStage(1),), optimizer=Optimizer(lr=0.01)
    )
    value = jobs(resnet, rows_of(resnet))
    assert 0 < race(resnet, FedAvg(), training_config, value, 1) <= DEEP


def test_products_in_fewer_digits_are_farther_away() -> None:
    many_jobs = jobs(mlp, rows_of(mlp))
    theirs = loop(mlp).fit(FedAvg(), CONFIG, 0, many_jobs)
    ours = device(mlp, "bf16").fit(FedAvg(), CONFIG, 0, in_single(many_jobs))
    assert measure(ours, theirs, many_jobs) > 10 * APART["sgd"]
