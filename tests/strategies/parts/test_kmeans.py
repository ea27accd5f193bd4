import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from fallow.core.streams import stream
from fallow.strategies.parts import cluster_rows
from fallow.strategies.parts.kmeans import in_one_thread


def threads() -> dict[str, int]:
    """Threads of every library that has some."""
    return {found["filepath"]: found["num_threads"] for found in threadpool_info()}


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
    )  # differences drown in squares
    assert len(cluster_rows(torch.cat([near - 1, near + 1]), 12, stream(0, "x"))) == 12


def test_one_cluster_and_one_row() -> None:
    x = torch.randn(5, 2, generator=stream(0, "rows"))
    assert cluster_rows(x, 1, stream(0, "x")).tolist() == [0] * 5
    assert cluster_rows(x[:1], 3, stream(0, "x")).tolist() == [0]


def test_many_clusters_are_found_in_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(6.0).repeat_interleave(3)[:, None] * 10
    monkeypatch.setattr("fallow.strategies.parts.kmeans.MANY", 3)
    found = cluster_rows(
        x + torch.rand(18, 1, generator=stream(0, "rows")), 6, stream(0, "x")
    )
    assert len(found) == 18 and len(set(found.tolist())) > 2


def spread(x: torch.Tensor, cluster: torch.Tensor) -> float:
    """Total squared distance of rows from the means of their clusters."""
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
    found = cluster_rows(x, 50, stream(0, "x"))
    assert len(torch.unique(found)) == 50
    assert spread(x, found) < 1.05 * expected
    assert torch.equal(found, cluster_rows(x, 50, stream(0, "x")))


def test_a_sample_of_equal_rows_is_enough_of_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.strategies.parts.kmeans.LARGE", 1)
    x = torch.zeros(400, 2)
    x[:3] = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    values = cluster_rows(x, 9, stream(0, "x"))  # four different rows
    assert len(torch.unique(values)) == 4
