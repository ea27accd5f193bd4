"""SCAFFOLD against Algorithm 1 of its paper, with the control variates of option II."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fallow.core.model_vectors import Layout
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import Loop
from fallow.engine.stacked import Stacked
from fallow.training import FedAvg, Scaffold
from tests.engine.jobs import mlp
from tests.laws.test_training_laws import ROWS, sites, trained

RATE = 0.05
CONFIG = TrainingConfig((TrainingStage(2),), 4, Optimizer("sgd", RATE, momentum=0.0))


def paper(rounds: int) -> Tensor:
    """Return the global model, by the change of local models divided by steps and learning rate."""
    model = mlp().train()
    layout = Layout.of(model)
    members = sites(mlp, Scaffold(CONFIG), ROWS).members
    x = layout.flatten(model)["w"].clone()
    common = torch.zeros_like(x)  # c
    own = {name: torch.zeros_like(x) for name in members}  # c_i
    for r in range(rounds):
        total = torch.zeros_like(x)
        change = torch.zeros_like(x)
        for name, site in members.items():
            y = x.clone()
            n_steps = 0
            for epoch in range(2):
                draw = site.streams("batches", "local", 0, r, epoch)
                for at in torch.split(torch.randperm(ROWS[name], generator=draw), 4):
                    nn.utils.vector_to_parameters(y, model.parameters())
                    loss = nn.functional.cross_entropy(model(site.x[at]), site.labels[at])
                    slopes = torch.autograd.grad(loss, list(model.parameters()))
                    g = nn.utils.parameters_to_vector(slopes)
                    y = y - RATE * (g - own[name] + common)
                    n_steps += 1
            new = own[name] - common + (x - y) / (n_steps * RATE)
            change += new - own[name]
            own[name] = new
            total += ROWS[name] * y
        x = total / sum(ROWS.values())
        common = common + change / len(members)
    return x


@pytest.mark.parametrize("executor", [Loop, Stacked])
def test_rounds_are_those_of_the_paper(executor: type) -> None:
    method = Scaffold(CONFIG)
    start = Layout.of(mlp()).flatten(mlp())
    ours = trained(sites(mlp, method, ROWS, executor), method, start, rounds=3)
    assert_close(ours["w"], paper(3), rtol=0, atol=1e-12)


def test_a_site_alone_is_not_corrected() -> None:
    start = Layout.of(mlp()).flatten(mlp())
    models = []
    for method in (Scaffold(CONFIG), FedAvg(CONFIG)):
        models.append(trained(sites(mlp, method, {"a": 10}), method, start)["w"])
    assert_close(models[0], models[1], rtol=0, atol=1e-12)


def test_the_common_variate_is_the_mean_over_sites_with_labels() -> None:
    method = Scaffold(CONFIG)
    channel = sites(mlp, method, {**ROWS, "d": 0})
    state = trained(channel, method, Layout.of(mlp()).flatten(mlp()), rounds=2)
    own = [channel.members[name].memory["own/variate"]["w"] for name in ROWS]
    assert_close(state["variate"], torch.stack(own).mean(0), rtol=0, atol=1e-12)
    assert not channel.members["d"].memory["own/variate"]["w"].any()


def test_local_models_of_different_sites_end_nearer_to_the_model_of_all_rows() -> None:
    steps = TrainingConfig((TrainingStage(8),), 64, Optimizer("sgd", 0.2, momentum=0.0))
    start = Layout.of(mlp()).flatten(mlp())
    slopes = []
    for method in (Scaffold(steps), FedAvg(steps)):
        channel = sites(mlp, method, ROWS, Stacked)
        w = trained(channel, method, start, rounds=25)["w"]
        model = mlp()
        nn.utils.vector_to_parameters(w, model.parameters())
        x = torch.cat([site.x for site in channel.members.values()])
        y = torch.cat([site.labels for site in channel.members.values()])
        loss = nn.functional.cross_entropy(model(x), y)
        parts = torch.autograd.grad(loss, list(model.parameters()))
        slopes.append(float(nn.utils.parameters_to_vector(parts).norm()))
    assert slopes[0] < slopes[1] / 2
