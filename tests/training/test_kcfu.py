"""KCFU's loss on worked examples, and its step against plain modules."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fallow.core.local import Batch, slot
from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Job
from fallow.engine.batches import Epoch, mixing
from fallow.training import KCFU, FedAvg
from fallow.training.kcfu import balanced_loss, compensation, divergence, mix_rows
from tests.engine.jobs import assert_agree, drawn, jobs, linear, loop, norm, with_pools

COUNTS = torch.tensor([8.0, 2.0, 0.0])
STEP = TrainingConfig((TrainingStage(1),), 64, Optimizer("sgd", 0.1, momentum=0.0), mix=2.0)


NONE = torch.zeros(0)


def batch(
    u: Tensor = NONE,
    mate: Tensor = NONE,
    beta: Tensor = NONE,
    pool: Tensor = NONE,
    y: Tensor = NONE,
    weight: Tensor = NONE,
) -> Batch:
    """Return a batch with only these parts."""
    return Batch(NONE, y, weight, lr=0.1, u=u, mate=mate, beta=beta, pool=pool)


def test_the_second_loss_of_two_rows_by_hand() -> None:
    teacher = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).log()
    student = torch.tensor([[0.25, 0.5, 0.25], [1.0, 1.0, 1.0]]).log()
    # a constant added to the logits changes nothing
    apart = divergence(teacher + 3, student - 1)
    assert apart.tolist() == pytest.approx(
        [0.25 * log(2) / 3, (0.2 * log(0.3) + 0.8 * log(2.4)) / 3], abs=1e-6
    )
    b = batch(beta=torch.tensor([0.25, 0.5]), mate=torch.tensor([1, 0]))
    omega = compensation(teacher.argmax(1), COUNTS, b)  # r = (0.2, 0.8, 0)
    assert omega.tolist() == pytest.approx([0.25 * 0.2 + 0.75 * 0.8, 0.5], abs=1e-6)
    assert float((omega * apart).mean()) == pytest.approx(0.05707, abs=1e-5)


def test_a_class_without_labels_is_compensated_by_nothing() -> None:
    b = batch(beta=torch.tensor([0.3, 0.3]), mate=torch.tensor([1, 0]))
    assert compensation(torch.tensor([2, 2]), COUNTS, b).tolist() == [0.0, 0.0]


def test_classes_with_equal_counts_are_compensated_alike() -> None:
    b = batch(beta=torch.tensor([0.3, 0.9]), mate=torch.tensor([1, 0]))
    omega = compensation(torch.tensor([0, 2]), torch.full((3,), 7.0), b)
    assert_close(omega, torch.full((2,), 1 / 3))


def test_each_row_is_mixed_with_its_partner() -> None:
    u = torch.tensor([[0.0, 8.0], [4.0, 0.0], [1.0, 1.0]])
    b = batch(u=u, mate=torch.tensor([1, 2, 0]), beta=torch.tensor([0.25, 0.5, 1.0]))
    assert mix_rows(b).tolist() == [[3.0, 2.0], [2.5, 0.5], [1.0, 1.0]]
    images = b._replace(u=u.view(3, 1, 2, 1))
    assert torch.equal(mix_rows(images).view(3, 2), mix_rows(b))
    sites = batch(
        u=torch.stack([u, 2 * u]), mate=b.mate.repeat(2, 1), beta=b.beta.repeat(2, 1)
    )
    assert torch.equal(mix_rows(sites)[1], 2 * mix_rows(b))


def test_the_first_loss_of_two_rows_by_hand() -> None:
    b = batch(y=torch.tensor([0, 1]), weight=torch.tensor([3.0, 1.0]))
    value = balanced_loss(
        torch.zeros(2, 3), COUNTS, b
    )  # softmax of log n_c is (0.8, 0.2, 0)
    assert float(value) == pytest.approx((-3 * log(0.8) - log(0.2)) / 2, abs=1e-6)


# -- a step ----------------------------------------------------------------------------


def site(pool: int, weighted: bool = False) -> Job:
    (job,) = with_pools(jobs(norm, (6,), weighted), (pool,))
    return replace(job, sent=None)


def plainly(job: Job, round_: int, teacher: nn.Module, steps: int = 1) -> State:
    """Run steps on one batch per epoch, as specified in the paper."""
    model = norm()
    Layout.of(model).load(model, job.start).train()
    for epoch in range(steps):
        model.zero_grad()
        loss_of(job, round_, teacher, model, epoch).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * parameter.grad)
    return Layout.of(model).flatten(model)


def loss_of(
    job: Job, round_: int, teacher: nn.Module, model: nn.Module, epoch: int
) -> Tensor:
    """Compute the loss row by row."""
    order = torch.randperm(6, generator=job.streams("batches", epoch))
    x = job.x[order]
    y = job.y[order]
    weight = job.weight[order]
    tilted = model(x) + job.counts.log()
    loss = (nn.functional.cross_entropy(tilted, y, reduction="none") * weight).mean()
    if round_ > 0:
        mix = mixing(job, Epoch(epoch, "all", 0.1), 64, 2.0)
        u = job.u[mix.rows]
        beta = mix.beta.view(-1, 1, 1, 1)
        both = beta * u + (1 - beta) * u[mix.mate]
        with torch.no_grad():
            t = teacher.eval()(both).softmax(1)
        log_s = model(both).log_softmax(1)
        r = torch.stack([job.counts.sum() / (n + 1e-6) if n else 0 * n for n in job.counts])
        r = r / r.sum()
        for j in range(6):
            k = int(mix.mate[j])
            omega = mix.beta[j] * r[t[j].argmax()] + (1 - mix.beta[j]) * r[t[k].argmax()]
            loss = loss + omega * (t[j] * (t[j].log() - log_s[j])).mean() / 6
    return loss


@pytest.mark.parametrize("round_", [0, 1, 30])
@pytest.mark.parametrize("pool", [4, 20])
def test_a_step_is_one_along_the_loss_as_it_is_written(round_: int, pool: int) -> None:
    job = site(pool, weighted=True)
    (done,) = loop(norm).fit(KCFU(), STEP, round_, [job])
    assert_agree(done.sent, plainly(job, round_, norm()))


def test_the_teacher_stays_the_model_that_was_sent_at_every_step() -> None:
    job = site(20)
    three = replace(STEP, stages=(TrainingStage(3),))
    (done,) = loop(norm).fit(KCFU(), three, 1, [job])
    assert_agree(done.sent, plainly(job, 1, norm(), steps=3))


def test_without_statistics_at_the_server_the_teacher_has_those_of_the_site() -> None:
    job = site(9)
    own = Layout.of(norm()).flatten(drawn(norm(), seed=5))["stats"]
    kept = slot({"w": own[:0], "stats": own}, STEP.optimizer)
    (done,) = loop(norm).fit(KCFU(bn="local"), STEP, 1, [replace(job, own={"bn": kept})])
    here = {**job.start, "stats": own}
    teacher = norm()
    expected = plainly(replace(job, start=here), 1, Layout.of(teacher).load(teacher, here))
    assert_agree(done.sent, expected)
    assert_agree({"w": done.sent["w"], "stats": done.own["bn"].stats}, expected)


def test_mixed_rows_move_the_statistics_of_the_student() -> None:
    with_pool, without = (
        loop(norm).fit(KCFU(), STEP, 1, [site(pool)])[0].sent["stats"] for pool in (9, 0)
    )
    assert not torch.equal(with_pool, without)


def test_a_class_without_labels_gets_no_gradient_from_labeled_rows() -> None:
    (job,) = jobs(linear, (8,))
    job = replace(job, y=job.y % 2)
    job = replace(job, counts=torch.bincount(job.y, minlength=3).double())
    (done,) = loop(linear).fit(KCFU(), STEP, 0, [job])
    layout = Layout.of(linear())
    before, after = (layout.views(state["w"]) for state in (job.start, done.sent))
    assert torch.equal(before["head.weight"][2], after["head.weight"][2])
    assert not torch.equal(before["head.weight"][:2], after["head.weight"][:2])
    assert not torch.equal(
        done.sent["w"], loop(linear).fit(FedAvg(), STEP, 0, [job])[0].sent["w"]
    )


def test_a_label_of_double_weight_counts_twice() -> None:
    (job,) = jobs(linear, (5,))
    job = replace(job, counts=torch.tensor([3.0, 2.0, 1.0]).double())
    twice = replace(
        job,
        x=torch.cat([job.x, job.x[:1]]),
        y=torch.cat([job.y, job.y[:1]]),
        weight=torch.ones(6).double(),
    )
    heavy = replace(job, weight=torch.tensor([2.0, 1, 1, 1, 1]).double() * 5 / 6)
    a, b = (loop(linear).fit(KCFU(), STEP, 0, [j])[0].sent for j in (twice, heavy))
    assert_agree(a, b)
