"""AHFAL: edge cases of routing, and its three steps on small worked examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from fallow.models.scores import entropy
from fallow.strategies import AHFAL
from fallow.strategies.ahfal import moments
from tests.simulations import Table, simulation, tables

Scale = Literal["percent", "proportion", "count", "cv"]
SCALES: tuple[Scale, ...] = ("percent", "proportion", "count", "cv")


def certain(classes: Sequence[int], sharpness: Sequence[float], of: int = 3) -> Tensor:
    """Return logits (m, of) that predict ``classes`` with confidence ``sharpness``."""
    logits = torch.zeros(len(classes), of, dtype=torch.float64)
    logits[range(len(classes)), list(classes)] = tensor(sharpness, dtype=torch.float64)
    return logits


def labels_with_counts(*counts: int) -> list[int]:
    """Return labels with these numbers per class."""
    return [c for c, n in enumerate(counts) for _ in range(n)]


def routed(strategy: AHFAL, *counts: Sequence[int]) -> list[bool]:
    """Return C_low for sites with these label counts per class."""
    replies = [strategy.post(tensor(c, dtype=torch.float64)) for c in counts]
    total = {
        k: sum((torch.as_tensor(a[k]) for a in replies), tensor(0.0)) for k in replies[0]
    }
    mean, spread = moments(total["share"], total["square"], total["one"])
    low: list[bool] = strategy.low(mean, spread, total).tolist()
    return low


# -- step 1: routing of classes --------------------------------------------------------


@pytest.mark.parametrize("base", range(3, 22))
@pytest.mark.parametrize("pairs", [1, 2, 3, 5])
def test_a_spread_of_exactly_tau_is_high_whatever_rounding_says(
    base: int, pairs: int
) -> None:
    sites = [
        (base + 3, 25 - base - 3),
        (base - 3, 25 - base + 3),
    ] * pairs  # 3 / 25 = 12 points
    assert routed(AHFAL(), *sites) == [False, False]
    assert routed(AHFAL(tau=0.12, tau_scale="proportion"), *sites) == [False, False]
    assert routed(AHFAL(tau=3, tau_scale="count"), *sites) == [False, False]
    assert routed(AHFAL(tau=12.0001), *sites) == [True, True]


def test_no_class_is_below_a_tau_of_zero() -> None:
    for scale in SCALES:
        same = AHFAL(tau=0, tau_scale=scale)
        assert routed(same, (1, 2, 0), (1, 2, 0), (1, 2, 0)) == [False, False, False]


def test_every_class_is_below_an_infinite_tau() -> None:
    for scale in SCALES:
        assert (
            routed(AHFAL(tau=math.inf, tau_scale=scale), (5, 0, 0), (0, 5, 0)) == [True] * 3
        )


def test_a_class_that_nobody_has_is_low_on_every_scale() -> None:
    for scale in SCALES:
        assert routed(AHFAL(tau=1e-3, tau_scale=scale), (9, 1, 0), (1, 9, 0))[2]


def test_with_a_single_site_every_class_is_low() -> None:
    for scale in SCALES:
        assert routed(AHFAL(tau=1e-3, tau_scale=scale), (7, 3, 1)) == [True, True, True]


def test_a_site_without_labels_is_left_out_of_mean_and_spread() -> None:
    with_empty = routed(AHFAL(tau=8), (6, 4), (5, 5), (0, 0))
    assert with_empty == routed(AHFAL(tau=8), (6, 4), (5, 5)) == [True, True]


def test_where_nobody_has_labels_every_class_is_low() -> None:
    assert routed(AHFAL(), (0, 0), (0, 0)) == [True, True]


def test_noisy_counts_below_zero_are_taken_as_none() -> None:
    reply = AHFAL().post(tensor([-3.0, 6.0, 2.0], dtype=torch.float64))
    assert_close(reply["share"], tensor([0, 0.75, 0.25], dtype=torch.float64))
    assert AHFAL().post(tensor([-3.0, -0.5], dtype=torch.float64))["one"] == 0


def test_the_four_scales_are_the_four_readings_of_the_threshold() -> None:
    sites = [
        (10, 30),
        (20, 20),
        (30, 10),
    ]  # spread of 20.4 points, 8.16 labels, 0.408 of the mean
    for scale, spread in zip(SCALES, (20.4124, 0.204124, 8.1650, 0.408248), strict=True):
        assert routed(AHFAL(tau=0.99 * spread, tau_scale=scale), *sites) == [False, False]
        assert routed(AHFAL(tau=1.01 * spread, tau_scale=scale), *sites) == [True, True]


def test_only_the_count_scale_sends_counts() -> None:
    counts = tensor([3.0, 1.0], dtype=torch.float64)
    assert AHFAL().post(counts).keys() == {"one", "share", "square"}
    literal = AHFAL(tau_scale="count").post(counts)
    assert literal.keys() == {"one", "share", "square", "count", "count_square"}


# -- step 2: hybrid scores -------------------------------------------------------------


def order_by(score: Tensor) -> list[int]:
    return score.argsort(descending=True).tolist()


def test_an_infinite_tau_scores_every_row_by_both_models_and_tau_zero_by_the_local_one() -> (
    None
):
    sites = tables(1)
    for tau, weight in ((math.inf, 0.5), (0.0, 1.0)):
        selected = simulation(sites, AHFAL(tau=tau, balance="none")).selected(12)
        for name, site in sites.items():
            both = weight * entropy(site.local) + (1 - weight) * entropy(site.common)
            assert selected[name] == order_by(both)


def test_a_row_is_routed_by_the_class_that_the_local_model_predicts() -> None:
    local = certain([0, 0, 1, 1], [3, 3.1, 2, 2.1])  # 1 is more uncertain than 0
    common = certain([1, 1, 0, 0], [0, 9, 9, 0])  # read for class 0 only
    labels = {
        "a": labels_with_counts(5, 10, 5),
        "b": labels_with_counts(5, 5, 10),
        "c": labels_with_counts(5, 1, 14),
    }
    sites = {name: Table(local, common, bought) for name, bought in labels.items()}
    federation = simulation(sites, AHFAL(balance="none"))
    assert federation.query(4)["notes"]["low"] == [True, False, False]
    h, g = entropy(local), entropy(common)
    expected = order_by(torch.cat([(h + g)[:2] / 2, h[2:]]))
    assert expected != order_by(h) and expected != order_by((h + g) / 2)
    assert federation.selected(4) == dict.fromkeys("abc", expected)


def test_a_site_with_few_labels_of_a_class_scores_it_by_both_models() -> None:
    # class 0 is certain for the local and uncertain for the global model
    local = certain([0, 0, 1, 1], [3, 3.1, 2, 2.1])
    common = certain([0, 0, 1, 1], [0, 0.1, 9, 9.1])
    high: dict[str, Any] = {"tau": 0.0, "balance": "none"}
    site = {"a": Table(local, common, labels_with_counts(1, 5, 5))}
    assert simulation(site, AHFAL(**high)).selected(2)["a"] == [2, 3]
    assert simulation(site, AHFAL(**high, few_labels=1)).selected(2)["a"] == [2, 3]
    assert simulation(site, AHFAL(**high, few_labels=2)).selected(2)["a"] == [0, 1]
    with pytest.raises(ValueError, match="few_labels"):
        AHFAL(toggle="never", few_labels=2)


def test_equal_logits_belong_to_the_lowest_class() -> None:
    local = torch.cat([torch.zeros(3, 3, dtype=torch.float64), certain([2], [9])])
    site = Table(local, local, labels_with_counts(9, 9, 0))
    assert simulation({"a": site}, AHFAL()).selected(1) == {
        "a": [3]
    }  # one label for class 2, regardless of confidence


def test_without_a_low_class_the_global_model_is_not_read() -> None:
    sites = tables(2)
    federation = simulation(sites, AHFAL(tau=0))
    for site in federation.members.values():
        site.remember("global", None)
    assert federation.selected(3) == simulation(sites, AHFAL(toggle="never")).selected(3)


# -- step 3: budgets over pseudo-classes -----------------------------------------------


def test_classes_with_few_labels_get_the_budget_and_their_most_uncertain_rows() -> None:
    local = certain([0, 0, 1, 1, 2, 2], [1, 2, 4, 3, 6, 5])
    site = Table(local, local, labels_with_counts(10, 1, 0))
    selected = simulation({"a": site}, AHFAL()).selected(4)  # weights .1, 1, 1: two and two
    assert selected == {"a": [3, 5, 2, 4]}  # round-robin, each class by descending score


def test_what_a_class_cannot_give_goes_to_the_others() -> None:
    local = certain([0, 0, 0, 1], [1, 2, 3, 4])
    site = Table(local, local, labels_with_counts(9, 0, 0))  # class 2 is never predicted
    assert simulation({"a": site}, AHFAL()).selected(3) == {"a": [0, 3, 1]}


def test_a_budget_below_the_number_of_missing_classes_goes_to_the_lowest_ids() -> None:
    local = certain([0, 1, 2, 3], [1, 1, 1, 1], of=4)
    site = Table(local, local, labels_with_counts(5, 0, 0, 0))
    assert simulation({"a": site}, AHFAL()).selected(2) == {"a": [1, 2]}


def test_a_pool_smaller_than_the_budget_is_bought_whole() -> None:
    sites = tables(3, rows=5)
    for balance in ("inverse_count", "target_deficit", "uniform", "none"):
        selected = simulation(sites, AHFAL(balance=balance)).selected(50)
        assert all(sorted(rows) == list(range(5)) for rows in selected.values())


def test_one_predicted_class_gives_the_whole_budget_by_score() -> None:
    local = certain([1] * 5, [5, 1, 4, 2, 3])
    assert simulation(
        {"a": Table(local, local, labels_with_counts(2, 2, 2))}, AHFAL()
    ).selected(3) == {"a": [1, 3, 4]}


def test_a_world_of_one_class_works() -> None:
    flat = torch.zeros(4, 1, dtype=torch.float64)
    selected = simulation({"a": Table(flat, flat, [0])}, AHFAL()).selected(2)
    assert len(set(selected["a"])) == 2


def test_a_site_without_labels_spends_evenly_over_the_classes_it_predicts() -> None:
    common = certain([0, 0, 0, 1, 1, 1, 2, 2, 2], [1, 2, 3] * 3)
    unused = certain([0] * 9, [1] * 9)
    sites = {
        "a": Table(unused, common),
        "b": Table(common, common, labels_with_counts(3, 3, 3)),
    }
    assert simulation(sites, AHFAL()).selected({"a": 6})["a"] == [0, 3, 6, 1, 4, 7]


def test_target_deficit_buys_what_is_missing_from_the_mean_share() -> None:
    local = certain([0, 0, 0, 1, 1, 1], [1, 2, 3] * 2, of=2)
    sites = {
        "a": Table(local, local, labels_with_counts(4, 0)),
        "b": Table(local, local, labels_with_counts(0, 4)),
    }
    selected = simulation(sites, AHFAL(balance="target_deficit")).selected(
        3
    )  # target 3.5 each of 7
    assert [row // 3 for row in selected["a"]] == [1, 1, 1]
    assert [row // 3 for row in selected["b"]] == [0, 0, 0]


def test_target_deficit_aims_at_the_mean_shares_of_the_labels_there_will_be() -> None:
    counts, mean = tensor([6.0, 2, 0]).double(), tensor([0.5, 0.3, 0.2]).double()
    strategy = AHFAL(balance="target_deficit")
    assert_close(
        strategy.weights(counts, mean, 12), tensor([4.0, 4, 4]).double()
    )  # 10, 6, 4 of 20
    assert_close(strategy.weights(counts, mean, 2), tensor([0.0, 1, 2]).double())


def test_rows_with_equal_scores_are_picked_in_an_order_that_depends_on_the_seed_alone() -> (
    None
):
    same = certain([0] * 6, [2.0] * 6)
    site = {"a": Table(same, same, labels_with_counts(1, 1, 1))}
    drawn = [simulation(site, AHFAL(), seed).selected(3)["a"] for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len({tuple(rows) for rows in drawn}) > 1
    assert all(len(set(rows)) == 3 for rows in drawn)


# -- non-finite predictions ------------------------------------------------------------


@pytest.mark.parametrize("balance", ["inverse_count", "target_deficit", "uniform", "none"])
@pytest.mark.parametrize("broken", ["local", "common"])
def test_a_row_without_a_number_is_picked_last_and_fills_no_class(
    broken: str, balance: Any
) -> None:
    sound = certain([1, 1, 2, 2, 2], [1, 2, 3, 4, 5])
    damaged = sound.clone()
    damaged[[0, 2]] = math.nan  # argmax of NaN is class 0, which the site lacks
    models = {"local": sound, "common": sound, broken: damaged}
    federation = simulation(
        {"a": Table(**models, labels=labels_with_counts(0, 6, 3))}, AHFAL(balance=balance)
    )
    selected = federation.selected(5)["a"]
    assert set(selected[:3]) == {1, 3, 4}
    assert set(selected[3:]) == {0, 2}
    assert set(federation.selected(3)["a"]) == {1, 3, 4}


def test_a_model_that_predicts_no_number_at_all_is_refused_with_site_and_cycle() -> None:
    nothing = torch.full((4, 3), math.nan, dtype=torch.float64)
    sites = {"a": Table(nothing, torch.zeros(4, 3).double(), labels_with_counts(1, 1, 1))}
    with pytest.raises(
        RuntimeError, match=r"AHFAL\.select failed at site a in cycle 2.*diverged"
    ):
        simulation(sites, AHFAL()).query(1, cycle=2)


# -- reported values and refusals ------------------------------------------------------


def test_notes_give_the_spread_in_points_and_the_threshold_where_it_is_one_of_points() -> (
    None
):
    lines: dict[Scale, float | None] = {
        "percent": 12.0,
        "proportion": 12.0,
        "count": None,
        "cv": None,
    }
    taus = {"percent": 12.0, "proportion": 0.12, "count": 60.0, "cv": 1.2}
    for scale in SCALES:
        notes = simulation(tables(0), AHFAL(taus[scale], scale)).query(3)["notes"]
        assert len(notes["sigma"]) == len(notes["low"]) == 3
        assert notes["spread_tau"] == lines[scale]
        assert max(notes["sigma"]) > 1


@pytest.mark.parametrize(
    "fields", [{"tau": -1.0}, {"tau": math.nan}, {"mix": 1.5}, {"mix": -0.1}]
)
def test_a_threshold_or_weight_out_of_range_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"AHFAL's (tau|mix) is .*; it must"):
        AHFAL(**fields)  # type: ignore[arg-type]
