import pytest
import torch

from fallow.core import stream
from fallow.models.scores import entropy
from fallow.queries import LoGo
from fallow.queries.logo import clusters, in_turn
from tests.worlds import Table, tables, world


def test_rows_come_in_turn_from_the_clusters():
    cluster = torch.tensor([1, 1, 0, 1, 2])  # of rows 7, 3, 5, 9, 4, best first
    rows = torch.tensor([7, 3, 5, 9, 4])
    assert in_turn(cluster, rows).tolist() == [5, 7, 4, 3, 9]


def test_equal_rows_make_one_cluster_and_selection_falls_back_to_uncertainty():
    assert clusters(torch.ones(8, 3), 4, stream(0, "x")).unique().tolist() == [0]
    common = torch.tensor([[9.0, 0], [1, 0], [3, 0], [0, 0]], dtype=torch.float64)
    local = torch.zeros(4, 2, dtype=torch.float64)
    local[:, 0] = 1e9  # sure: the reduced gradients of all rows vanish
    assert world({"a": Table(local, common, [0, 1])}, LoGo()).picks(3) == {"a": [3, 1, 2]}


def test_one_row_of_each_cluster_is_the_most_uncertain_globally():
    local = torch.tensor([[0.0, 0.1], [0.0, 0.1], [40.0, 40.1], [40.0, 40.1]], dtype=torch.float64)
    common = torch.tensor([[5.0, 0], [1, 0], [1.1, 0], [6, 0]], dtype=torch.float64)
    picks = world({"a": Table(local, common, [0, 1])}, LoGo()).picks(2)["a"]
    assert sorted(picks) == [1, 2]


def test_well_separated_groups_are_the_clusters():
    x = torch.tensor([[0.0], [0.1], [10.0], [10.1], [20.0]])
    found = clusters(x, 3, stream(0, "x")).tolist()
    assert found[0] == found[1] and found[2] == found[3] and len(set(found)) == 3


def test_clusters_may_be_missing():
    assert in_turn(torch.tensor([7, 3, 7]), torch.tensor([5, 1, 0])).tolist() == [1, 5, 0]


def test_rows_too_close_for_k_means_are_no_warning():
    near = torch.arange(6.0, dtype=torch.float64)[:, None] * 2**-40  # differences drown in squares
    assert len(clusters(torch.cat([near - 1, near + 1]), 12, stream(0, "x"))) == 12


def test_one_cluster_and_one_row():
    x = torch.randn(5, 2, generator=stream(0, "rows"))
    assert clusters(x, 1, stream(0, "x")).tolist() == [0] * 5
    assert clusters(x[:1], 3, stream(0, "x")).tolist() == [0]


def test_a_budget_as_large_as_the_pool_takes_all_in_order_of_uncertainty():
    site = tables()["a"]
    order = entropy(site.common).argsort(descending=True).tolist()
    assert world({"a": site}, LoGo()).picks(12)["a"] == order
    assert world({"a": site.rows(torch.tensor([4]))}, LoGo()).picks(3)["a"] == [0]


@pytest.mark.parametrize("n", [4, 11, 12])
def test_rows_that_are_not_finite_come_last(n):
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    picks = world({"a": Table(local, site.common, [0, 1])}, LoGo()).picks(n)["a"]
    assert len(set(picks)) == n and not {2, 5} & set(picks[:10])


def test_predictions_that_are_all_nan_are_an_error_that_says_so():
    nan = torch.full((4, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 scores are NaN or infinite"):
        world({"a": Table(nan, nan, [0])}, LoGo()).picks(2)


def test_many_clusters_are_found_in_mini_batches(monkeypatch):
    x = torch.arange(6.0).repeat_interleave(3)[:, None] * 10
    monkeypatch.setattr("fallow.queries.logo.MANY", 3)
    found = clusters(x + torch.rand(18, 1, generator=stream(0, "rows")), 6, stream(0, "x"))
    assert len(found) == 18 and len(found.unique()) > 2
