"""Margin sampling, worked examples."""

from __future__ import annotations

import torch
from torch import tensor

from fallow.strategies import Margin
from tests.simulations import Table, simulation

P = tensor(
    [[0.5, 0.4, 0.1], [0.4, 0.3, 0.3], [0.49, 0.48, 0.03], [0.9, 0.05, 0.05]]
).double()


def test_the_closest_two_classes_are_picked_first_whatever_the_third_has() -> None:
    site = Table(P.log(), torch.zeros(4, 3).double(), [0])
    picked = simulation({"a": site}, Margin()).selected(4)["a"]
    assert (
        picked[0] == 2 and picked[3] == 3 and set(picked[1:3]) == {0, 1}
    )  # .01, .1 twice, .85


def test_the_global_model_is_read_when_it_is_asked_for() -> None:
    site = Table(P.log(), P.flip(0).log(), [0])
    assert simulation({"a": site}, Margin(model="global")).selected(1) == {"a": [1]}


def test_of_one_class_every_row_is_certain_and_chance_decides() -> None:
    site = Table(torch.zeros(9, 1).double(), torch.zeros(9, 1).double(), [0])
    selected = {
        simulation({"a": site}, Margin(), seed).selected(1)["a"][0] for seed in range(9)
    }
    assert len(selected) > 1
