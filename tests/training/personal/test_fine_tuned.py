"""FedAvg and FedProx with fine-tuning: initial model, duration, and proximal term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from fallow.core.model_vectors import Layout
from fallow.core.types import State
from fallow.sites import LocalSite
from fallow.sites.in_process import InProcessChannel
from fallow.training.personal import FedAvgFT, FedProxFT
from tests.engine.jobs import assert_agree, mlp, optimizer_of
from tests.training.personal.federation import (
    CONFIG,
    deploy_to_sites,
    federation,
    first_state,
    rounds,
    run_last,
)


def by_hand(site: LocalSite, start: State, name: str, mu: float = 0.0) -> State:
    """Run four epochs of SGD from ``start``, twice those of a round."""
    model = mlp().train()
    layout = Layout.of(model)
    layout.load(model, start)
    anchor = [p.detach().clone() for p in model.parameters()]
    optimizer = optimizer_of(CONFIG.optimizer, model)
    for epoch in range(4):
        draw = site.streams("batches", name, 0, 9, epoch)
        for rows in torch.split(torch.randperm(len(site.labels), generator=draw), 4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(site.x[rows]), site.labels[rows])
            pairs = zip(model.parameters(), anchor, strict=True)
            (loss + mu / 2 * sum((p - a).square().sum() for p, a in pairs)).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
    return layout.flatten(model)


def train_two_rounds(method: Any) -> tuple[InProcessChannel, State]:
    channel = federation(mlp, method)
    return channel, rounds(channel, method, first_state(mlp), 2)


def remember(channel: InProcessChannel, sites: Sequence[str]) -> dict[str, State]:
    """Store another model at every site, as validation could have chosen."""
    best = {}
    for at, name in enumerate(sites):
        best[name] = {**first_state(mlp), "w": first_state(mlp)["w"] * (1.1 + at)}
        channel.members[name].remember("best", best[name])
    return best


@pytest.mark.parametrize("method", [FedAvgFT(CONFIG), FedProxFT(CONFIG, mu=0.5)])
def test_tuning_is_twice_the_epochs_of_a_round_from_the_model_that_validation_chose(
    method: Any,
) -> None:
    channel, state = train_two_rounds(method)
    best = remember(channel, "abc")
    run_last(channel, method, state)
    for name, site in channel.members.items():
        assert_agree(
            deploy_to_sites(channel, method, state)[name],
            by_hand(site, best[name], "tuned"),
        )


def test_the_pull_may_stay_towards_the_model_that_tuning_begins_at() -> None:
    method = FedProxFT(CONFIG, mu=0.5, tune_prox=True)
    channel, state = train_two_rounds(method)
    best = remember(channel, "abc")
    run_last(channel, method, state)
    for name, site in channel.members.items():
        assert_agree(
            deploy_to_sites(channel, method, state)[name],
            by_hand(site, best[name], "local", mu=0.5),
        )


@pytest.mark.parametrize("tune_prox", [False, True])
def test_without_validation_the_last_common_model_is_tuned(tune_prox: bool) -> None:
    method = FedProxFT(CONFIG, mu=0.5, tune_prox=tune_prox)
    channel, state = train_two_rounds(method)
    run_last(channel, method, state)
    site = channel.members["c"]
    name = "local" if tune_prox else "tuned"
    ours = deploy_to_sites(channel, method, state)["c"]
    assert_agree(ours, by_hand(site, state, name, mu=0.5 if tune_prox else 0.0))


def test_until_then_the_common_model_is_deployed() -> None:
    for method in (FedAvgFT(CONFIG), FedProxFT(CONFIG)):
        channel, state = train_two_rounds(method)
        assert all(
            model is state for model in deploy_to_sites(channel, method, state).values()
        )


def test_a_negative_pull_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mu is -0.1.*0 or more"):
        FedProxFT(mu=-0.1)
