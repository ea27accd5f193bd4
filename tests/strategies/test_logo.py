import pytest
import torch

from fallow.core.streams import stream
from fallow.models.scores import entropy
from fallow.strategies import LoGo
from fallow.strategies.logo import take_in_turn
from fallow.strategies.parts.kmeans import cluster_rows
from tests.simulations import Table, simulation, tables


def test_rows_come_in_turn_from_the_clusters() -> None:
    cluster = torch.tensor([1, 1, 0, 1, 2])  # of examples 7, 3, 5, 9, 4, best first
    rows = torch.tensor([7, 3, 5, 9, 4])
    assert take_in_turn(cluster, rows).tolist() == [5, 7, 4, 3, 9]


def test_equal_rows_make_one_cluster_and_selection_falls_back_to_uncertainty() -> None:
    assert cluster_rows(torch.ones(8, 3), 4, stream(0, "x")).tolist() == [0] * 8
    common = torch.tensor([[9.0, 0], [1, 0], [3, 0], [0, 0]], dtype=torch.float64)
    local = torch.zeros(4, 2, dtype=torch.float64)
    local[:, 0] = 1e9  # confident: the reduced gradients of all examples vanish
    assert simulation({"a": Table(local, common, [0, 1])}, LoGo()).selected(3) == {
        "a": [3, 1, 2]
    }


def test_one_row_of_each_cluster_is_the_most_uncertain_globally() -> None:
    local = torch.tensor(
        [[0.0, 0.1], [0.0, 0.1], [40.0, 40.1], [40.0, 40.1]], dtype=torch.float64
    )
    common = torch.tensor([[5.0, 0], [1, 0], [1.1, 0], [6, 0]], dtype=torch.float64)
    selected = simulation({"a": Table(local, common, [0, 1])}, LoGo()).selected(2)["a"]
    assert sorted(selected) == [1, 2]


def test_clusters_may_be_missing() -> None:
    assert take_in_turn(torch.tensor([7, 3, 7]), torch.tensor([5, 1, 0])).tolist() == [
        1,
        5,
        0,
    ]


def test_a_budget_as_large_as_the_pool_takes_all_in_order_of_uncertainty() -> None:
    site = tables()["a"]
    order = entropy(site.common).argsort(descending=True).tolist()
    assert simulation({"a": site}, LoGo()).selected(12)["a"] == order
    assert simulation({"a": site.rows(torch.tensor([4]))}, LoGo()).selected(3)["a"] == [0]


@pytest.mark.parametrize("n", [4, 11, 12])
def test_rows_that_are_not_finite_come_last(n: int) -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    selected = simulation({"a": Table(local, site.common, [0, 1])}, LoGo()).selected(n)["a"]
    assert len(set(selected)) == n and not {2, 5} & set(selected[:10])


def test_predictions_that_are_all_nan_are_an_error_that_says_so() -> None:
    nan = torch.full((4, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 scores are NaN or infinite"):
        simulation({"a": Table(nan, nan, [0])}, LoGo()).selected(2)
