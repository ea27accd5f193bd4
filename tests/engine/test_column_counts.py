"""Test counts, quantiles and drift of columns against numpy and SciPy on pooled data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.distance import jensenshannon

from fallow.engine.column_counts import (
    CELLS,
    QUANTILES,
    choose_edges,
    count_bins,
    count_first,
    count_levels,
    find_quantile,
    jensen_shannon,
    measure_drift,
)

Column = npt.NDArray[np.float64]
CASES = range(40)


def draw_sites(case: int) -> list[Column]:
    """Return a column of 2 to 5 sites: symmetric, skewed, whole, constant or far from 0."""
    rng = np.random.default_rng(case)
    sites = []
    for _ in range(rng.integers(2, 6)):
        n = int(rng.integers(1, 400))
        values = [
            rng.normal(rng.normal(0, 3), 1, n),
            rng.exponential(50, n),
            rng.integers(0, 6, n).astype(float),
            np.full(n, 3.0),
            2020 + rng.integers(-20, 5, n),
            rng.normal(0, 1, n) * 10.0 ** rng.integers(-8, 12, n),
        ][case % 6]
        values = values.astype(np.float32).astype(float)
        values[rng.random(n) < rng.choice([0.0, 0.02, 0.5])] = np.nan
        sites.append(values)
    return sites


def count(sites: list[Column], least: int) -> tuple[Column, Column]:
    """Return the sums of both exchanges' counts: (CELLS,) and edges."""
    first = sum(count_first(site, least)[0] for site in sites)
    edges = choose_edges(np.asarray(first, dtype=float))
    bins = sum(count_bins(site, edges, least) for site in sites)
    return np.asarray(bins, dtype=float), edges


@pytest.mark.parametrize("case", CASES)
def test_counts_of_single_examples_are_those_of_numpy(case: int) -> None:
    sites = draw_sites(case)
    pooled = np.concatenate(sites)
    bins, edges = count(sites, least=1)
    values = pooled[~np.isnan(pooled)]
    assert bins[0] == np.isnan(pooled).sum()
    assert bins[1] == (values < edges[0]).sum()
    assert bins[-1] == (values >= edges[-1]).sum()
    inside = values[(values >= edges[0]) & (values < edges[-1])]
    assert np.array_equal(bins[2:-1], np.histogram(inside, edges)[0])
    if np.abs(values).max(initial=0) < 1e8:  # the largest first edge
        assert len(inside) >= 0.95 * len(values)


@pytest.mark.parametrize("least", [1, 10])
@pytest.mark.parametrize("case", CASES)
def test_quantiles_of_pooled_data_are_within_their_bounds(case: int, least: int) -> None:
    sites = [site for site in draw_sites(case) if len(site) >= least]
    pooled = np.concatenate(sites) if sites else np.zeros(0)
    values = pooled[~np.isnan(pooled)]
    bins, edges = count(sites, least)
    assert bins.sum() == len(pooled)
    for share in QUANTILES:
        result = find_quantile(bins, edges, share, slack=len(sites) * (least - 1))
        if not len(values):
            continue
        true = np.quantile(values, share, method="inverted_cdf")
        assert result.low is None or result.low <= true
        assert result.high is None or true <= result.high
        if least == 1 and result.value is not None and result.low is not None:
            assert abs(result.value - true) <= (edges[1] - edges[0]) * (1 + 1e-6)


@pytest.mark.parametrize("case", CASES)
def test_no_count_shows_fewer_examples_than_the_smallest_count(case: int) -> None:
    rng = np.random.default_rng(case)
    for values in draw_sites(case):
        first, joined = count_first(values, 10)
        bins = count_bins(values, choose_edges(first.astype(float)), 10)
        levels = count_levels(rng.integers(0, 7, len(values)).astype(float), 7, 10)
        for counts in (first, bins, levels):
            assert not ((counts > 0) & (counts < 10)).any()
            assert counts.sum() == (len(values) if len(values) >= 10 else 0)
        # a second count divides what the first one joined: no difference shows fewer
        edges = np.sort(rng.choice(values, 65) + np.arange(65) * 1e-9)
        edges = np.where(np.isnan(edges), np.arange(65.0), edges)
        edges = np.unique(np.concatenate([edges, np.arange(1e9, 1e9 + 65)]))[:65]
        for group in np.unique(joined[joined >= 0]):
            own = values[joined == group]
            parts = count_bins(own, edges, 10)
            assert not ((parts > 0) & (parts < 10)).any()
        split = sum(count_bins(values[joined == g], edges, 10) for g in np.unique(joined))
        if (joined >= 0).all():
            assert np.array_equal(split, count_bins(values, edges, 10))


def test_a_single_suppressed_level_takes_the_smallest_other_with_it() -> None:
    codes = np.repeat([0.0, 1.0, 2.0], [30, 20, 3])
    assert count_levels(codes, 3, 10).tolist() == [0, 30, 0, 0, 23]
    assert count_levels(codes[-3:], 3, 10).tolist() == [0, 0, 0, 0, 0]


def test_the_distance_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(8), size=(2, 20))
    q[:, 0] = 0
    q /= q.sum(1, keepdims=True)
    expected = [jensenshannon(a, b, base=2) for a, b in zip(p, q, strict=True)]
    assert np.allclose(jensen_shannon(p, q), expected)


@pytest.mark.parametrize("least", [1, 10])
def test_drift_is_found_where_it_is_and_rarely_elsewhere(least: int) -> None:
    exceeded = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sites = [rng.normal(0, 1, 300) for _ in range(4)]
        _, edges = count(sites, least)
        counts = np.stack([count_bins(site, edges, least)[1:] for site in sites])
        drift, chance = measure_drift(counts.astype(float), least, is_ordered=True)
        exceeded += (drift > chance).tolist()
        shifted = count_bins(sites[0] + 1.0, edges, least)[1:]
        counts = np.stack([shifted, *counts[1:]])
        drift, chance = measure_drift(counts.astype(float), least, is_ordered=True)
        assert (drift / chance).argmax() == 0
        assert drift[0] > 2 * chance[0]
    assert np.mean(exceeded) < 0.15


def test_a_level_that_is_suppressed_at_one_site_is_no_drift() -> None:
    sizes = np.array([[60, 30, 11], [60, 30, 9], [60, 30, 10]])
    codes = [np.repeat([0.0, 1.0, 2.0], row) for row in sizes]
    counts = np.stack([count_levels(site, 3, 10)[1:] for site in codes])
    drift, chance = measure_drift(counts.astype(float), 10, is_ordered=False)
    assert (drift < chance).all()


def test_a_site_without_values_has_no_drift() -> None:
    counts = np.zeros((2, CELLS - 1))
    counts[0, 5] = 20
    assert np.isnan(measure_drift(counts, 10, is_ordered=True)).all()
