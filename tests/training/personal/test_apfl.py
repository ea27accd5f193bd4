"""APFL: the gradient of α by finite differences, a worked step, and the deployed model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.build import build
from fallow.core.local import Batch, TrainState, slot
from fallow.core.training_config import Optimizer
from fallow.engine import Loop
from fallow.engine.learner import Autograd
from fallow.training import personal
from fallow.training.personal import APFL
from fallow.training.personal.apfl import number
from tests.engine.jobs import loop, mlp
from tests.training.personal.federation import (
    CONFIG,
    deploy_to_sites,
    federation,
    first_state,
    rounds,
)

SGD = Optimizer("sgd", 0.1, momentum=0.0)
X = torch.linspace(-1, 1, 18, dtype=torch.float64).view(3, 6)
BATCH = Batch(X, torch.tensor([0, 1, 2]), torch.ones(3).double(), 0.1)


def learner() -> Autograd:
    executor: Loop = loop(mlp)
    return Autograd(executor.network, executor.loss, SGD)


def slots(alpha: float) -> dict[str, TrainState]:
    w = slot(first_state(mlp), SGD)
    v = w._replace(w=w.w + torch.linspace(-0.5, 0.6, w.w.numel(), dtype=torch.float64))
    return {"w": w, "v": v, "alpha": number(alpha, w)}


def loss(learn: Autograd, w: Tensor) -> float:
    learn.batch_losses = []
    learn.gradient(slot({"w": w, "stats": w[:0]}, SGD), BATCH)
    return float(learn.batch_losses[0][0])


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_alpha_moves_along_the_slope_of_the_loss_of_the_mixture(alpha: float) -> None:
    learn = learner()
    s = slots(alpha)
    tiny = 1e-6
    v = s["v"].w
    w = s["w"].w
    above, below = (
        loss(learn, (alpha + e) * v + (1 - alpha - e) * w) for e in (tiny, -tiny)
    )
    slope = (above - below) / (2 * tiny)
    now = APFL(alpha_lr=0.01).step(s, s["w"], BATCH, learn)
    assert abs(slope) > 0.01
    assert_close(float(now["alpha"].w), alpha - 0.01 * slope, rtol=0, atol=1e-9)


def test_a_step_by_hand() -> None:
    learn = learner()
    s = slots(0.3)
    now = APFL().step(s, s["w"], BATCH, learn)
    v = s["v"].w
    w = s["w"].w
    g = learn.gradient(s["w"]._replace(w=0.3 * v + 0.7 * w), BATCH)[0]
    assert_close(now["v"].w, v - 0.1 * 0.3 * g, rtol=0, atol=1e-15)
    assert_close(now["w"].w, w - 0.1 * learn.gradient(s["w"], BATCH)[0], rtol=0, atol=1e-15)
    assert_close(now["alpha"].w, 0.3 - 0.1 * ((v - w) * g).sum(0, keepdim=True))


@pytest.mark.parametrize(("rate", "end"), [(1e6, 1.0), (-1e6, 0.0)])
def test_alpha_stays_between_0_and_1(rate: float, end: float) -> None:
    learn = learner()
    s = slots(0.5)
    slope = float(
        (
            (s["v"].w - s["w"].w)
            * learn.gradient(s["w"]._replace(w=(s["v"].w + s["w"].w) / 2), BATCH)[0]
        ).sum()
    )
    swapped = s if (slope < 0) == (rate > 0) else {**s, "v": s["w"], "w": s["v"]}
    now = APFL(alpha_lr=abs(rate)).step(swapped, s["w"], BATCH, learn)
    assert float(now["alpha"].w) == end


def test_a_fixed_alpha_does_not_move() -> None:
    s = slots(0.5)
    now = APFL(adaptive=False).step(s, s["w"], BATCH, learner())
    assert float(now["alpha"].w) == 0.5


def test_a_site_deploys_its_mixture_of_parameters() -> None:
    method = APFL(CONFIG, alpha=0.5)
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 2)
    for name, site in channel.members.items():
        kept = site.memory
        a = float(kept["own/alpha"]["w"])
        assert 0 < a < 1 and a != 0.5
        mixture = a * kept["own/v"]["w"] + (1 - a) * kept["local"]["w"]
        assert_close(
            deploy_to_sites(channel, method, state)[name]["w"], mixture, rtol=0, atol=1e-15
        )


def test_where_a_site_has_not_trained_it_deploys_the_common_model() -> None:
    assert APFL().deploy(first_state(mlp), {})["w"].equal(first_state(mlp)["w"])


@pytest.mark.parametrize(
    ("field", "value"), [("alpha", 1.5), ("alpha", -0.1), ("alpha_lr", -1.0)]
)
def test_a_field_out_of_range_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"APFL's {field} is {value}"):
        build(personal, "apfl", **{field: value})
