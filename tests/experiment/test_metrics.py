from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from fallow.experiment import metrics, metrics_counts

PREDICTED = torch.tensor([0, 1, 2, 2, 1, 0, 0, 3])
TRUE = torch.tensor([0, 1, 1, 2, 2, 0, 1, 2])


def test_balanced_accuracy_is_scikit_learns() -> None:
    p = PREDICTED[:-1]
    y = TRUE[:-1]
    assert metrics.balanced_accuracy(p, y, 3) == pytest.approx(
        balanced_accuracy_score(y.numpy(), p.numpy())
    )


def test_an_absent_class_has_no_accuracy_instead_of_zero() -> None:
    assert metrics.per_class_accuracy(PREDICTED, TRUE, 5) == [
        1.0,
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        None,
        None,
    ]


def test_spread_of_golden_value_g12_in_points() -> None:
    rows = [[8, 1, 1], [2, 5, 3], [0, 4, 6]]
    assert metrics_counts.class_spread(rows) == pytest.approx(
        [33.9935, 16.9967, 20.5480], abs=1e-4
    )


def test_a_site_without_rows_does_not_change_the_spread() -> None:
    rows = [[8, 1, 1], [2, 5, 3], [0, 4, 6]]
    assert metrics_counts.class_spread([*rows, [0, 0, 0]]) == metrics_counts.class_spread(
        rows
    )


def test_equal_spreads_split_by_class_number() -> None:
    assert metrics_counts.high_classes([2.0, 2.0, 2.0, 2.0]) == [False, False, True, True]


def test_the_gap_leaves_out_absent_classes() -> None:
    halves = metrics.variance_gap([0.9, None, 0.5, 0.7], [1, 2, 3, 4])
    assert halves is not None
    assert halves.gap == pytest.approx(0.9 - 0.6)


def test_no_gap_when_a_half_was_never_scored() -> None:
    assert metrics.variance_gap([0.9, 0.8, None, None], [1, 2, 3, 4]) is None


def test_imbalance_by_hand() -> None:
    measured = metrics_counts.imbalance([1, 3, 0, 4])
    assert measured.max_min == math.inf
    assert measured.minority_share == pytest.approx(1 / 8)
    assert measured.gini == pytest.approx(0.4375)  # mean |difference| / (2 * mean)
    p = np.array([1, 3, 4]) / 8
    assert measured.entropy == pytest.approx(-(p * np.log(p)).sum() / math.log(4))


def test_kl_is_zero_when_sites_are_alike_and_log_n_when_they_share_nothing() -> None:
    assert metrics_counts.kl_to_global([[1, 2], [2, 4], [0, 0]]) == 0
    assert metrics_counts.kl_to_global(np.eye(5)) == pytest.approx(math.log(5))


def test_total_variation_by_hand() -> None:
    # shares (.5, .5), (.9, .1) and pooled (.7, .3); a site without examples is omitted
    rows = [[5, 5], [9, 1], [0, 0]]
    assert metrics_counts.total_variation(rows) == pytest.approx(0.2)
    assert metrics_counts.total_variation([[1, 2], [2, 4]]) == pytest.approx(0)
    assert metrics_counts.total_variation(np.eye(5)) == pytest.approx(0.8)


def test_total_variation_is_bounded_by_kl() -> None:
    rows = np.random.default_rng(0).integers(0, 9, (6, 5)) + 1
    bound = math.sqrt(
        metrics_counts.kl_to_global(rows) / 2
    )  # Pinsker, and Jensen over sites
    assert 0 < metrics_counts.total_variation(rows) <= bound


def test_empty_cells_are_counted_also_at_sites_without_rows() -> None:
    assert metrics_counts.empty_cells([[1, 0, 2], [0, 0, 0]]) == 4


def test_the_area_under_a_flat_curve_is_its_height() -> None:
    assert metrics.aulc([0.1, 0.15, 0.4], [0.7, 0.7, 0.7]) == pytest.approx(0.7)


def test_the_area_of_a_part_joins_the_curve_at_its_ends() -> None:
    x = [0.1, 0.2, 0.4]
    y = [0.0, 0.6, 0.2]
    assert metrics.aulc(x, y, (0.1, 0.4)) == metrics.aulc(x, y)
    assert metrics.aulc(x, y, (0.15, 0.3)) == pytest.approx(
        (0.05 * 0.45 + 0.1 * 0.5) / 0.15
    )


def test_labels_saved_is_zero_for_the_baseline_and_unknown_for_a_curve_that_stays_below() -> (
    None
):
    curve = {0.1: 0.5, 0.2: 0.6, 0.3: 0.8}
    assert metrics.labels_saved(curve, curve) == 0
    assert metrics.labels_saved({0.1: 0.5, 0.3: 0.7}, curve) is None
    falling = {0.1: 0.8, 0.2: 0.9, 0.3: 0.7}
    assert metrics.labels_saved({0.2: 0.8, 0.3: 0.9}, falling) is None


def test_a_curve_is_at_the_target_where_it_first_crosses() -> None:
    assert metrics.labels_to_reach(
        [0.1, 0.2, 0.3, 0.4], [0.5, 0.8, 0.6, 0.9], 0.65
    ) == pytest.approx(0.15)
