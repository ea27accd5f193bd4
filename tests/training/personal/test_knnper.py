"""kNN-Per: the mixture on worked examples, and edge cases."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.sites.view import SiteView
from fallow.training.personal import KNNPer
from tests.engine.jobs import mlp
from tests.training.personal.federation import CONFIG, federation, first_state

STORED = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], dtype=torch.float64)
VOTES = torch.eye(3, dtype=torch.float64)[
    [0, 1, 0, 2]
]  # their squared distances to 0: 0, 1, 4, 9
HERE = torch.zeros(1, 2, dtype=torch.float64)


def test_shares_of_the_three_nearest_of_four_points() -> None:
    e = [exp(-d / 2) for d in (0, 1, 4)]  # D σ = 2
    by_hand = torch.tensor([[e[0] + e[2], e[1], 0.0]], dtype=torch.float64) / sum(e)
    assert_close(KNNPer(k=3).neighbors(HERE, STORED, VOTES), by_hand, rtol=0, atol=1e-15)


def test_a_site_with_fewer_points_than_neighbors_asks_all_of_them() -> None:
    every = KNNPer(k=4).neighbors(HERE, STORED, VOTES)
    assert KNNPer(k=10).neighbors(HERE, STORED, VOTES).equal(every)


def test_a_wider_kernel_counts_points_more_alike() -> None:
    shares = KNNPer(k=4, sigma=1e9).neighbors(HERE, STORED, VOTES)
    assert_close(shares, torch.tensor([[0.5, 0.25, 0.25]]).double(), rtol=0, atol=1e-7)


def test_the_softmax_of_sums_by_hand() -> None:
    sums = torch.tensor([[1 + exp(-4), exp(-1), exp(-9)]], dtype=torch.float64)
    values = KNNPer(k=4, kernel="softmax_of_sums").neighbors(HERE, STORED, VOTES)
    assert_close(values, sums.softmax(1), rtol=0, atol=1e-15)


@pytest.mark.parametrize("far", [1e3, 1e8])
def test_far_away_shares_are_still_of_the_nearest_and_the_softmax_says_nothing(
    far: float,
) -> None:
    at = torch.full((1, 2), far, dtype=torch.float64)
    near = KNNPer(k=1).neighbors(at, STORED, VOTES)
    assert near.equal(VOTES[3:])
    flat = KNNPer(k=1, kernel="softmax_of_sums").neighbors(at, STORED, VOTES)
    assert_close(flat, torch.full((1, 3), 1 / 3, dtype=torch.float64))


def view(method: KNNPer, rows: int = 8) -> SiteView:
    return SiteView(federation(mlp, method, {"a": rows}).members["a"], 0)


def mixture(seen: SiteView, k: int, weight: float) -> Tensor:
    """Compute the mixture row by row."""
    x = seen.rows("labeled")
    z, outputs = seen.look(first_state(mlp), x)
    made = []
    for at in range(len(x)):
        d = (z - z[at]).square().sum(1)
        near = d.argsort()[:k]
        share = (-d[near] / z.shape[1]).exp()
        p = torch.zeros(3, dtype=torch.float64)
        for row, s in zip(near, share / share.sum(), strict=True):
            p[seen.labels[row]] += s
        made.append(weight * p + (1 - weight) * outputs[at].softmax(0))
    return torch.stack(made)


@pytest.mark.parametrize(("k", "weight"), [(3, 0.5), (5, 0.9), (20, 1.0)])
def test_a_site_predicts_the_mixture(k: int, weight: float) -> None:
    seen = view(KNNPer(CONFIG, k=k, weight=weight))
    outputs = seen.outputs(first_state(mlp), seen.rows("labeled"))
    assert bool(outputs.isfinite().all())
    assert_close(outputs.softmax(1), mixture(seen, k, weight), rtol=0, atol=1e-12)


def test_rows_may_come_in_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view(KNNPer(CONFIG, k=3))
    rows = seen.rows("labeled")
    whole = seen.outputs(first_state(mlp), rows)
    monkeypatch.setattr("fallow.training.personal.knnper.CHUNK", 3)
    assert_close(seen.outputs(first_state(mlp), rows), whole, rtol=0, atol=1e-14)


def test_without_labels_a_site_asks_the_model_alone() -> None:
    method = KNNPer(CONFIG)
    channel = federation(mlp, method, {"a": 0})
    seen = SiteView(channel.members["a"], 0)
    rows = seen.rows("pool")
    outcome = seen.outputs(first_state(mlp), rows)
    plain = seen.forward(first_state(mlp), rows)
    assert_close(outcome, plain.log_softmax(1), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("field", "value"), [("k", 0), ("weight", 1.1), ("sigma", 0.0), ("kernel", "gauss")]
)
def test_a_field_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"KNNPer's {field} is"):
        replace(KNNPer(), **{field: value})
