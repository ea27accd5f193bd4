"""Test counts, quantiles and drift of columns against numpy and SciPy on pooled data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.distance import jensenshannon

from fallow.engine.column_counts import (
    CELLS,
    FIRST_EDGES,
    QUANTILES,
    choose_edges,
    count_numbers,
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


def count(sites: list[Column]) -> tuple[Column, Column]:
    """Return the sum of the counts of the second exchange, (CELLS,), and their edges."""
    first = sum(count_numbers(site, FIRST_EDGES) for site in sites)
    edges = choose_edges(np.asarray(first, dtype=float))
    bins = sum(count_numbers(site, edges) for site in sites)
    return np.asarray(bins, dtype=float), edges


@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_of_numpy(case: int) -> None:
    sites = draw_sites(case)
    pooled = np.concatenate(sites)
    bins, edges = count(sites)
    values = pooled[~np.isnan(pooled)]
    assert bins[0] == np.isnan(pooled).sum()
    assert bins[1] == (values < edges[0]).sum()
    assert bins[-1] == (values >= edges[-1]).sum()
    inside = values[(values >= edges[0]) & (values < edges[-1])]
    assert np.array_equal(bins[2:-1], np.histogram(inside, edges)[0])
    if np.abs(values).max(initial=0) < 1e8:  # the largest first edge
        assert len(inside) >= 0.95 * len(values)


@pytest.mark.parametrize("case", CASES)
def test_quantiles_of_pooled_data_are_within_their_bounds(case: int) -> None:
    pooled = np.concatenate(draw_sites(case))
    values = pooled[~np.isnan(pooled)]
    bins, edges = count([pooled])
    for share in QUANTILES:
        result = find_quantile(bins, edges, share)
        if not len(values):
            continue
        true = np.quantile(values, share, method="inverted_cdf")
        assert result.low is None or result.low <= true
        assert result.high is None or true <= result.high
        if result.value is not None and result.low is not None:
            assert abs(result.value - true) <= (edges[1] - edges[0]) * (1 + 1e-6)


def test_the_distance_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(8), size=(2, 20))
    q[:, 0] = 0
    q /= q.sum(1, keepdims=True)
    expected = [jensenshannon(a, b, base=2) for a, b in zip(p, q, strict=True)]
    assert np.allclose(jensen_shannon(p, q), expected)


def test_drift_is_found_where_it_is_and_rarely_elsewhere() -> None:
    exceeded = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sites = [rng.normal(0, 1, 300) for _ in range(4)]
        _, edges = count(sites)
        counts = np.stack([count_numbers(site, edges)[1:] for site in sites])
        drift, chance = measure_drift(counts.astype(float), is_ordered=True)
        exceeded += (drift > chance).tolist()
        shifted = count_numbers(sites[0] + 1.0, edges)[1:]
        counts = np.stack([shifted, *counts[1:]])
        drift, chance = measure_drift(counts.astype(float), is_ordered=True)
        assert (drift / chance).argmax() == 0
        assert drift[0] > 2 * chance[0]
    assert np.mean(exceeded) < 0.15


def test_a_site_without_values_has_no_drift() -> None:
    counts = np.zeros((2, CELLS - 1))
    counts[0, 5] = 20
    assert np.isnan(measure_drift(counts, is_ordered=True)).all()
