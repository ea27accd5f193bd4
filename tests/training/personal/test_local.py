"""Local training, and FedAvg whose sites deploy the last locally trained model."""

from __future__ import annotations

from dataclasses import replace

import torch

from fallow.core.disclosure import Disclosure, payload
from fallow.core.training_config import Optimizer
from fallow.training.personal import FedAvgPost, Local
from tests.engine.jobs import assert_agree, mlp
from tests.training.personal.federation import (
    CONFIG,
    deploy_to_sites,
    federation,
    first_state,
    rounds,
    train_and_deploy,
)


def test_every_site_goes_on_from_its_own_model() -> None:
    shared = train_and_deploy(mlp, Local(CONFIG), n=2)
    alone = train_and_deploy(mlp, Local(CONFIG), {"b": 6}, n=2)
    assert torch.equal(shared["b"]["w"], alone["b"]["w"])
    assert not torch.equal(shared["a"]["w"], shared["b"]["w"])


def test_two_rounds_are_one_optimizer_over_all_epochs_where_moments_persist() -> None:
    training_config = replace(CONFIG, optimizer=Optimizer(lr=0.05, persist=True))
    ours = train_and_deploy(mlp, Local(training_config), {"a": 8}, n=2)["a"]
    channel = federation(mlp, Local(training_config), {"a": 8})
    site = channel.members["a"]
    model = by_hand(
        site.x,
        site.labels,
        [site.streams("batches", "local", 0, r, e) for r in (0, 1) for e in (0, 1)],
    )
    assert_agree(ours, model)


def by_hand(
    x: torch.Tensor, y: torch.Tensor, draws: list[torch.Generator]
) -> dict[str, torch.Tensor]:
    model = mlp().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for draw in draws:
        for rows in torch.split(torch.randperm(len(y), generator=draw), 4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
    return {
        "w": torch.cat([p.detach().flatten() for p in model.parameters()]),
        "stats": torch.zeros(0, dtype=torch.float64),
    }


def test_a_site_is_sent_the_first_model_once_and_sends_nothing() -> None:
    channel = federation(mlp, Local(CONFIG))
    shown = Disclosure()
    rounds(channel, Local(CONFIG), first_state(mlp), 3, shown=shown)
    assert shown.bytes_down == 3 * payload({**first_state(mlp)})
    assert shown.bytes_up == 0


def test_after_local_training_a_site_deploys_its_own_copy_and_the_server_the_average() -> (
    None
):
    method = FedAvgPost(CONFIG)
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 2)
    models = deploy_to_sites(channel, method, state)
    mean = (8 * models["a"]["w"] + 6 * models["b"]["w"] + 12 * models["c"]["w"]) / 26
    torch.testing.assert_close(state["w"], mean, rtol=0, atol=1e-14)
    assert not torch.equal(models["a"]["w"], state["w"])
