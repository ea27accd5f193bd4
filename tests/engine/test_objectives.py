"""Custom losses, teachers, and the second stream of examples, in the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.local import Batch, Learner, TrainState, weighted_mean
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import predict, row_loss
from fallow.training import FedAvg
from tests.engine.jobs import (
    assert_agree,
    jobs,
    linear,
    loop,
    norm,
    optimizer_of,
    with_pools,
)
from tests.engine.methods import Stepping

SGD = Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01)
CONFIG = TrainingConfig((TrainingStage(2),), 4, SGD)
ROWS = (12, 6, 4)  # batches of 4 whose remainder is not 1: batch norm needs two examples


def test_the_loss_of_the_task_is_an_objective_like_any_other() -> None:
    def by(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        loss = row_loss("classification")
        return learn.descend(
            w, b, objective=lambda f: weighted_mean(loss(f(b.x), b.y), b.weight)
        )

    many_jobs = jobs(norm, ROWS, weighted=True)
    ours, plain = (
        loop(norm).fit(m, CONFIG, 0, many_jobs) for m in (Stepping(by), FedAvg())
    )
    for a, b in zip(ours, plain, strict=True):
        assert_agree(a.sent, b.sent, atol=0)


def test_an_objective_may_pass_twice_and_both_passes_move_the_statistics() -> None:
    def by(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        return learn.descend(w, b, objective=lambda f: (f(b.x) * f(2 * b.x + 1)).mean())

    (job,) = jobs(norm, (4,))
    (done,) = loop(norm).fit(
        Stepping(by), replace(CONFIG, stages=(TrainingStage(1),)), 0, [job]
    )
    model = norm().train()
    optimizer = optimizer_of(SGD, model)
    rows = job.x[torch.randperm(4, generator=stream(0, "batches", 0, 0, 0))]
    (model(rows) * model(2 * rows + 1)).mean().backward()
    optimizer.step()
    assert_agree(done.sent, Layout.of(model).flatten(model))


def test_a_teacher_is_asked_in_evaluation_mode_and_leaves_no_trace() -> None:
    batch_losses = []

    def by(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        def objective(f: Callable[[Tensor], Tensor]) -> Tensor:
            first = f(b.x)
            batch_losses.append(
                (b.x, learn.predict(w_t, b.x))
            )  # between the passes of a graph
            return weighted_mean((first * f(b.x)).sum(-1), b.weight)

        return learn.descend(w, b, objective=objective)

    def quiet(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        return learn.descend(
            w, b, objective=lambda f: weighted_mean((f(b.x) * f(b.x)).sum(-1), b.weight)
        )

    (job,) = jobs(norm, (8,))
    training_config = replace(CONFIG, optimizer=replace(SGD, lr=0.01))
    with_teacher, without = (
        loop(norm).fit(Stepping(m), training_config, 0, [job]) for m in (by, quiet)
    )
    assert_agree(with_teacher[0].sent, without[0].sent, atol=0)
    model = norm()
    for x, teacher_outputs in batch_losses:
        assert not teacher_outputs.requires_grad
        assert_close(
            teacher_outputs,
            predict(model, Layout.of(model), job.start, x),
            rtol=0,
            atol=1e-12,
        )
    assert len(batch_losses) == 4


def test_the_model_that_was_sent_is_not_the_one_that_trains_from_scratch() -> None:
    seen = []

    def by(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        seen.append((w, w_t))
        return learn.descend(w, b)

    (job,) = with_pools(jobs(linear, (8,)), (0,))
    (done,) = loop(linear).fit(Stepping(by), CONFIG, 0, [job])
    assert job.sent is not None
    assert torch.equal(seen[0][0].w, job.start["w"])
    assert all(torch.equal(w_t.w, job.sent["w"]) for _, w_t in seen)
    assert_agree(done.sent, loop(linear).fit(FedAvg(), CONFIG, 0, [job])[0].sent, atol=0)


def test_a_batch_carries_the_counts_the_round_and_what_training_mixes_in() -> None:
    seen: list[Batch] = []

    def by(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        seen.append(b)
        return learn.descend(w, b)

    pools = with_pools(jobs(norm, ROWS), (3, 0, 9))
    training_config = replace(CONFIG, mix=2.0, stages=(TrainingStage(1),))
    mixed = loop(norm).fit(Stepping(by), training_config, 5, pools)
    plain = loop(norm).fit(FedAvg(), replace(training_config, mix=None), 5, pools)
    for a, b in zip(mixed, plain, strict=True):
        assert_agree(a.sent, b.sent, atol=0)  # a second stream does not change the first
    assert {b.round for b in seen} == {5}
    sites = [pools[k] for k in (0, 0, 0, 1, 1, 2)]  # 12, 6 and 4 examples in batches of 4
    assert all(
        torch.equal(b.counts, job.counts) for b, job in zip(seen, sites, strict=True)
    )
    assert [len(b.u) for b in seen] == [4, 4, 4, 0, 0, 4]
    for batch in seen:
        if len(batch.u):
            assert batch.u.shape == batch.x.shape
            assert batch.pool.tolist() == [1.0] * len(batch.x)
            assert batch.beta.dtype == batch.x.dtype and batch.mate.dtype == torch.int64


def test_rows_of_the_pool_are_augmented_by_a_stream_of_their_own() -> None:
    seen: list[Batch] = []

    def by(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
        seen.append(b)
        return learn.descend(w, b)

    pools = with_pools(jobs(norm, (8,)), (8,))
    training_config = replace(CONFIG, mix=2.0, stages=(TrainingStage(1),))
    for augments in ((), ("crop2",)):
        loop(norm).fit(Stepping(by), replace(training_config, augment=augments), 0, pools)
    plain, cropped = seen[:2], seen[2:]
    for a, b in zip(plain, cropped, strict=True):
        assert torch.equal(a.mate, b.mate) and torch.equal(a.beta, b.beta)
        assert not torch.equal(a.u, b.u)
