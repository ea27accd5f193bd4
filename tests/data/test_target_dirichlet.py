"""Regression data split over sites by quantile bins of the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.data import class_counts, partition_report
from fallow.data.partition.partitions import TargetDirichlet
from fallow.data.partition.target_dirichlet import target_bins

SITES = 10
Y = np.random.default_rng(0).gamma(2.0, size=5000)  # skewed, without ties


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bin_table(rule: TargetDirichlet, seed: int = 0) -> Any:
    """Return the number of examples per site and quantile bin: (sites, bins)."""
    return class_counts(target_bins(Y, SITES), rule.split(Y, SITES, rng(seed)), SITES)


@pytest.mark.parametrize("binning", ["quantile", "equal-width"])
@pytest.mark.parametrize("allocation", ["hetero", "plain"])
def test_every_row_has_one_site_and_every_site_the_smallest_size(
    binning: Any, allocation: Any
) -> None:
    for seed in range(5):
        rule = TargetDirichlet(0.5, binning=binning, allocation=allocation, min_size=40)
        parts = rule.split(Y, SITES, rng(seed))
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(Y)))
        assert min(len(part) for part in parts) >= 40
        assert len({len(part) for part in parts}) > 1


@pytest.mark.parametrize("allocation", ["hetero", "plain"])
def test_a_large_alpha_gives_every_site_its_share_of_every_bin(allocation: Any) -> None:
    table = bin_table(TargetDirichlet(1e8, allocation=allocation))
    assert np.abs(table - len(Y) / SITES**2).max() <= 1


def test_a_small_alpha_is_skewed_by_the_expected_spread() -> None:
    """Compare std / mean of a bin's counts with sqrt((N - 1) / (N alpha + 1))."""
    for alpha in (0.1, 1.0, 5.0):
        rule = TargetDirichlet(alpha, allocation="plain", min_size=1)
        cvs = [
            partition_report(target_bins(Y, SITES), rule.split(Y, SITES, rng(s)), SITES)[
                "cv"
            ]
            for s in range(20)
        ]
        assert np.mean(cvs) == pytest.approx(np.sqrt(9 / (10 * alpha + 1)), rel=0.12)


def test_only_the_plain_rule_lets_a_full_site_grow() -> None:
    """A full site holds 500 examples, and a bin can add 500 to one not yet full."""
    hetero = [
        len(p) for s in range(10) for p in TargetDirichlet(0.1).split(Y, SITES, rng(s))
    ]
    plain = TargetDirichlet(0.1, allocation="plain", min_size=1)
    assert max(hetero) < 1000
    assert max(len(p) for s in range(10) for p in plain.split(Y, SITES, rng(s))) > 1000


def test_sites_differ_in_their_targets_unless_alpha_is_large() -> None:
    def spread(alpha: float) -> float:
        parts = TargetDirichlet(alpha).split(Y, SITES, rng())
        return float(np.std([Y[part].mean() for part in parts]))

    assert spread(0.1) > 3 * spread(5.0) > 3 * spread(1e8)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(1, 12))
def test_bins_keep_the_order_of_targets_and_equal_targets_together(
    values: list[int], bins: int
) -> None:
    y = np.array(values)
    for binning in ("quantile", "equal-width"):
        result = target_bins(y, bins, binning)
        assert result.min() >= 0 and result.max() < bins
        assert (np.diff(result[np.argsort(y, kind="stable")]) >= 0).all()
        assert all(len(np.unique(result[y == value])) == 1 for value in np.unique(y))


def test_quantile_bins_are_equal_to_a_row_and_equal_widths_are_not() -> None:
    for bins in (3, 7, 10):
        assert np.ptp(np.bincount(target_bins(Y[:1001], bins))) <= 1
        edges = np.linspace(Y.min(), Y.max(), bins + 1)
        counted = np.histogram(Y, edges)[0]
        assert np.bincount(
            target_bins(Y, bins, "equal-width"), minlength=bins
        ).tolist() == (counted.tolist())
    assert target_bins(np.full(4, 2.5), 3, "equal-width").tolist() == [0] * 4
    assert target_bins(np.array([0, 0, 0, 0, 0, 9]), 2).tolist() == [0] * 5 + [1]
    assert target_bins(np.array([0, 9, 9, 9, 9, 9]), 2).tolist() == [0] + [1] * 5


def test_whole_numbers_are_targets_too() -> None:
    scores = np.round(Y * 10).astype(np.int64) - 3  # including negative ones
    as_numbers = TargetDirichlet(1.0).split(scores.astype(np.float64), SITES, rng())
    for whole, number in zip(
        TargetDirichlet(1.0).split(scores, SITES, rng()), as_numbers, strict=True
    ):
        assert np.array_equal(whole, number)


def test_bins_may_be_another_number_than_sites_and_set_the_smallest_size() -> None:
    parts = TargetDirichlet(0.3, bins=25).split(Y, 4, rng())
    assert min(len(part) for part in parts) >= 25
    one = TargetDirichlet(1e8, bins=1).split(Y, 4, rng())
    assert {len(part) for part in one} <= {1249, 1250, 1251}


def test_what_cannot_be_split_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="5 rows cannot give 6 sites 6 rows each"):
        TargetDirichlet().split(Y[:5], 6, rng())
    with pytest.raises(
        ValueError, match="50 rows cannot give 10 sites 10 rows each; lower min_si"
    ):
        TargetDirichlet().split(Y[:50], SITES, rng())
    with pytest.raises(
        ValueError, match=r"2 of 12 targets are NaN or infinite, .*omit these rows"
    ):
        TargetDirichlet().split(np.append(Y[:10], [np.nan, np.inf]), 2, rng())
    monkeypatch.setattr("fallow.data.partition.dirichlet.MOST_DRAWS", 5)
    with pytest.raises(
        ValueError,
        match=r"TargetDirichlet\(alpha=0.01\) over 10 sites .* 400 rows in 5 draws .* raise alpha",
    ):
        TargetDirichlet(0.01, min_size=400).split(Y, SITES, rng())
