import torch

from fallow.core import stream
from fallow.queries import LoGo
from fallow.queries.logo import clusters, in_turn
from tests.worlds import Table, world


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
