"""AHFAL's public code: budgets by representation ratio, and each deviation by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fallow.sites.view import SiteView
from fallow.strategies import AHFAL
from fallow_papers.ahfal.codes import RatioAHFAL
from fallow_papers.ahfal.codes.ratio import allocate, ratios, spill
from tests.simulations import Table, simulation, tables

THIRDS = [1 / 3] * 3


@pytest.mark.parametrize(
    ("counts_at_site", "expected"),
    [
        ([0, 10, 90], [19, 1, 0]),
        ([5, 10, 85], [12, 6, 2]),
        ([30, 35, 35], [10, 5, 5]),
    ],
)
def test_golden_budgets(counts_at_site: list[int], expected: list[int]) -> None:  # G9
    assert allocate(20, counts_at_site, THIRDS, [True] * 3) == expected


def test_classes_that_are_not_in_the_pool_get_nothing() -> None:
    assert allocate(20, [0, 10, 90], THIRDS, [False, True, True]) == [0, 14, 6]
    assert allocate(7, [0, 0, 0], THIRDS, [False, False, True]) == [0, 0, 7]


def test_with_more_missing_classes_than_labels_the_first_takes_its_portion_and_the_rest() -> (
    None
):
    """Half of 2 goes to class 0; the last label starts the order again."""
    assert allocate(2, [0, 0, 0, 8], [0.25] * 4, [True] * 4) == [2, 0, 0, 0]


def test_a_portion_takes_the_place_of_a_label_that_was_handed_out_before() -> None:
    """Class 0 gets 3 of 6, and two classes get one each.

    The portion of 1 of class 1 then replaces this label, and the last label goes to the
    class that needs it most.
    """
    shares = [30 / 93, 34 / 93, 29 / 93]
    assert allocate(6, [5, 31, 1], shares, [True, True, False]) == [5, 1, 0]


def test_what_is_a_tie_in_exact_numbers_is_decided_by_rounding() -> None:
    """Check rounding at an exact tie.

    Each class should have 13 of 26 labels, and class 1 does, so all 3 would go to class 0.
    But 13 / 23 * 23 is slightly below 13, so class 1 needs one too, and 4 exceeds 3.
    """
    assert 13 / 23 * 23 < 13
    assert allocate(3, [10, 13], [0.5, 0.5], [True, True]) == [2, 1]


def test_a_class_that_nobody_has_labels_of_has_an_infinite_ratio() -> None:
    assert ratios([0, 4], [0.0, 1.0]) == [float("inf"), 1.0]
    assert sum(allocate(6, [0, 4], [0.0, 1.0], [True, True])) == 6
    assert sum(allocate(6, [0, 4], [0.0, 1.0], [True, False])) == 6


def test_what_small_buckets_cannot_take_fills_the_class_with_the_smallest_ratio_first() -> (
    None
):
    assert spill(10, [5, 3, 2], [9, 1, 3], THIRDS, [0, 5, 9]) == [0, 5, 5]
    assert spill(10, [5, 3, 2], [9, 1, 3], THIRDS, [1, 1, 1]) == [1, 1, 1]


@given(st.data())
def test_budgets_sum_to_what_there_is_and_stay_within_the_pool(data: st.DataObject) -> None:
    c = data.draw(st.integers(2, 6))
    counts = st.lists(st.integers(0, 40), min_size=c, max_size=c)
    counts_at_site = data.draw(counts)
    pooled = data.draw(counts.filter(any))
    caps = data.draw(counts.filter(any))
    n = data.draw(st.integers(1, 60))
    shares = [p / sum(pooled) for p in pooled]
    quota = allocate(n, counts_at_site, shares, [cap > 0 for cap in caps])
    assert sum(quota) == n and min(quota) >= 0
    assert all(q == 0 for q, cap in zip(quota, caps, strict=True) if cap == 0)
    filled = spill(n, quota, counts_at_site, shares, caps)
    assert sum(filled) == min(n, sum(caps))
    assert all(0 <= f <= cap for f, cap in zip(filled, caps, strict=True))


def choose(strategy: Any, seed: int) -> dict[str, set[int]]:
    selected = simulation(tables(seed, rows=30, labels=12), strategy, seed).selected(8)
    return {name: set(rows) for name, rows in selected.items()}


PAPER: dict[str, Any] = {"route": "local", "counts": "true", "target": "current"}


@pytest.mark.parametrize(
    ("flag", "value"), [("route", "either"), ("counts", "global_pseudo")]
)
def test_each_oddity_changes_at_least_one_pick(flag: str, value: str) -> None:
    def with_and_without(seed: int) -> bool:
        odd = RatioAHFAL(tau=30, **{**PAPER, flag: value})
        return choose(odd, seed) != choose(RatioAHFAL(tau=30, **PAPER), seed)

    assert any(with_and_without(seed) for seed in range(10))


def test_ratio_budgets_change_at_least_one_pick() -> None:
    plain = [choose(AHFAL(tau=30), seed) for seed in range(10)]
    assert plain != [choose(RatioAHFAL(tau=30, **PAPER), seed) for seed in range(10)]


def spread_out() -> dict[str, Table]:
    """Return two sites; both models predict class 0 for examples 0-5, class 1 for 6-11."""
    score = torch.linspace(1, 2, 12, dtype=torch.float64)
    logits = torch.stack([score, torch.zeros(12, dtype=torch.float64)], 1)
    logits[6:] = logits[6:].flip(1)
    return {name: Table(logits, logits, [0, 0, 0, 1]) for name in "ab"}


@pytest.mark.parametrize(("target", "expected"), [("initial", [1, 3]), ("current", [3, 1])])
def test_the_target_is_that_of_the_first_labels(target: Any, expected: list[int]) -> None:
    strategy = RatioAHFAL(counts="true", target=target)
    federation = simulation(spread_out(), strategy)
    memo = strategy.query(federation.ask(), {"a": 1, "b": 1}, {})
    assert memo["target"] == [6, 2]
    for site in federation.members.values():
        site.memory.pop("selected")
    federation.buy({"a": [0, 1, 2], "b": [0, 1, 2]}, 0)  # 6 of 7 labels are class 0
    wanted = {"initial": [6, 2], "current": [12, 2]}[target]
    again = strategy.query(federation.ask(cycle=1), {"a": 4, "b": 4}, memo)
    assert again["target"] == wanted
    rows = federation.members["a"].memory["selected"]["rows"]
    assert [int((rows < 6).sum()), int((rows >= 6).sum())] == expected


def test_a_target_without_labels_is_not_frozen() -> None:
    strategy = RatioAHFAL()
    bare = {name: Table(t.local, t.common) for name, t in tables().items()}
    assert "target" not in strategy.query(simulation(bare, strategy).ask(), {"a": 3}, {})


def test_a_site_counts_what_the_global_model_predicts_for_its_labeled_rows() -> None:
    site = simulation(tables(labels=12), RatioAHFAL()).members["a"]
    view: Any = SiteView(site, cycle=0)
    of_global = site.x[site.labeled][:, 3:]  # the half that the global model uses
    predicted = of_global.argmax(1)
    assert (
        RatioAHFAL().count_labels(view) == torch.bincount(predicted, minlength=3).tolist()
    )
    assert RatioAHFAL(counts="true").count_labels(view) == view.counts.tolist()
    assert RatioAHFAL().count_labels(view) != view.counts.tolist()


def test_either_routing_mixes_where_the_global_class_alone_is_low() -> None:
    local = torch.tensor(
        [[4.0, 0], [3.0, 0]], dtype=torch.float64
    )  # both class 0, which is high
    common = torch.tensor(
        [[0.0, 0.1], [9.0, 0]], dtype=torch.float64
    )  # the first is class 1: low
    site = {
        "a": Table(local, common, [0, 0, 0, 1]),
        "b": Table(local, common, [0, 0, 0, 1]),
    }
    low = torch.tensor([False, True])
    target = torch.ones(2, dtype=torch.float64)
    selected = {}
    for route in ("either", "local"):
        strategy = RatioAHFAL(route=route)
        federation = simulation(site, strategy)
        federation.ask().keep(strategy.select, to={"a": {"n": 1}}, low=low, target=target)
        selected[route] = federation.members["a"].memory["selected"]["rows"].tolist()
    assert selected == {"either": [0], "local": [1]}


def test_a_negative_tau_is_refused() -> None:
    with pytest.raises(ValueError, match="tau is -1; it must be 0 or more"):
        RatioAHFAL(tau=-1)
