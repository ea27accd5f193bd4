"""Full epochs of dense networks without autograd (tests T18 and T19)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fallow.core.local import Batch, Learner, LocalTraining, TrainState, slot
from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import row_loss
from fallow.engine.batches import Patience, epochs
from fallow.engine.dense import DenseNetwork, cross_entropy_slope
from fallow.engine.descent import Descent, descend, find_descents
from fallow.engine.site_batches import ActiveJob, Frame, Joined
from fallow.engine.stacked import Stacked
from fallow.models.custom import adapt_model
from fallow.models.networks import LeNet, Linear
from fallow.training import FedAvg, FedProx
from fallow.training.personal import APFL, Ditto
from tests.engine.jobs import (
    assert_agree,
    by_torch,
    drawn,
    jobs,
    linear,
    loop,
    mlp,
    no_bias,
    over_rounds,
    regression,
    stacked,
)
from tests.engine.methods import Beside, LookAhead, Pupil, Stepping

ADAM = TrainingConfig((TrainingStage(3),), 4, Optimizer("adam", 0.02))
SGD = replace(ADAM, optimizer=Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01))
ADAMW = replace(ADAM, optimizer=Optimizer("adamw", 0.02, weight_decay=0.1))
each_config = pytest.mark.parametrize(
    "training_config", [ADAM, ADAMW, SGD], ids=["adam", "adamw", "sgd"]
)


@each_config
@pytest.mark.parametrize("rows", [(11, 5, 0, 8, 1), (1,), (1, 1), (0, 0), (4, 8)], ids=str)
def test_it_is_each_site_alone_by_torch(
    training_config: TrainingConfig, rows: tuple[int, ...]
) -> None:
    value = jobs(regression, rows, weighted=True)
    for job, done in zip(
        value, stacked(regression).fit(FedAvg(), training_config, 0, value), strict=True
    ):
        assert_agree(
            done.sent,
            by_torch(regression, training_config, job) if len(job.y) else job.start,
        )


@each_config
def test_one_site_and_one_batch_of_all_rows_is_plain_descent_by_torch(
    training_config: TrainingConfig,
) -> None:
    (job,) = jobs(regression, (30,))
    training_config = replace(training_config, batch_size=30, stages=(TrainingStage(15),))
    (done,) = stacked(regression).fit(FedAvg(), training_config, 0, [job])
    assert_agree(done.sent, by_torch(regression, training_config, job))
    assert done.steps == 15


@each_config
def test_equal_sites_are_one_site(training_config: TrainingConfig) -> None:
    (job,) = jobs(regression, (11,))
    (alone,) = stacked(regression).fit(FedAvg(), training_config, 0, [job])
    for done in stacked(regression).fit(FedAvg(), training_config, 0, [job] * 4):
        assert_agree(done.sent, alone.sent)


@each_config
def test_weights_do_not_depend_on_how_many_epochs_and_sites_are_done_together(
    training_config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = jobs(regression, (11, 5, 0, 8, 1), weighted=True)
    together = stacked(regression).fit(FedAvg(), training_config, 0, value)
    monkeypatch.setattr("fallow.engine.stacked.ROWS_AHEAD", 1)  # one epoch
    monkeypatch.setattr("fallow.engine.descent.CACHE", 1)  # one site
    alone = stacked(regression).fit(FedAvg(), training_config, 0, value)
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one.sent["w"], other.sent["w"])


def test_many_epochs_of_one_round_end_at_the_mean_of_what_each_site_would_solve() -> None:
    many_jobs = jobs(regression, (40, 25, 15))
    many_jobs = [
        replace(job, y=job.y + torch.sin(3 * job.x[:, 0])) for job in many_jobs
    ]  # not linear
    training_config = TrainingConfig(
        (TrainingStage(400),), 40, Optimizer("sgd", 0.2, momentum=0.5)
    )
    made = stacked(regression).fit(FedAvg(), training_config, 0, many_jobs)
    n = torch.tensor([40.0, 25.0, 15.0], dtype=torch.float64)
    mean = (n / n.sum()) @ torch.stack([done.sent["w"] for done in made])
    solved = [torch.linalg.lstsq(affine(job.x), job.y).solution for job in many_jobs]
    assert_close(mean, (n / n.sum()) @ torch.stack(solved), rtol=0, atol=1e-8)


def affine(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(len(x), 1)], 1)


def test_a_row_that_weighs_nothing_moves_nothing() -> None:
    (job,) = jobs(regression, (8,))
    weight = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(4)
    (weighed,) = stacked(regression).fit(FedAvg(), SGD, 0, [replace(job, weight=weight)])
    y = torch.where(weight > 0, job.y, 1e6)
    (other,) = stacked(regression).fit(FedAvg(), SGD, 0, [replace(job, weight=weight, y=y)])
    assert_agree(other.sent, weighed.sent)


@pytest.mark.parametrize(
    "change",
    [
        {"patience": 1},
        {"stop_at": 0.5},
        {"stages": (TrainingStage(1, "head"), TrainingStage(2))},
        {"stages": (TrainingStage(1), TrainingStage(1, "body"), TrainingStage(1))},
        {"mix": 1.0},
    ],
)
def test_rules_and_parts_of_a_training_config_hold(change: dict[str, Any]) -> None:
    training_config, value = replace(ADAM, **change), jobs(regression, weighted=True)
    ours, theirs = (
        e(regression).fit(FedAvg(), training_config, 0, value) for e in (stacked, loop)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert_agree(a.sent, b.sent)
        assert a.steps == b.steps


def test_a_frozen_bias_stays_where_it_is() -> None:
    model = regression()
    model.get_parameter("head.bias").requires_grad_(False)
    executor = Stacked(model, Layout.of(model), row_loss("regression"))
    value = jobs(regression)
    for job, done in zip(value, executor.fit(FedAvg(), SGD, 0, value), strict=True):
        assert done.sent["w"][-1] == job.start["w"][-1]


def test_images_are_rows_and_float32_stays_float32() -> None:
    model = Linear((2, 3), 1)
    layout = Layout.of(model)
    many_jobs = [
        replace(
            job,
            x=job.x.view(-1, 2, 3).float(),
            y=job.y.float(),
            weight=job.weight.float(),
            start=layout.flatten(model),
        )
        for job in jobs(regression)
    ]
    made = Stacked(model, layout, row_loss("regression")).fit(FedAvg(), ADAM, 0, many_jobs)
    assert all(done.sent["w"].dtype == torch.float32 for done in made)
    assert_close(
        made[0].sent["w"].double(),
        stacked(regression)
        .fit(
            FedAvg(),
            ADAM,
            0,
            [
                replace(
                    jobs(regression)[0],
                    start={
                        name: part.double() for name, part in layout.flatten(model).items()
                    },
                )
            ],
        )[0]
        .sent["w"],
        rtol=0,
        atol=1e-5,
    )


def test_epochs_leave_the_slot_that_they_were_given() -> None:
    value = sorted(jobs(regression), key=lambda job: -len(job.y))
    data = Joined.of(value)
    ends = torch.tensor([len(job.y) for job in value]).cumsum(0).tolist()
    active_jobs = [
        ActiveJob(job, k, ([0, *ends])[k], Patience(None)) for k, job in enumerate(value)
    ]
    epoch = next(iter(epochs(ADAM, 0)))
    start = {
        name: torch.stack([job.start[name] for job in value]) for name in ("w", "stats")
    }
    at = slot(start, ADAM.optimizer)
    kept = [part.clone() for part in at]
    network = stacked(regression).dense
    assert network is not None
    lines = data.lines(Frame.of(active_jobs, 4), epoch)
    descents = [Descent("w", 0.0)]
    made = descend(network, ADAM.optimizer, {"w": at}, at, descents, [lines])
    assert all(torch.equal(was, now) for was, now in zip(kept, at, strict=True))
    assert made["w"].t.flatten().tolist() == [3, 2, 2, 1, 0]


# -- supported jobs --------------------------------------------------------------------


def twice(s: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
    return learn.descend(learn.descend(s, b), b)


def from_the_sent_model(
    s: TrainState, w_t: TrainState, b: Batch, learn: Learner
) -> TrainState:
    return learn.descend(w_t, b)


def half_as_fast(s: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
    return learn.descend(s, b._replace(lr=b.lr / 2))


def and_then_shrink(s: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
    made = learn.descend(s, b)
    return made._replace(w=0.9 * made.w)


OTHERS = [
    Beside(),
    LookAhead(),
    Pupil(),
    *map(Stepping, (twice, from_the_sent_model, half_as_fast, and_then_shrink)),
]


@pytest.mark.parametrize("method", OTHERS, ids=str)
def test_a_step_that_does_more_than_descend_is_noticed_and_taken(
    method: LocalTraining,
) -> None:
    value = jobs(regression)
    at = slot(value[0].start, ADAM.optimizer)
    batch = Batch(value[0].x, value[0].y, value[0].weight, 0.1)
    assert find_descents(method, method.start(at, {}), at, batch) is None
    ours, theirs = (e(regression).fit(method, ADAM, 0, value) for e in (stacked, loop))
    for a, b in zip(ours, theirs, strict=True):
        assert_agree(a.sent, b.sent)


def test_plain_descent_is_asked_once_and_other_plans_at_every_step() -> None:
    seen: list[Batch] = []

    def step(s: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        seen.append(b)
        return learn.descend(s, b)

    fit = partial(stacked(regression).fit, Stepping(step), round_=0, jobs=jobs(regression))
    fit(training_config=ADAM)
    assert len(seen) == 1
    fit(training_config=replace(ADAM, patience=9))
    assert len(seen) == 1 + 3 * 3


def test_the_descents_of_each_algorithm_are_found() -> None:
    (job,) = jobs(mlp, (5,))
    at = slot(job.start, SGD.optimizer)
    batch = Batch(job.x, job.y, job.weight, 0.1)

    def find(method: LocalTraining) -> list[Descent] | None:
        return find_descents(method, method.start(at, {}), at, batch)

    assert find(FedAvg()) == [Descent("w", 0.0)]
    assert find(FedProx(mu=0.5)) == [Descent("w", 0.5)]
    assert find(Ditto(lam=0.25)) == [Descent("w", 0.0), Descent("v", 0.25)]
    assert find(APFL()) is None


def tanh() -> nn.Module:
    return drawn(
        adapt_model(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,), 3)
    )


def sigmoid() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(6, 4, bias=False), nn.Sigmoid(), nn.Linear(4, 3)]
    return drawn(adapt_model(nn.Sequential(*layers), (6,), 3))


@each_config
@pytest.mark.parametrize("make", [mlp, linear, tanh, sigmoid, regression, no_bias])
@pytest.mark.parametrize("method", [FedAvg(), FedProx(mu=0.5), Ditto(lam=0.5)], ids=str)
def test_epochs_without_autograd_are_the_loop(
    make: Callable[[], nn.Module], method: LocalTraining, training_config: TrainingConfig
) -> None:
    training_config = replace(
        training_config, optimizer=replace(training_config.optimizer, persist=True)
    )
    value = jobs(make, weighted=True)
    executors = (stacked(make), loop(make))
    assert executors[0].dense is not None
    ours, theirs = (over_rounds(e, method, training_config, value, 2) for e in executors)
    for together, alone in zip(ours, theirs, strict=True):
        for a, b in zip(together, alone, strict=True):
            assert_agree(a.sent, b.sent)
            for name, at in a.own.items():
                for x, y in zip(at, b.own[name], strict=True):
                    assert_close(x, y, rtol=0, atol=1e-10)


def test_groups_of_one_site_are_the_same_as_larger_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = jobs(mlp, weighted=True)
    together = stacked(mlp).fit(FedProx(), SGD, 0, value)
    monkeypatch.setattr("fallow.engine.descent.CACHE", 1)
    for one, other in zip(
        together, stacked(mlp).fit(FedProx(), SGD, 0, value), strict=True
    ):
        assert_agree(one.sent, other.sent)


@pytest.mark.parametrize("make", [mlp, regression])
def test_a_model_diverges_as_in_the_loop_and_without_a_warning(
    make: Callable[[], nn.Module],
) -> None:
    value = [replace(job, x=job.x * 1e200) for job in jobs(make, (8,))]
    for executor in (stacked(make), loop(make)):
        (done,) = executor.fit(FedAvg(), SGD, 0, value)
        assert not done.sent["w"].isfinite().all()


def test_logits_of_any_size_have_a_finite_gradient() -> None:
    z = np.array([[[1000.0, 0.0], [-1000.0, -1000.0]]])
    cross_entropy_slope(z, np.array([[1, 0]]))
    assert z.tolist() == [[[1.0, -1.0], [-0.5, 0.5]]]


class Doubled(nn.Sequential):
    """A sequence with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return 2 * outputs


shared = nn.Linear(3, 3)


@pytest.mark.parametrize(
    "model",
    [
        Doubled(nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2)),
        nn.Sequential(shared, nn.ReLU(), shared),
        nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2)),
        LeNet((3, 32, 32), 2),
    ],
    ids=str,
)
def test_other_layers_and_custom_forward_passes_use_autograd(model: nn.Module) -> None:
    layout = Layout.of(model)
    assert DenseNetwork.of(model, layout, row_loss("classification")) is None


def test_other_losses_and_frozen_parameters_use_autograd() -> None:
    model = Linear((3,), 1)
    layout = Layout.of(model)
    assert (
        DenseNetwork.of(model, layout, lambda outputs, y: (outputs[..., 0] - y).abs())
        is None
    )
    model.head.bias.requires_grad_(False)
    assert DenseNetwork.of(model, layout, row_loss("regression")) is None
