from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.data import class_counts, partition_report, tables
from fallow.data.partition import shares
from fallow.data.partition.partitions import ExactDirichlet, Patho
from fallow.data.partition.shares import draw_stratified, hold_out, validation_split


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("rule", [ExactDirichlet(0.1), Patho()])
def test_test_rows_follow_the_shares_of_the_training_rows(rule: Any) -> None:
    y = np.repeat(np.arange(10), 500)
    y_test = np.repeat(np.arange(10), 200)
    counts = class_counts(y, rule.split(y, 20, rng()), 10)
    parts = shares.test_shares(counts, y_test, rng())
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together) == len(y_test)
    given_out = class_counts(y_test, parts, 10)
    assert (given_out[counts == 0] == 0).all()
    assert (given_out[counts > 0] >= 1).all()
    held_little = counts * 0.4 < 1
    assert (np.abs(given_out - counts * 0.4)[~held_little] <= 2).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 60))
def test_no_test_row_is_used_twice_and_none_is_left_while_somebody_holds_its_class(
    class_counts: list[int], total: int
) -> None:
    counts = np.array(class_counts)[:, None]
    parts = shares.test_shares(counts, np.zeros(total, dtype=np.int64), rng())
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together) == (total if any(class_counts) else 0)
    sizes = np.array([len(part) for part in parts])
    assert (sizes[counts[:, 0] == 0] == 0).all()
    if total >= (counts > 0).sum():
        assert (sizes[counts[:, 0] > 0] >= 1).all()


def test_shares_without_a_minimum_are_within_one_row() -> None:
    counts = np.array([[37], [29], [34]])
    sizes = [
        len(p) for p in shares.test_shares(counts, np.zeros(55, dtype=np.int64), rng())
    ]
    assert sum(sizes) == 55
    assert all(abs(n - c * 0.55) < 1 for n, c in zip(sizes, [37, 29, 34], strict=True))


def test_a_test_class_without_a_training_row_is_left_out_and_small_sites_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        parts = shares.test_shares(
            np.array([[5, 0], [5, 0]]), np.array([0, 0, 1, 1]), rng()
        )
    assert sorted(np.concatenate(parts).tolist()) == [0, 1]
    assert "2 sites have fewer than 20 test rows" in caplog.text


def test_validation_takes_a_fifth_of_every_class() -> None:
    y = np.repeat([0, 1, 2], [50, 30, 20])
    train, validation = validation_split(y, 0.2, rng())
    assert np.bincount(y[validation]).tolist() == [10, 6, 4]
    assert np.array_equal(np.sort(np.concatenate([train, validation])), np.arange(100))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(0, 99))
def test_validation_has_a_row_at_least_and_leaves_one(labels: list[int], seed: int) -> None:
    y = np.array(labels)
    train, validation = validation_split(y, 0.2, rng(seed))
    assert len(train) >= 1 and len(validation) >= 1
    assert abs(len(validation) - 0.2 * len(y)) <= 1
    assert np.array_equal(np.sort(np.concatenate([train, validation])), np.arange(len(y)))


def test_validation_of_targets_is_plain() -> None:
    assert len(validation_split(np.linspace(0, 1, 10), 0.2, rng())[1]) == 2


def test_a_class_of_one_row_stays_behind() -> None:
    y = np.array([0] * 10 + [1])
    assert 10 not in draw_stratified(y, 0.5, rng())


def test_the_report_is_the_one_by_hand() -> None:
    y = np.array([0, 0, 0, 1, 2, 2, -1])
    report = partition_report(y, [np.array([0, 1, 3]), np.array([2, 4, 5, 6])], 4)
    assert report["matrix"] == [[2, 1, 0, 0], [1, 0, 2, 0]]
    assert report["sizes"] == [3, 4]
    assert report["absent"] == [2, 2]
    assert report["cv"] == pytest.approx([1 / 3, 1.0, 1.0, 0.0])
    assert report["sigma_pp"] == pytest.approx([100 / 6, 100 / 6, 100 / 3, 0.0])
    kl = [
        2 / 3 * np.log(4 / 3) + 1 / 3 * np.log(2),
        1 / 3 * np.log(2 / 3) + 2 / 3 * np.log(2),
    ]
    assert report["kl"] == pytest.approx(kl)
    assert report["mean_kl"] == pytest.approx(np.mean(kl))


def test_a_site_without_labels_is_left_out_of_the_spread() -> None:
    y = np.array([0, 1, -1])
    report = partition_report(y, [np.array([0, 1]), np.array([2])], 2)
    assert report["sigma_pp"] == [0.0, 0.0]
    assert report["kl"] == [0.0, None]
    nothing = partition_report(np.full(3, -1), [np.array([0]), np.array([1, 2])], 2)
    assert nothing["mean_kl"] is None and nothing["cv"] == [0.0, 0.0]


def test_held_out_rows_are_a_stratified_fifth_fixed_by_the_name() -> None:
    x = torch.arange(100.0)[:, None]
    y = np.repeat([0, 1], [60, 40])
    train, test = hold_out("toy", x, y)
    assert np.bincount(y[test]).tolist() == [12, 8]
    assert np.array_equal(hold_out("toy", x, y)[1], test)
    assert not np.array_equal(hold_out("other", x, y)[1], test)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(100))


def test_copies_of_a_row_stay_on_one_side_and_unlabeled_ones_in_training() -> None:
    x = (torch.arange(60) % 20).float()[:, None]
    y = np.arange(60) % 20 % 2
    y[45:] = -1
    train, test = hold_out("toy", x, y)
    assert len(test)
    assert not set(x[train, 0].tolist()) & set(x[test, 0].tolist())
    assert (y[test] >= 0).all()


def test_missing_values_become_the_training_median_and_are_marked() -> None:
    nan = np.nan
    train = np.array([[1, nan], [3, 5], [9, 7]], dtype=np.float32)
    test = np.array([[nan, nan]], dtype=np.float32)
    filled, filled_test, columns, notes = tables.fill_missing(train, test, ("a", "b"))
    assert filled.tolist() == [[1, 6, 1], [3, 5, 0], [9, 7, 0]]
    assert filled_test.tolist() == [[3, 6, 1]]
    assert columns == ("a", "b", "b_missing")
    assert "median of the training examples: 3; indicator columns added: 1" in notes[0]
    with pytest.raises(ValueError, match="column 'b' has no value"):
        tables.fill_missing(train[:1], test, ("a", "b"))
