"""KSAS with the NaN of public code."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from fallow.core.streams import stream
from fallow.strategies import KSAS
from fallow_papers.ahfal.codes import NaNKSAS
from fallow_papers.ahfal.codes.kafal import discrepancy
from tests.simulations import Table, simulation, tables


def test_one_class_without_labels_makes_every_score_nan_and_none_does_not() -> None:
    draw = stream(0, "logits")
    local = torch.randn(5, 3, generator=draw)
    globe = torch.randn(5, 3, generator=draw)
    for counts in product([0.0, 4.0], repeat=3):
        score = discrepancy(local, globe, torch.tensor(counts))
        assert bool(score.isnan().all()) == (0.0 in counts)
        assert bool(score.isnan().any()) == (0.0 in counts)


def test_golden_score_with_every_class_there() -> None:  # G14
    local = torch.tensor([[2.0, 1.0, 0.0]])
    globe = torch.tensor([[0.0, 1.0, 2.0]])
    assert float(discrepancy(local, globe, torch.ones(3))) == pytest.approx(
        1.1504, abs=5e-5
    )


def test_where_sites_know_every_class_it_is_ksas() -> None:
    sites = {name: Table(t.local, t.common, [0, 0, 1, 2]) for name, t in tables().items()}
    assert simulation(sites, NaNKSAS()).selected(5) == simulation(sites, KSAS()).selected(5)


def test_where_a_site_lacks_a_class_it_picks_at_random_and_the_notes_count_such_sites() -> (
    None
):
    made = tables()
    sites = {
        "a": Table(made["a"].local, made["a"].common, [0, 1, 1]),
        "b": Table(made["b"].local, made["b"].common, [0, 1, 2]),
        "c": Table(made["c"].local, made["c"].common, []),
    }
    runs = [simulation(sites, NaNKSAS(), seed).selected(3) for seed in range(30)]
    assert {row for run in runs for row in run["a"]} == set(range(12))
    assert len({tuple(run["b"]) for run in runs}) == 1
    assert simulation(sites, NaNKSAS()).query(3)["notes"] == {"nan_sites": 2}
    assert simulation(sites, NaNKSAS()).query({"a": 3, "b": 3, "c": 0})["notes"] == {
        "nan_sites": 1
    }


def test_a_class_whose_labels_were_bought_later_stays_unknown() -> None:
    made = tables()["a"]
    federation = simulation({"a": Table(made.local, made.common, [0, 1])}, NaNKSAS())
    memo = federation.query(2)
    federation.buy(federation.selected(2), label=2)
    assert set(federation.members["a"].labels.tolist()) == {0, 1, 2}
    again = NaNKSAS().query(federation.ask(cycle=1), {"a": 2}, memo)
    assert again["first"] == {"a": [1.0, 1.0, 0.0]} and again["notes"] == {"nan_sites": 1}
