"""FedProx's local step against the paper's equation."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from fallow.core.local import Batch, slot
from fallow.core.training_config import Optimizer
from fallow.engine.learner import Autograd
from fallow.training import FedProx
from tests.engine.jobs import jobs, linear, loop

PLAIN = Optimizer("sgd", 0.1, momentum=0.0)


def test_a_step_follows_the_gradient_of_the_local_objective() -> None:
    (job,) = jobs(linear, (8,))
    method = FedProx(mu=0.3)
    executor = loop(linear)
    learn = Autograd(executor.network, executor.loss, PLAIN)
    w_t = slot(job.start, PLAIN)
    here = w_t._replace(w=w_t.w + 1)
    batch = Batch(job.x, job.y, job.weight, 0.1)
    gradient, _ = learn.gradient(here, batch)
    expected = here.w - 0.1 * (gradient + 0.3 * (here.w - w_t.w))  # eq. (2) of the paper
    assert_close(
        method.step({"w": here}, w_t, batch, learn)["w"].w, expected, rtol=0, atol=1e-12
    )


def test_where_the_model_was_sent_the_penalty_is_silent() -> None:
    (job,) = jobs(linear, (8,))
    executor = loop(linear)
    learn = Autograd(executor.network, executor.loss, PLAIN)
    w_t = slot(job.start, PLAIN)
    batch = Batch(job.x, job.y, job.weight, 0.1)
    with_penalty = FedProx(mu=100.0).step({"w": w_t}, w_t, batch, learn)["w"]
    assert torch.equal(with_penalty.w, learn.descend(w_t, batch).w)


@pytest.mark.parametrize("mu", [-0.1, float("nan")])
def test_a_penalty_below_zero_is_refused(mu: float) -> None:
    with pytest.raises(ValueError, match=r"mu is .*; it must be 0 or more"):
        FedProx(mu=mu)
