"""The loop against plain training with ``torch.optim``, and unchanged state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fallow.core.local import LocalTraining
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.engine import Job, Loop, look, predict, row_loss
from fallow.training import FedAvg, FedProx
from tests.engine.jobs import (
    RAGGED,
    assert_agree,
    by_torch,
    drawn,
    jobs,
    linear,
    loop,
    mlp,
    norm,
    over_rounds,
    regression,
)
from tests.engine.methods import Beside, Hoarder

SGD = Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01)
ADAM = Optimizer("adam", 0.01, weight_decay=0.01)
ROWS = tuple(n for n in RAGGED if n)  # torch has no reference for a site without examples
# batches of 4 whose remainder is not 1: batch norm needs two examples
NORM_ROWS = (12, 6, 4)


def config_of(optimizer: Optimizer, **more: object) -> TrainingConfig:
    return replace(TrainingConfig((TrainingStage(2),), 4, optimizer), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", [SGD, ADAM, replace(SGD, momentum=0.0)], ids=str)
@pytest.mark.parametrize("make", [linear, mlp, regression, norm])
def test_it_is_the_loop_that_everybody_writes(
    make: Callable[[], nn.Module], optimizer: Optimizer
) -> None:
    training_config = config_of(optimizer)
    value = jobs(make, NORM_ROWS if make is norm else ROWS, weighted=True)
    for job, done in zip(
        value, loop(make).fit(FedAvg(), training_config, 0, value), strict=True
    ):
        assert_agree(done.sent, by_torch(make, training_config, job))
        assert done.steps == 2 * -(-len(job.y) // 4) <= 20
        assert done.own == {}


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=str)
def test_moments_persist_over_rounds_or_begin_anew(
    optimizer: Optimizer, persist: bool
) -> None:
    training_config = config_of(replace(optimizer, persist=persist))
    value = jobs(linear, ROWS)
    last = over_rounds(loop(linear), FedAvg(), training_config, value, 3)[-1]
    for job, done in zip(value, last, strict=True):
        assert_agree(done.sent, by_torch(linear, training_config, job, rounds=3))


@pytest.mark.parametrize("unit", ["epoch", "round"])
def test_the_rate_follows_the_schedule(unit: str) -> None:
    training_config = config_of(SGD, schedule=Schedule((1, 3), 0.3, unit))  # type: ignore[arg-type]
    value = jobs(linear, ROWS)
    last = over_rounds(loop(linear), FedAvg(), training_config, value, 3)[-1]
    for job, done in zip(value, last, strict=True):
        assert_agree(done.sent, by_torch(linear, training_config, job, rounds=3))


@pytest.mark.parametrize("make", [linear, norm])
def test_a_penalty_pulls_parameters_and_never_statistics(
    make: Callable[[], nn.Module],
) -> None:
    training_config = config_of(SGD)
    value = jobs(make, NORM_ROWS)
    for job, done in zip(
        value, loop(make).fit(FedProx(mu=0.7), training_config, 0, value), strict=True
    ):
        assert_agree(done.sent, by_torch(make, training_config, job, mu=0.7))


def test_a_model_that_stays_begins_each_round_without_moments_unless_they_persist() -> None:
    value = jobs(linear, (8,))
    kept = {}
    for persist in (True, False):
        training_config = config_of(replace(SGD, persist=persist))
        kept[persist] = [
            h[0] for h in over_rounds(loop(linear), Beside(0.0), training_config, value, 2)
        ]
        assert_agree(
            kept[persist][-1].own["v"].state,
            by_torch(linear, training_config, value[0], rounds=2),
        )
    assert set(kept[False][0].own) == {"v"}
    assert set(kept[True][0].own) == {"v", "sent"}


def test_only_moments_stay_of_the_model_that_is_sent() -> None:
    (done,) = loop(linear).fit(
        FedAvg(), config_of(replace(SGD, persist=True)), 0, jobs(linear, (8,))
    )
    stays = done.own["sent"]
    assert stays.w.numel() == stays.stats.numel() == 0
    assert stays.m1.shape == done.sent["w"].shape


def test_a_part_trains_while_the_other_stands_still() -> None:
    value, layout = jobs(mlp, (8,)), Layout.of(mlp())
    for part in ("head", "body"):
        training_config = config_of(ADAM, stages=(TrainingStage(2, part),))
        (done,) = loop(mlp).fit(FedAvg(), training_config, 0, value)
        moved = done.sent["w"] != value[0].start["w"]
        is_in = layout.part(part)
        assert is_in is not None
        assert not moved[~is_in].any()
        assert moved[is_in].any()


def test_parameters_that_the_model_has_frozen_stand_still() -> None:
    def frozen() -> nn.Module:
        model = mlp()
        model.body.requires_grad_(False)
        return model

    value = jobs(mlp, (8,))
    is_head = Layout.of(mlp()).part("head")
    assert is_head is not None
    (done,) = loop(frozen).fit(FedAvg(), config_of(SGD), 0, value)
    (part,) = loop(mlp).fit(
        FedAvg(), config_of(SGD, stages=(TrainingStage(2, "head"),)), 0, value
    )
    assert torch.equal(done.sent["w"], part.sent["w"])
    assert torch.equal(done.sent["w"] == value[0].start["w"], ~is_head)


@pytest.mark.long
def test_training_stops_after_the_epoch_that_reaches_the_accuracy() -> None:
    value = jobs(mlp, (8, 5, 0))
    training_config = config_of(Optimizer("adam", 0.05), stages=(TrainingStage(60),))
    whole = loop(mlp).fit(FedAvg(), training_config, 0, value)
    stopped = loop(mlp).fit(FedAvg(), replace(training_config, stop_at=0.99), 0, value)
    for job, long, short in zip(value, whole, stopped, strict=True):
        epochs = short.steps // max(1, -(-len(job.y) // 4))
        assert short.steps < long.steps or len(job.y) == 0
        again = replace(training_config, stages=(TrainingStage(epochs),))
        assert_agree(short.sent, loop(mlp).fit(FedAvg(), again, 0, [job])[0].sent, atol=0)
        if len(job.y):
            model = mlp()
            guess = predict(model, Layout.of(model), short.sent, job.x).argmax(1)
            assert torch.equal(guess, job.y)


def test_a_regression_has_no_accuracy_to_stop_at() -> None:
    value = jobs(regression, (4,))
    value[0].y.zero_()  # argmax over a single class is 0 too
    (done,) = loop(regression).fit(FedAvg(), config_of(SGD, stop_at=0.5), 0, value)
    assert done.steps == 2


def test_a_site_without_rows_sends_what_it_was_sent() -> None:
    value = jobs(norm, (0,))
    (done,) = loop(norm).fit(FedAvg(), config_of(SGD), 0, value)
    assert_agree(done.sent, value[0].start, atol=0)
    assert done.steps == 0


def test_a_batch_in_which_nothing_weighs_asks_for_no_step() -> None:
    value = jobs(linear, (4,))
    value[0].weight.zero_()
    (done,) = loop(linear).fit(
        FedAvg(), config_of(replace(SGD, weight_decay=0.0)), 0, value
    )
    assert_agree(done.sent, value[0].start, atol=0)


def test_images_in_the_other_memory_layout_train_the_same_model() -> None:
    value = jobs(norm, NORM_ROWS)
    plain, other = (
        loop(norm, channels_last=last).fit(FedAvg(), config_of(SGD), 0, value)
        for last in (False, True)
    )
    for a, b in zip(plain, other, strict=True):
        assert_agree(a.sent, b.sent)


def test_images_of_one_channel_have_the_other_memory_layout_too() -> None:
    x = torch.randn(5, 1, 6, 4)[1:]  # with an offset in memory
    images = loop(norm, channels_last=True).images(x)
    assert torch.equal(images, x)
    maps = torch.nn.Conv2d(1, 2, 3)(images[torch.tensor([3, 1])])
    assert maps.is_contiguous(memory_format=torch.channels_last)
    plain = loop(norm).images(x)
    assert torch.nn.Conv2d(1, 2, 3)(plain).is_contiguous()


def test_augmented_images_come_from_a_stream_for_each_step() -> None:
    value, training_config = jobs(norm, (8, 4)), config_of(SGD, augment=("flip", "crop2"))
    once, twice = (loop(norm).fit(FedAvg(), training_config, 0, value) for _ in range(2))
    alone = loop(norm).fit(FedAvg(), training_config, 0, value[1:])
    plain = loop(norm).fit(FedAvg(), config_of(SGD), 0, value)
    for a, b, c in zip(once, twice, plain, strict=True):
        assert_agree(a.sent, b.sent, atol=0)
        assert not torch.equal(a.sent["w"], c.sent["w"])
    assert_agree(once[1].sent, alone[0].sent, atol=0)


# -- unchanged state -------------------------------------------------------------------


@pytest.mark.parametrize("method", [FedAvg(), FedProx(mu=0.5), Beside()], ids=str)
@pytest.mark.parametrize("rows", [(8,), (0,)])
def test_nothing_is_changed_in_place_and_nothing_is_shared(
    method: LocalTraining, rows: tuple[int]
) -> None:
    training_config = config_of(replace(SGD, persist=True))
    job = in_second_round(method, training_config, rows)
    inputs = [job.x, job.y, job.weight, *job.start.values()]
    inputs += [part for slot in job.own.values() for part in slot]
    before = [part.clone() for part in inputs]
    executor = loop(norm)
    (done,) = executor.fit(method, training_config, 0, [job])
    outputs = [*done.sent.values(), *(part for slot in done.own.values() for part in slot)]
    places = [
        part.untyped_storage().data_ptr() for part in (*inputs, *outputs) if part.numel()
    ]
    assert len(set(places)) == len(places)
    kept = [part.clone() for part in outputs]
    executor.fit(method, training_config, 1, [job])
    assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(kept, outputs, strict=True))


def in_second_round(
    method: LocalTraining, training_config: TrainingConfig, rows: tuple[int]
) -> Job:
    """Return a job in its second round, with its own slots."""
    (job,) = jobs(norm, rows)
    (done,) = loop(norm).fit(method, training_config, 0, [job])
    return replace(job, own=done.own)


def test_a_method_may_keep_what_it_saw() -> None:
    method = Hoarder([])
    loop(norm).fit(method, config_of(SGD), 0, jobs(norm, NORM_ROWS))
    assert method.is_unharmed()


def test_the_model_it_was_given_stays_as_it_is() -> None:
    model = norm()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    Loop(model, Layout.of(model), row_loss("classification")).fit(
        FedAvg(), config_of(SGD), 0, jobs(norm, NORM_ROWS)
    )
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


class Forgetful(nn.Module):
    """Model that draws random numbers, as dropout does."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 3)

    def embed(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.drop(x)
        return dropped

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


def forgetful() -> nn.Module:
    return drawn(Forgetful())


def test_what_a_model_draws_comes_from_the_site_s_stream() -> None:
    value, executor = jobs(linear, (8, 5)), loop(forgetful)
    outside = torch.get_rng_state()
    both = executor.fit(FedAvg(), config_of(SGD), 0, value)
    turned = executor.fit(FedAvg(), config_of(SGD), 0, value[::-1])[::-1]
    for a, b in zip(both, turned, strict=True):
        assert_agree(a.sent, b.sent, atol=0)
    assert torch.equal(outside, torch.get_rng_state())


def test_batch_norm_that_counts_its_batches_is_refused() -> None:
    def counting() -> nn.Module:
        model = norm()
        layer = model.get_submodule("body.1")
        assert isinstance(layer, nn.BatchNorm2d)
        layer.momentum = None
        return model

    with pytest.raises(ValueError, match=r"batch norm 'body\.1' has momentum None"):
        loop(counting).fit(FedAvg(), config_of(SGD), 0, jobs(norm, (4,)))


# -- evaluation ------------------------------------------------------------------------


def test_predictions_use_the_given_state_and_its_statistics_in_batches() -> None:
    model = norm()
    layout, x = Layout.of(model), torch.randn(7, 2, 5, 5, generator=stream(0, "x")).double()
    state = layout.flatten(drawn(norm(), seed=1))
    layout.load(other := norm(), state).eval()
    with torch.no_grad():
        expected, features = other(x), other.embed(x)  # type: ignore[operator]
    before = {name: part.clone() for name, part in state.items()}
    for batch in (3, 512):
        assert_close(predict(model, layout, state, x, batch), expected)
        result, outputs = look(model, layout, state, x, batch)
        assert_close(result, features)
        assert torch.equal(outputs, predict(model, layout, state, x, batch))
    assert_agree(state, before, atol=0)


@pytest.mark.parametrize("make", [linear, norm])
def test_no_rows_have_predictions_of_the_right_shape(make: Callable[[], nn.Module]) -> None:
    model, (job,) = make(), jobs(make, (0,))
    layout = Layout.of(model)
    assert predict(model, layout, job.start, job.x).shape == (0, 3)
    assert look(model, layout, job.start, job.x)[0].shape == (0, 6)
