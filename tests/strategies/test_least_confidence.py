"""Least-confidence sampling, worked examples."""

from __future__ import annotations

import torch
from torch import tensor

from fallow.strategies import LeastConfidence
from tests.simulations import Table, simulation

P = tensor(
    [[0.5, 0.4, 0.1], [0.4, 0.35, 0.25], [0.49, 0.48, 0.03], [0.9, 0.05, 0.05]]
).double()


def test_the_smallest_largest_probability_is_picked_first() -> None:
    site = Table(P.log(), torch.zeros(4, 3).double(), [0])
    assert simulation({"a": site}, LeastConfidence()).selected(4) == {"a": [1, 2, 0, 3]}


def test_the_global_model_is_read_when_it_is_asked_for() -> None:
    site = Table(P.log(), P.flip(0).log(), [0])
    assert simulation({"a": site}, LeastConfidence(model="global")).selected(2) == {
        "a": [2, 1]
    }
