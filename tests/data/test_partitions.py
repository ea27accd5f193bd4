from __future__ import annotations

import dataclasses
import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.core.build import build, names
from fallow.data import partition_report
from fallow.data.partition import few_classes, partitions
from fallow.data.partition.base import Partition, largest_remainder
from fallow.data.partition.basic import natural_sites
from fallow.data.partition.partitions import (
    IID,
    Counts,
    Dirichlet,
    ExactDirichlet,
    FedMADirichlet,
    Natural,
    Patho,
    Shards,
)

Y = np.repeat(np.arange(10), 100)
GROUPS = np.arange(1000) % 7

ALL: list[tuple[str, dict[str, Any], int]] = [
    ("IID", {}, 7),
    ("Dirichlet", {"alpha": 0.3}, 7),
    ("Dirichlet", {"alpha": 0.1, "cap": True}, 7),
    ("FedMADirichlet", {"alpha": 0.1}, 7),
    ("ExactDirichlet", {"alpha": 0.1}, 7),
    ("Patho", {"classes": 3}, 7),
    ("Patho", {"classes": 3, "min_rule": "reject", "min_samples": 2}, 7),
    ("Shards", {"classes": 2}, 7),
    ("LongTail", {"rho": 10, "inner": "ExactDirichlet", "inner_fields": {"alpha": 0.5}}, 7),
    ("TargetDirichlet", {"alpha": 0.5}, 7),
    ("ClassWindows", {"least": 9, "mu": 1.0}, 7),
    ("Natural", {}, 7),
    ("Counts", {"table": tuple({0: 3, site: 5} for site in range(1, 8))}, 7),
]
WHOLE = [case for case in ALL if case[0] not in ("LongTail", "Counts", "ClassWindows")]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_every_partitioner_stands_in_the_table_of_these_tests() -> None:
    assert set(names(partitions)) == {name for name, _, _ in ALL}


@pytest.mark.parametrize(("name", "fields", "sites"), ALL)
def test_parts_are_sorted_disjoint_rows_and_the_same_for_the_same_stream(
    name: str, fields: dict[str, Any], sites: int
) -> None:
    rule: Partition = build(partitions, name, **fields)
    before = Y.copy()
    parts = rule.split(Y, sites, rng(), GROUPS)
    assert np.array_equal(Y, before)
    assert len(parts) == sites and all(len(part) for part in parts)
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0 and together.max() < len(Y)
    again = rule.split(Y, sites, rng(), GROUPS)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    if name != "Natural":
        other = rule.split(Y, sites, rng(1), GROUPS)
        assert any(not np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


@pytest.mark.parametrize(("name", "fields", "sites"), WHOLE)
def test_a_complete_partition_leaves_no_row_out(
    name: str, fields: dict[str, Any], sites: int
) -> None:
    parts = build(partitions, name, **fields).split(Y, sites, rng(), GROUPS)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(Y)))


@pytest.mark.parametrize(
    "name", ["Dirichlet", "ExactDirichlet", "Patho", "Shards", "LongTail"]
)
def test_targets_and_unlabeled_rows_cannot_be_split_by_class(name: str) -> None:
    rule: Partition = build(partitions, name)
    with pytest.raises(
        ValueError, match=r"regression targets.*use TargetDirichlet, IID or Natural"
    ):
        rule.split(np.linspace(0, 1, 100), 2, rng())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="100 rows are unlabeled"):
        rule.split(np.full(100, -1), 2, rng())


def test_targets_can_be_split_at_random_or_by_their_sites() -> None:
    targets: Any = np.linspace(0, 1, 100)
    assert [len(p) for p in IID().split(targets, 3, rng())] == [34, 33, 33]
    parts = Natural().split(targets, 2, rng(), np.repeat([4, 9], 50))
    assert [part.tolist() for part in parts] == [list(range(50)), list(range(50, 100))]


# Expected spread over sites: sqrt((N - 1) / (N alpha + 1)) for the plain rule, and less for
# client-balanced splits; ten sites, ten classes.
SPREAD = {
    Dirichlet: {0.05: 2.45, 0.1: 2.12, 0.3: 1.50, 0.5: 1.22, 1: 0.90, 10: 0.30},
    ExactDirichlet: {0.05: 2.1, 0.1: 1.8, 0.3: 1.25, 0.5: 1.0, 1: 0.82, 10: 0.27},
}


@pytest.mark.parametrize("rule", SPREAD)
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3, 0.5, 1, 10])
def test_the_spread_over_sites_is_the_expected_one(rule: Any, alpha: float) -> None:
    y = np.repeat(np.arange(10), 500)
    cvs = [
        partition_report(y, rule(alpha).split(y, 10, rng(s)), 10)["cv"] for s in range(20)
    ]
    assert np.mean(cvs) == pytest.approx(SPREAD[rule][alpha], rel=0.12)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    sites=st.integers(1, 9),
    alpha=st.sampled_from([1e-6, 0.01, 0.1, 0.5, 1, 10, 1000]),
    seed=st.integers(0, 1000),
)
def test_exact_dirichlet_has_exact_margins(
    sizes: list[int], sites: int, alpha: float, seed: int
) -> None:
    y = rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    sites = min(sites, len(y))
    parts = ExactDirichlet(alpha).split(y, sites, rng(seed))
    assert [len(p) for p in parts] == [
        len(y) // sites + (site < len(y) % sites) for site in range(sites)
    ]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.integers(0, 500))
def test_largest_remainder_is_within_one_and_sums_to_the_total(
    shares: list[int], total: int
) -> None:
    weights = np.array(shares, dtype=np.float64) + 0.001
    whole = largest_remainder(weights, total)
    assert whole.sum() == total
    assert (np.abs(whole - weights / weights.sum() * total) < 1 + 1e-6).all()


def test_a_smallest_site_that_never_comes_is_an_error_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.data.partition.dirichlet.MOST_DRAWS", 5)
    with pytest.raises(
        ValueError, match=r"Dirichlet\(alpha=0.001\).* 90 rows in 5 draws \(the"
    ):
        Dirichlet(0.001, min_size=90).split(Y, 10, rng())
    with pytest.raises(ValueError, match="1000 rows cannot give 10 sites 101 rows each"):
        Dirichlet(1, min_size=101).split(Y, 10, rng())
    with pytest.raises(ValueError, match="min_size is 0"):
        Dirichlet(1, min_size=0)


def test_the_fedma_mask_keeps_its_minimum_and_is_the_capped_dirichlet() -> None:
    y = np.repeat(np.arange(10), 500)
    parts = FedMADirichlet(0.1).split(y, 20, rng())
    assert min(len(part) for part in parts) >= 20
    capped = Dirichlet(0.1, min_size=20, cap=True).split(y, 20, rng())
    assert all(np.array_equal(a, b) for a, b in zip(parts, capped, strict=True))
    # a site is full when it has n / N = 250 examples, so at most one class is added after
    # 249
    assert max(len(part) for part in parts) < 250 + 500


def test_patho_sites_hold_three_classes_and_ten_rows_of_each() -> None:
    y = np.repeat(np.arange(10), 500)
    for rule in (Patho(), Patho(min_rule="reject")):
        matrix = np.array(partition_report(y, rule.split(y, 20, rng()), 10)["matrix"])
        assert ((matrix > 0).sum(1) == 3).all()
        assert matrix[matrix > 0].min() >= 10
        assert (matrix.sum(0) == 500).all()


def test_patho_rejection_is_bounded_and_falls_back_to_the_floor_rule(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(few_classes, "MOST_DRAWS", 3)
    y = np.repeat([0, 1], 40)
    with caplog.at_level(logging.INFO):
        parts = Patho(2, 0.01, "reject", min_samples=10).split(y, 4, rng())
    assert "floor rule" in caplog.text
    assert [len(part) for part in parts] == [20] * 4


def test_a_class_that_nobody_can_hold_is_an_error() -> None:
    for rule in (Patho(2), Shards(2)):
        with pytest.raises(
            ValueError, match="4 sites with 2 classes each cannot have all 10"
        ):
            rule.split(Y, 4, rng())
        with pytest.raises(ValueError, match="2 classes per site, but the labels have 1"):
            rule.split(np.zeros(50, dtype=np.int64), 4, rng())
    with pytest.raises(ValueError, match="sites with at least 100"):
        Patho(3, min_samples=100).split(Y, 10, rng())
    with pytest.raises(ValueError, match="Shards: class 0 has 1 examples"):
        Shards(2).split(np.array([0] + [1] * 50), 3, rng())


@pytest.mark.parametrize(("sites", "classes"), [(5, 2), (10, 1), (7, 3), (13, 9), (3, 10)])
def test_shards_deal_the_classes_evenly(sites: int, classes: int) -> None:
    for seed in range(5):
        parts = Shards(classes).split(Y, sites, rng(seed))
        matrix = np.array(partition_report(Y, parts, 10)["matrix"])
        assert ((matrix > 0).sum(1) == classes).all()
        holders = (matrix > 0).sum(0)
        assert holders.max() - holders.min() <= 1
        for column in matrix.T:
            assert np.ptp(column[column > 0]) <= 1


def test_natural_sites_are_the_largest_ones_in_order_of_their_id() -> None:
    natural = np.array([5, 5, 5, 2, 9, 9, 7])
    assert natural_sites(natural, 2).tolist() == [5, 9]
    assert natural_sites(natural).tolist() == [2, 5, 7, 9]
    parts = Natural().split(np.zeros(7, dtype=np.int64), 2, rng(), natural)
    assert [part.tolist() for part in parts] == [[0, 1, 2], [4, 5]]
    with pytest.raises(
        ValueError, match="5 sites are requested and the data has 4 natural"
    ):
        Natural().split(np.zeros(7, dtype=np.int64), 5, rng(), natural)
    with pytest.raises(ValueError, match="the data name no sites"):
        Natural().split(Y, 5, rng())


def test_counts_are_dealt_as_written() -> None:
    table = ({0: 2, 1: 1}, {1: 3}, {9: 100})
    parts = Counts(table).split(Y, 3, rng())
    assert [np.bincount(Y[p], minlength=10)[[0, 1, 9]].tolist() for p in parts] == [
        [2, 1, 0],
        [0, 3, 0],
        [0, 0, 100],
    ]
    with pytest.raises(ValueError, match="101 examples of class 9, which has 100"):
        Counts(({9: 100}, {9: 1})).split(Y, 2, rng())
    with pytest.raises(ValueError, match="1 examples of class 12, which has 0"):
        Counts(({12: 1},)).split(Y, 1, rng())
    with pytest.raises(ValueError, match="3 sites and 2 are requested"):
        Counts(table).split(Y, 2, rng())
    with pytest.raises(ValueError, match="site 1 has"):
        Counts(({0: 1}, {}))


def test_partitioners_are_frozen_and_say_which_way_alpha_points() -> None:
    for name, rule in names(partitions).items():
        assert dataclasses.is_dataclass(rule), name
        if "alpha" in {field.name for field in dataclasses.fields(rule)}:
            text = " ".join((rule.__doc__ or "").split()).lower()
            assert "smaller alpha = more skew" in text, name


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (({"a": 2},), "a class ID is not a whole number"),
        (({0: 2.5},), "give whole numbers of examples"),
        (({0: -1},), "give whole numbers of examples"),
        (({0: 0},), "site 0 has no example"),
    ],
)
def test_counts_that_are_no_counts_are_refused(table: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Counts(table)
