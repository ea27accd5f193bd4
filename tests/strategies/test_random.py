"""Random sampling is uniform, and every draw has its own random stream."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from fallow.strategies import Random
from tests.simulations import Simulation, Table, simulation


def site_of(rows: int, seed: int, *labels: int) -> Simulation:
    blank = torch.zeros(rows, 2, dtype=torch.float64)
    return simulation({"a": Table(blank, blank, labels)}, Random(), seed)


@pytest.mark.long
def test_every_row_is_equally_likely() -> None:
    drawn = [row for seed in range(400) for row in site_of(10, seed).selected(3)["a"]]
    assert chisquare(torch.bincount(torch.tensor(drawn), minlength=10)).pvalue > 0.01


@pytest.mark.long
def test_every_pair_of_rows_is_equally_likely() -> None:
    pairs = [
        sum(2**row for row in site_of(5, seed).selected(2)["a"]) for seed in range(400)
    ]
    seen = torch.bincount(torch.tensor(pairs))
    assert int((seen > 0).sum()) == 10
    assert chisquare(seen[seen > 0]).pvalue > 0.01


def test_cycles_and_sites_draw_differently() -> None:
    blank = torch.zeros(30, 2, dtype=torch.float64)
    two = simulation({"a": Table(blank, blank), "b": Table(blank, blank)}, Random())
    first, later = two.selected(10, cycle=0), two.selected(10, cycle=1)
    assert first["a"] != first["b"]
    assert first["a"] != later["a"]


def test_the_first_query_does_not_repeat_the_draw_of_the_first_labels() -> None:
    """Check the streams of cycle 0; a shared one would fix the first query modulo 50."""
    repeated = 0
    for seed in range(20):
        federation = site_of(100, seed)
        first = federation.selected(50)["a"]
        federation.buy({"a": first}, label=0)
        rest = federation.members["a"].pool.tolist()
        repeated += rest.index(federation.selected(1)["a"][0]) == first[0] % 50
    assert repeated <= 3
