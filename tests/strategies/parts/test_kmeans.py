import itertools

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor

from fallow.core.streams import stream
from fallow.strategies.parts.kcenter import FeatureVectors, Gradients
from fallow.strategies.parts.kmeans import (
    cluster_rows,
    in_one_thread,
    k_means_pp,
    residuals,
)


def threads() -> dict[str, int]:
    """Return the number of threads of each library."""
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}


def test_it_runs_in_one_thread_and_leaves_the_others_as_they_were() -> None:
    cluster_rows(torch.zeros(2, 1), 1, stream(0, "x"))  # loads the libraries
    with threadpool_limits(3):
        before = threads()
        with in_one_thread():
            assert set(threads().values()) == {1}
        assert threads() == before and 3 in before.values()


def test_well_separated_groups_are_the_clusters() -> None:
    x = torch.tensor([[0.0], [0.1], [10.0], [10.1], [20.0]])
    values = cluster_rows(x, 3, stream(0, "x")).tolist()
    assert values[0] == values[1] and values[2] == values[3] and len(set(values)) == 3


def test_rows_too_close_for_k_means_are_no_warning() -> None:
    near = (
        torch.arange(6.0, dtype=torch.float64)[:, None] * 2**-40
    )  # differences cancel in squares
    assert len(cluster_rows(torch.cat([near - 1, near + 1]), 12, stream(0, "x"))) == 12


def test_one_cluster_and_one_row() -> None:
    x = torch.randn(5, 2, generator=stream(0, "rows"))
    assert cluster_rows(x, 1, stream(0, "x")).tolist() == [0] * 5
    assert cluster_rows(x[:1], 3, stream(0, "x")).tolist() == [0]


def test_many_clusters_are_found_in_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(6.0).repeat_interleave(3)[:, None] * 10
    monkeypatch.setattr("fallow.strategies.parts.kmeans.MANY", 3)
    clusters = cluster_rows(
        x + torch.rand(18, 1, generator=stream(0, "rows")), 6, stream(0, "x")
    )
    assert len(clusters) == 18 and len(set(clusters.tolist())) > 2


def spread(x: torch.Tensor, cluster: torch.Tensor) -> float:
    """Return the total squared distance of examples from their cluster means."""
    return sum(
        float((x[cluster == c] - x[cluster == c].mean(0)).square().sum())
        for c in torch.unique(cluster)
    )


def test_a_start_from_a_sample_finds_clusters_as_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(3000, 8, generator=stream(0, "rows"))
    expected = spread(x, cluster_rows(x, 50, stream(0, "x")))
    monkeypatch.setattr("fallow.strategies.parts.kmeans.LARGE", 1000)
    clusters = cluster_rows(x, 50, stream(0, "x"))
    assert len(torch.unique(clusters)) == 50
    assert spread(x, clusters) < 1.05 * expected
    assert torch.equal(clusters, cluster_rows(x, 50, stream(0, "x")))


def test_a_sample_of_equal_rows_is_enough_of_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.strategies.parts.kmeans.LARGE", 1)
    x = torch.zeros(400, 2)
    x[:3] = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    values = cluster_rows(x, 9, stream(0, "x"))  # four distinct examples
    assert len(torch.unique(values)) == 4


def test_the_first_pick_is_the_longest_row() -> None:
    x = torch.tensor([[1.0], [-5.0], [2.0]])
    assert k_means_pp(FeatureVectors.of(x), 1, stream(0, "x")).tolist() == [1]


@pytest.mark.long
def test_draws_are_in_proportion_to_squared_distance() -> None:
    x = torch.tensor([[10.0], [9.0], [8.0], [7.0]])  # distances to the first: 1, 4, 9 of 14
    second = [
        int(k_means_pp(FeatureVectors.of(x), 2, stream(s, "x"))[1]) for s in range(3000)
    ]
    shares = torch.bincount(torch.tensor(second), minlength=4) / 3000
    assert (shares - torch.tensor([0, 1, 4, 9]) / 14).abs().max() < 0.03


@pytest.mark.long
def test_rows_that_are_all_equal_are_drawn_uniformly_and_once() -> None:
    x = torch.ones(6, 3)
    assert sorted(k_means_pp(FeatureVectors.of(x), 6, stream(0, "x")).tolist()) == list(
        range(6)
    )
    second = [
        int(k_means_pp(FeatureVectors.of(x), 2, stream(s, "x"))[1]) for s in range(1000)
    ]
    assert torch.bincount(torch.tensor(second), minlength=6)[1:].min() > 150


def test_duplicates_of_a_pick_are_left_while_others_are_there() -> None:
    x = torch.tensor([[5.0], [5.0], [1.0], [5.0]])
    assert all(
        2 in k_means_pp(FeatureVectors.of(x), 2, stream(s, "x")).tolist() for s in range(50)
    )


def test_nothing_asked_or_nothing_there_is_nothing() -> None:
    assert len(k_means_pp(FeatureVectors.of(torch.ones(3, 2)), 0, stream(0, "x"))) == 0
    assert len(k_means_pp(FeatureVectors.of(torch.ones(0, 2)), 3, stream(0, "x"))) == 0


def plain(x: Tensor, n: int, generator: torch.Generator) -> list[int]:
    """Draw by the definition from the cumulative squared distances of all examples."""
    square = [float(row @ row) for row in x]
    selected = [square.index(max(square))]
    while len(selected) < n:
        far = [min(float((row - x[j]).square().sum()) for j in selected) for row in x]
        u = float(torch.rand(1, generator=generator, dtype=torch.float64)) * sum(far)
        ends = list(itertools.accumulate(far))
        selected.append(next(i for i, end in enumerate(ends) if end > u))
    return selected


@pytest.mark.parametrize("seed", range(3))
def test_factors_pick_the_rows_that_the_full_gradients_pick_with_the_same_stream(
    seed: int,
) -> None:
    draw = stream(seed, "gradients")
    q = residuals(torch.randn(60, 5, generator=draw, dtype=torch.float64).softmax(1))
    z = torch.randn(60, 7, generator=draw, dtype=torch.float64)
    full = torch.einsum("nc,nd->ncd", q, z).flatten(1)
    expected = plain(full, 25, stream(seed, "x"))
    assert k_means_pp(Gradients.of(q, z), 25, stream(seed, "x")).tolist() == expected
    assert k_means_pp(FeatureVectors.of(full), 25, stream(seed, "x")).tolist() == expected


def test_rows_that_are_not_finite_are_drawn_last() -> None:
    x = torch.ones(8, 2)
    x[1, 0], x[4, 1], x[6, 0] = torch.nan, torch.inf, 3.0
    for seed in range(20):
        selected = k_means_pp(FeatureVectors.of(x), 8, stream(seed, "x")).tolist()
        assert (
            selected[0] == 6
            and sorted(selected) == list(range(8))
            and set(selected[-2:]) == {1, 4}
        )


def test_distances_that_vanish_in_the_sum_are_still_drawn_once() -> None:
    x = torch.tensor([[1.0], [2.0], [4.0], [7.0]], dtype=torch.float64) * 1e-162
    for seed in range(50):  # squared distances near the smallest positive number
        assert sorted(k_means_pp(FeatureVectors.of(x), 4, stream(seed, "x")).tolist()) == [
            0,
            1,
            2,
            3,
        ]
