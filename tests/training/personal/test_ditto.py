"""Ditto: a worked step, and where the personalized model starts and is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fallow.core.local import Batch, slot
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import Loop
from fallow.engine.learner import Autograd
from fallow.training.personal import Ditto
from tests.engine.jobs import loop, mlp
from tests.training.personal.federation import (
    deploy_to_sites,
    federation,
    first_state,
    rounds,
)

SGD = Optimizer("sgd", 0.1, momentum=0.0)
PLAIN = TrainingConfig((TrainingStage(1),), 4, SGD)


def test_the_personal_step_is_pulled_to_the_model_that_was_sent() -> None:
    executor: Loop = loop(mlp)
    learn = Autograd(executor.network, executor.loss, SGD)
    batch = Batch(
        torch.ones(3, 6).double(), torch.tensor([0, 1, 2]), torch.ones(3).double(), 0.1
    )
    sent = slot(first_state(mlp), SGD)
    v = sent._replace(w=sent.w + 0.5)
    now = Ditto(lam=0.75).step({"w": sent, "v": v}, sent, batch, learn)
    at_w = learn.gradient(sent, batch)[0]
    at_v = learn.gradient(v, batch)[0]
    assert_close(now["w"].w, sent.w - 0.1 * at_w, rtol=0, atol=1e-15)
    assert_close(now["v"].w, v.w - 0.1 * (at_v + 0.75 * (v.w - sent.w)), rtol=0, atol=1e-15)


def test_the_personal_model_begins_at_the_first_one_and_is_not_reset() -> None:
    method: Any = Ditto(PLAIN)
    channel = federation(mlp, method)
    before = rounds(channel, method, first_state(mlp), 1)
    kept = deploy_to_sites(channel, method, before)["a"]["w"]
    slots = method.start(slot(before, SGD), {})
    assert torch.equal(slots["v"].w, before["w"])
    slots = method.start(
        slot(before, SGD), {"v": slot(channel.members["a"].memory["own/v"], SGD)}
    )
    assert torch.equal(slots["v"].w, kept)
    assert not torch.equal(kept, channel.members["a"].memory["local"]["w"])


def test_a_larger_pull_keeps_personal_models_nearer_to_each_other() -> None:
    apart = []
    for lam in (0.0, 0.75, 3.0):
        channel = federation(mlp, Ditto(PLAIN, lam=lam))
        state = rounds(channel, Ditto(PLAIN, lam=lam), first_state(mlp), 4)
        models = deploy_to_sites(channel, Ditto(PLAIN, lam=lam), state)
        apart.append(float((models["a"]["w"] - models["b"]["w"]).norm()))
    assert apart[0] > apart[1] > apart[2]


def test_a_negative_pull_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lam is -1.*0 or more"):
        Ditto(lam=-1.0)
