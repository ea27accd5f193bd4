"""Per-FedAvg: a step on a quadratic, pairs of batches, and three ways to adapt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fallow.core.disclosure import Disclosure, payload
from fallow.core.local import Batch
from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import Job, Loop, row_loss
from fallow.models.networks import Linear
from fallow.training.personal import PerFedAvg
from fallow.training.personal.perfedavg import pair
from tests.engine.jobs import assert_agree, mlp, streams
from tests.training.personal.federation import (
    CONFIG,
    deploy_to_sites,
    federation,
    first_state,
    rounds,
)

SGD = Optimizer("sgd", 0.05, momentum=0.0)


def test_on_a_quadratic_a_step_is_w_minus_beta_a_times_one_minus_alpha_a_times_w() -> None:
    a = 2.0
    alpha = 0.1
    beta = 0.05
    w = 3.0  # F(w) = a w² / 2 is the squared error of x = 1, y = 0
    model: nn.Module = Linear((1,), 1, bias=False).double()
    layout = Layout.of(model)
    start = {"w": torch.tensor([w]).double(), "stats": torch.zeros(0).double()}
    x = torch.ones(4, 1).double()
    y = torch.zeros(4).double()
    job = Job("site-0", x, y, torch.ones(4).double(), start, streams(0))
    method = PerFedAvg(TrainingConfig((TrainingStage(1),), 4, SGD), inner=alpha)
    (done,) = Loop(model, layout, row_loss("regression")).fit(
        method, method.training_config, 0, [job]
    )
    assert float(done.sent["w"]) == pytest.approx(
        w - beta * a * (1 - alpha * a) * w, abs=1e-14
    )


def batch(n: int, real: int | None = None) -> Batch:
    weight = (torch.arange(n) < (n if real is None else real)).double()
    return Batch(torch.arange(2.0 * n).view(n, 2), torch.arange(n), weight, 0.1)


def rows(b: Batch) -> list[int]:
    """Return the examples of a batch with positive weight."""
    assert b.x[:, 0].equal(2.0 * b.y)
    return b.y[b.weight > 0].tolist()


@pytest.mark.parametrize(
    ("n", "one", "two"),
    [(8, [0, 2, 4, 6], [1, 3, 5, 7]), (5, [0, 2, 4], [1, 3]), (2, [0], [1]), (1, [0], [0])],
)
def test_a_pair_is_every_other_row_and_a_single_row_is_both(
    n: int, one: list[int], two: list[int]
) -> None:
    assert [rows(b) for b in pair(batch(n))] == [one, two]


@pytest.mark.parametrize(
    ("real", "one", "two"), [(3, [0, 2], [1]), (2, [0], [1]), (1, [0], [0])]
)
def test_padding_does_not_change_the_pair(
    real: int, one: list[int], two: list[int]
) -> None:
    alone = batch(8, real)
    padded = batch(8)
    assert [rows(b) for b in pair(alone)] == [one, two]
    stack = Batch(
        x=torch.stack([alone.x, padded.x]),
        y=torch.stack([alone.y, padded.y]),
        weight=torch.stack([alone.weight, padded.weight]),
        lr=0.1,
    )
    halves = pair(stack)
    assert [rows(b._replace(x=b.x[0], y=b.y[0], weight=b.weight[0])) for b in halves] == [
        one,
        two,
    ]
    assert [b.y[1].tolist() for b in halves] == [[0, 2, 4, 6], [1, 3, 5, 7]]


def sgd_from(
    w: Tensor, x: Tensor, y: Tensor, batches: list[Tensor], lr: float
) -> dict[str, Tensor]:
    model = mlp()
    Layout.of(model).load(model, {"w": w, "stats": w[:0]})
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for at in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[at]), y[at]).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()
    return Layout.of(model).flatten(model)


@pytest.mark.parametrize("adapt", ["one_epoch", "one_step"])
def test_the_common_model_adapts_by_plain_descent(adapt: Any) -> None:
    method = PerFedAvg(CONFIG, inner=0.02, eval_adapt=adapt)
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 2)
    site = channel.members["a"]
    order = torch.randperm(8, generator=site.streams("batches", "adapted", 0, 1, 0))
    batches = list(torch.split(order, 4 if adapt == "one_epoch" else 8))
    by_hand = sgd_from(state["w"], site.x, site.labels, batches, 0.02)
    assert_agree(deploy_to_sites(channel, method, state)["a"], by_hand)


def test_after_local_training_a_site_may_deploy_what_it_sent() -> None:
    method = PerFedAvg(CONFIG, eval_adapt="after_local")
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 2)
    values = deploy_to_sites(channel, method, state)
    assert all(
        values[s]["w"].equal(channel.members[s].memory["local"]["w"]) for s in values
    )


@pytest.mark.parametrize(("adapt", "models"), [("one_epoch", 4), ("after_local", 3)])
def test_a_model_comes_once_a_round_and_the_last_one_to_be_adapted(
    adapt: Any, models: int
) -> None:
    method = PerFedAvg(CONFIG, eval_adapt=adapt)
    shown = Disclosure()
    rounds(federation(mlp, method), method, first_state(mlp), 3, shown=shown)
    assert shown.bytes_down == 3 * models * payload({**first_state(mlp)})


def test_in_a_new_cycle_and_to_another_cohort_the_model_is_sent_again() -> None:
    method = PerFedAvg(CONFIG)
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 1)
    for site in channel.members.values():
        site.forget(("own/",))  # as at the end of a cycle
    after = rounds(channel, method, state, 2, {1: ("a", "b")})
    plain = replace(method, eval_adapt="after_local")  # which sends in every round
    again = rounds(federation(mlp, plain), plain, state, 2, {1: ("a", "b")})
    assert_agree(after, again, atol=0)


@pytest.mark.parametrize(("field", "value"), [("inner", 0.0), ("eval_adapt", "twice")])
def test_a_field_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"PerFedAvg's {field} is"):
        PerFedAvg(**{field: value})
