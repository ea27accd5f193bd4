"""The evidential loss on worked examples, and the effect of each of its terms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.testing import assert_close

from fallow.core.local import Batch, slot
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer
from fallow.engine.learner import Autograd
from fallow.training import Evidential
from fallow.training.evidential import loss
from tests.engine.jobs import jobs, linear, loop

PLAIN = Optimizer("sgd", 1.0, momentum=0.0)
LOGITS = torch.tensor(
    [[2.0, -1.0, 0.0], [2.0, -1.0, 0.0]], dtype=torch.float64
)  # α = (3, 1, 1)
LABELS = torch.tensor([0, 1])
SHARES = torch.tensor([0.5, 0.25], dtype=torch.float64)


@pytest.mark.parametrize(
    ("annealed", "first", "second"),
    [  # fit: (2 - 1/2)(1/3 + 1/4) and (2 - 1/4)(1 + 1/2 + 1/3 + 1/4); pull: -3/5 of the logit
        (0.0, 0.875 - 0.01 * 1.2, 3.645833 + 0.01 * 0.6),
        (0.4, 0.875 - 0.01 * 1.2, 3.645833 + 0.01 * (0.4 * 0.62503 + 0.6)),
        (1.0, 0.875 - 0.01 * 1.2, 3.645833 + 0.01 * (0.62503 + 0.6)),
    ],
)
def test_the_loss_of_two_rows_by_hand(annealed: float, first: float, second: float) -> None:
    value = loss(LOGITS, LABELS, SHARES, annealed)
    assert value.tolist() == pytest.approx([first, second], abs=1e-6)


def test_the_divergence_is_that_of_torch_with_the_right_class_taken_out() -> None:
    draw = stream(0, "logits")
    logits = 3 * torch.randn(30, 5, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 5, (30,), generator=draw)
    share = torch.full((30,), 0.2, dtype=torch.float64)
    a = logits.clamp_min(0) + 1
    a[torch.arange(30), y] = 1.0
    expected = kl_divergence(Dirichlet(a), Dirichlet(torch.ones_like(a)))
    ours = (loss(logits, y, share, 1.0) - loss(logits, y, share, 0.0)) / 0.01
    assert_close(ours, expected, rtol=0, atol=1e-10)


def test_a_rarer_class_weighs_more_and_at_most_twice_a_class_that_is_alone() -> None:
    rows = torch.stack([LOGITS[0]] * 3)
    shares = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    pull = -0.01 * 1.2
    fit = loss(rows, torch.zeros(3, dtype=torch.int64), shares, 0.0) - pull
    assert_close(fit / fit[2], torch.tensor([2.0, 1.5, 1.0], dtype=torch.float64))


def test_where_there_is_no_evidence_the_right_logit_is_still_pulled_up() -> None:
    logits = torch.tensor([[-2.0, -1.0, -3.0]], dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(loss(logits, LABELS[1:], SHARES[1:], 1.0).sum(), logits)
    assert_close(
        g, torch.tensor([[0.0, -0.01, 0.0]], dtype=torch.float64)
    )  # -C / S = -3 / 3


def test_the_pull_does_not_see_the_strength_of_all_evidence_as_a_variable() -> None:
    logits = LOGITS[:1].clone().requires_grad_()
    (g,) = torch.autograd.grad(loss(logits, LABELS[:1], SHARES[:1], 0.0).sum(), logits)
    psi1 = torch.special.polygamma(1, torch.tensor([5.0, 3.0], dtype=torch.float64))
    fit = 1.5 * torch.stack([psi1[0] - psi1[1], torch.tensor(0.0).double()])
    assert_close(g[0, :2], fit + torch.tensor([-0.01 * 3 / 5, 0.0]).double())


# -- a step ----------------------------------------------------------------------------


def gradient(round_: int, counts: Tensor) -> Tensor:
    """Return the update of the weights by a step with rate 1 in round ``round_``."""
    (job,) = jobs(linear, (8,), weighted=True)
    executor = loop(linear)
    learn = Autograd(executor.network, executor.loss, PLAIN)
    at = slot(job.start, PLAIN)
    b = Batch(job.x, job.y, job.weight, 1.0, counts, round_)
    return at.w - Evidential().step({"w": at}, at, b, learn)["w"].w


COUNTS = torch.tensor([5.0, 2.0, 1.0], dtype=torch.float64)


def test_the_divergence_is_annealed_over_ten_rounds_and_then_counts_in_full() -> None:
    start = gradient(0, COUNTS)
    end = gradient(10, COUNTS)
    assert not torch.equal(start, end)
    assert_close(gradient(3, COUNTS), start + 0.3 * (end - start))
    assert torch.equal(gradient(57, COUNTS), end)


def test_a_step_follows_the_weighted_mean_of_the_loss() -> None:
    (job,) = jobs(linear, (8,), weighted=True)
    model = linear()
    share = (COUNTS / 8)[job.y]
    rows = loss(model(job.x), job.y, share, 0.3)
    (rows * job.weight).mean().backward()  # type: ignore[no-untyped-call]  # torch has no type for it
    gradients = [parameter.grad for parameter in model.parameters()]
    expected = torch.cat([part.flatten() for part in gradients if part is not None])
    assert_close(gradient(3, COUNTS), expected, rtol=0, atol=1e-12)


def test_only_shares_of_the_counts_matter() -> None:
    assert_close(gradient(2, COUNTS), gradient(2, 7 * COUNTS))
    assert not torch.equal(gradient(2, COUNTS), gradient(2, COUNTS.flip(0)))
