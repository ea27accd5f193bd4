"""FedRep: which part is trained when, what is averaged, and the size of messages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from fallow.core.disclosure import Disclosure
from fallow.core.model_vectors import Layout
from fallow.core.training_config import TrainingConfig, TrainingStage
from fallow.models import build_model
from fallow.training.personal import FedRep
from tests.engine.jobs import mlp
from tests.training.personal.federation import (
    CONFIG,
    deploy_to_sites,
    federation,
    first_state,
    rounds,
)

LAYOUT = Layout.of(mlp())
HEAD: Any = LAYOUT.part("head")


@pytest.mark.parametrize(
    ("epochs", "split"), [(5, (3, 2)), (2, (1, 1)), (3, (2, 1)), (15, (10, 5)), (1, (1, 1))]
)
def test_epochs_are_shared_two_to_one(epochs: int, split: tuple[int, int]) -> None:
    stages = FedRep(
        TrainingConfig((TrainingStage(epochs),))
    ).local_training_config.trained_stages
    assert tuple((s.epochs, s.part) for s in stages) == (
        (split[0], "head"),
        (split[1], "body"),
    )


@pytest.mark.parametrize(("head", "body"), [(2, 0), (0, 2)])
def test_a_part_that_is_not_trained_is_untouched(head: int, body: int) -> None:
    method = FedRep(CONFIG, head_epochs=head, body_epochs=body)
    channel = federation(mlp, method)
    rounds(channel, method, first_state(mlp), 1)
    moved = channel.members["a"].memory["local"]["w"] != first_state(mlp)["w"]
    assert bool(moved[HEAD].any()) == (head > 0)
    assert bool(moved[~HEAD].any()) == (body > 0)


def test_bodies_are_averaged_and_heads_stay() -> None:
    method = FedRep(CONFIG)
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 1)
    local = {name: site.memory["local"]["w"] for name, site in channel.members.items()}
    mean = (8 * local["a"] + 6 * local["b"] + 12 * local["c"])[~HEAD] / 26
    assert_close(state["body"], mean, rtol=0, atol=1e-14)
    rounds(
        channel, FedRep(CONFIG, head_epochs=0, body_epochs=0), state, 1
    )  # received, nothing is trained
    for name, site in channel.members.items():
        now = deploy_to_sites(channel, method, state)[name]["w"]
        assert torch.equal(now[~HEAD], state["body"])
        assert torch.equal(now[HEAD], local[name][HEAD])
        assert torch.equal(site.memory["receive"]["w"], now)
    assert not torch.equal(local["a"][HEAD], local["b"][HEAD])


def test_only_bodies_travel_once_every_site_has_a_head() -> None:
    method = FedRep(CONFIG)
    shown = Disclosure()
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 1)
    rounds(channel, method, state, 2, shown=shown)
    body = 8 * int((~HEAD).sum())
    assert shown.bytes_down == 2 * 3 * body
    assert shown.bytes_up == 2 * 3 * (
        body + 8 + 8
    )  # also the number of examples, and a flag for the body


@pytest.mark.parametrize(
    ("net", "shape", "classes", "body", "head"),
    [
        ("lenet", (3, 32, 32), 10, 61_156, 850),
        ("lenet-femnist", (1, 28, 28), 10, 36_576, 1_010),
        ("lenet-femnist", (1, 28, 28), 62, 36_576, 6_262),
    ],
)
def test_bodies_and_heads_of_the_papers_networks(
    net: str, shape: tuple[int, ...], classes: int, body: int, head: int
) -> None:
    layout = Layout.of(build_model(net, shape, classes, Generator().manual_seed(0)))
    parts: list[Any] = [layout.part(name) for name in ("body", "head")]
    assert [int(part.sum()) for part in parts] == [body, head]


def test_epochs_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match=r"head_epochs is -1"):
        FedRep(head_epochs=-1)
