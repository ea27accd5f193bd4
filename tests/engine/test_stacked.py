"""Training all sites at once equals training each alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fallow.core.local import LocalTraining
from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.engine import Job, can_stack
from fallow.models.networks import MLP, DigitsCNN, LeNet, Linear, ResNet8
from fallow.training import KCFU, Evidential, FedAvg, FedProx
from tests.engine.jobs import (
    RAGGED,
    assert_agree,
    drawn,
    jobs,
    linear,
    loop,
    mlp,
    no_bias,
    over_rounds,
    regression,
    with_pools,
)
from tests.engine.jobs import stacked as stack_of
from tests.engine.methods import Beside, Hoarder, LookAhead, Pupil

SGD = Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01)
CONFIG = TrainingConfig((TrainingStage(2),), 4, SGD)
CONFIGS = {
    "sgd": CONFIG,
    "no momentum": replace(CONFIG, optimizer=Optimizer("sgd", 0.05, momentum=0.0)),
    "adam": replace(CONFIG, optimizer=Optimizer("adam", 0.02, weight_decay=0.1)),
    "adamw": replace(CONFIG, optimizer=Optimizer("adamw", 0.02, weight_decay=0.1)),
    "cosine": replace(CONFIG, schedule=Schedule(cosine=3)),
    "persist": replace(CONFIG, optimizer=replace(SGD, persist=True)),
    "adam persists": replace(CONFIG, optimizer=Optimizer("adam", 0.02, persist=True)),
    "epochs": replace(CONFIG, schedule=Schedule((1, 3), 0.3)),
    "rounds": replace(CONFIG, schedule=Schedule((1,), 0.3, "round")),
    "parts": replace(CONFIG, stages=(TrainingStage(1, "head"), TrainingStage(1, "body"))),
    "parts, adam": TrainingConfig(
        (TrainingStage(1, "head"), TrainingStage(1, "body")), 4, Optimizer("adam", 0.02)
    ),
    "stops": replace(CONFIG, stages=(TrainingStage(3),), stop_at=0.5),
    "stops early": replace(CONFIG, stages=(TrainingStage(3),), patience=1),
    "one big batch": replace(CONFIG, batch_size=64),
    "no epoch": replace(CONFIG, stages=()),
}
CASES = [
    (mlp, FedAvg()),
    (mlp, FedProx(mu=0.5)),
    (mlp, Beside()),
    (mlp, LookAhead()),
    (linear, FedAvg()),
    (regression, FedProx(mu=0.5)),
    (regression, FedAvg()),
    (no_bias, FedAvg()),
]
ORDERS = [RAGGED, RAGGED[::-1], (3,), (0, 0), (4, 4, 4)]


@pytest.mark.long
@pytest.mark.parametrize("training_config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    ("make", "method"), CASES, ids=lambda it: getattr(it, "__name__", str(it))
)
def test_it_is_the_loop(
    make: Callable[[], nn.Module], method: LocalTraining, training_config: TrainingConfig
) -> None:
    assert_same_history(make, method, training_config, jobs(make, weighted=True))


@pytest.mark.long
@pytest.mark.parametrize("mix", [None, 2.0])
@pytest.mark.parametrize("training_config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    "method", [Pupil(), Evidential(), KCFU()], ids=lambda method: type(method).__name__
)
def test_it_is_the_loop_with_teachers_and_pools(
    method: LocalTraining, training_config: TrainingConfig, mix: float | None
) -> None:
    assert_same_history(
        mlp, method, replace(training_config, mix=mix), with_pools(jobs(mlp, weighted=True))
    )


def test_sites_without_a_pool_are_alone_what_they_are_beside_others() -> None:
    many_jobs, training_config = with_pools(jobs(mlp)), replace(CONFIG, mix=2.0)
    together = stack_of(mlp).fit(KCFU(), training_config, 1, many_jobs)
    for job, done in zip(many_jobs, together, strict=True):
        assert_agree(
            done.sent, stack_of(mlp).fit(KCFU(), training_config, 1, [job])[0].sent
        )


def test_a_batch_holds_no_more_rows_than_the_largest_site() -> None:
    hoarder = Hoarder([])
    stack_of(mlp).fit(hoarder, replace(CONFIG, batch_size=4096), 0, jobs(mlp))
    assert {part.shape[1] for part, _ in hoarder.seen if part.ndim == 3} == {max(RAGGED)}


def test_jobs_may_start_where_they_were_sent_or_elsewhere() -> None:
    value = [
        replace(j, sent=j.sent if at % 2 else None)
        for at, j in enumerate(with_pools(jobs(mlp)))
    ]
    assert_same_history(mlp, Pupil(), CONFIG, value)


def assert_same_history(
    make: Callable[[], nn.Module],
    method: LocalTraining,
    training_config: TrainingConfig,
    many_jobs: list[Job],
) -> None:
    ours, theirs = (
        over_rounds(e(make), method, training_config, many_jobs, 2)
        for e in (stack_of, loop)
    )
    for together, alone in zip(ours, theirs, strict=True):
        for a, b in zip(together, alone, strict=True):
            assert_agree(a.sent, b.sent)
            assert a.steps == b.steps <= 20
            assert a.own.keys() == b.own.keys()
            for name, at in a.own.items():
                for x, y in zip(at, b.own[name], strict=True):
                    torch.testing.assert_close(x, y, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rows", ORDERS, ids=str)
def test_results_come_in_the_order_of_the_jobs(rows: tuple[int, ...]) -> None:
    many_jobs = jobs(mlp, rows)
    for a, b in zip(
        *(e(mlp).fit(FedAvg(), CONFIG, 0, many_jobs) for e in (stack_of, loop)), strict=True
    ):
        assert_agree(a.sent, b.sent)


def test_training_ends_when_it_has_ended_at_every_site() -> None:
    many_jobs, training_config = (
        jobs(linear, (5, 3)),
        replace(CONFIG, stages=(TrainingStage(9),), stop_at=0.0),
    )
    done = stack_of(linear).fit(FedAvg(), training_config, 0, many_jobs)
    assert [one.steps for one in done] == [2, 1]  # of one epoch


def test_no_jobs_have_no_results() -> None:
    assert stack_of(linear).fit(FedAvg(), CONFIG, 0, []) == []


def test_sites_that_joined_later_train_beside_those_that_kept_something() -> None:
    many_jobs = jobs(linear)
    training_config = CONFIGS["persist"]
    first = loop(linear).fit(Beside(), training_config, 0, many_jobs)
    mixed = [
        replace(job, own=done.own) if at % 2 else job
        for at, (job, done) in enumerate(zip(many_jobs, first, strict=True))
    ]
    ours, theirs = (
        e(linear).fit(Beside(), training_config, 1, mixed) for e in (stack_of, loop)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert_agree(a.sent, b.sent)
        assert_agree(a.own["v"].state, b.own["v"].state)


def test_plans_that_augment_go_through_the_loop() -> None:
    def images() -> nn.Module:
        return drawn(Linear((2, 5, 5), 3))

    value = [
        replace(job, x=job.x.repeat(1, 9)[:, :50].view(-1, 2, 5, 5), start=start)
        for job in jobs(linear)
        for start in [Layout.of(images()).flatten(images())]
    ]
    training_config = replace(CONFIG, augment=("flip",))
    ours, theirs = (
        e(images).fit(FedAvg(), training_config, 0, value) for e in (stack_of, loop)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert_agree(a.sent, b.sent, atol=0)


def test_nothing_is_changed_in_place_and_nothing_is_shared() -> None:
    training_config = CONFIGS["persist"]
    value = [
        replace(job, own=done.own)
        for job in jobs(linear)
        for (done,) in [stack_of(linear).fit(Beside(), training_config, 0, [job])]
    ]
    inputs = [p for j in value for p in (j.x, j.y, j.weight, *j.start.values())]
    inputs += [part for job in value for slot in job.own.values() for part in slot]
    before = [part.clone() for part in inputs]
    executor = stack_of(linear)
    done = executor.fit(Beside(), training_config, 0, value)
    outputs = [part for d in done for part in d.sent.values()]
    outputs += [part for d in done for slot in d.own.values() for part in slot]
    places = {part.untyped_storage().data_ptr() for part in inputs if part.numel()}
    made = [part.untyped_storage().data_ptr() for part in outputs if part.numel()]
    assert len(set(made)) == len(made)
    assert not places & set(made)
    kept = [part.clone() for part in outputs]
    executor.fit(Beside(), training_config, 1, value)
    assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(kept, outputs, strict=True))


def test_a_method_may_keep_what_it_saw() -> None:
    method = Hoarder([])
    stack_of(mlp).fit(method, replace(CONFIG, mix=2.0), 0, with_pools(jobs(mlp)))
    assert method.is_unharmed()


# -- supported models ------------------------------------------------------------------


class Tied(nn.Module):
    """One layer used twice, and a weight shared by two layers, one without bias.

    Examples are tokens, which have an additional axis.
    """

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(2, 2)
        self.again = self.twice
        self.shared = nn.Linear(2, 2, bias=False)
        self.shared.weight = self.twice.weight
        self.head = nn.Linear(6, 3)

    def embed(self, x: Tensor) -> Tensor:
        tokens = x.view(len(x), 3, self.twice.in_features)
        mixed: Tensor = self.shared(torch.tanh(self.again(torch.tanh(self.twice(tokens)))))
        return mixed.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


def tied() -> nn.Module:
    return drawn(Tied())


def test_layers_may_be_used_twice_share_weights_and_take_rows_of_any_shape() -> None:
    many_jobs = jobs(linear)
    start = Layout.of(tied()).flatten(tied())
    many_jobs = [replace(job, start=start) for job in many_jobs]
    ours, theirs = (e(tied).fit(FedAvg(), CONFIG, 0, many_jobs) for e in (stack_of, loop))
    for a, b in zip(ours, theirs, strict=True):
        assert_agree(a.sent, b.sent)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Linear((6,), 3), True),
        (MLP((1, 4, 4), 3, hidden=(5, 5)), True),
        (nn.Sequential(nn.Linear(6, 3), nn.Softplus()), True),
        (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.1)), False),
        (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), False),
        (nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3)), False),
        (nn.Sequential(nn.Linear(6, 3), nn.PReLU()), False),
        (nn.MultiheadAttention(4, 2), False),
        (DigitsCNN((1, 8, 8), 3), False),
        (LeNet((3, 32, 32), 3), False),
        (ResNet8((3, 32, 32), 3), False),
    ],
    ids=lambda v: type(v).__name__,
)
def test_it_takes_models_whose_parameters_are_all_linear(
    model: nn.Module, expected: bool
) -> None:
    assert can_stack(model) is expected
