from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fallow.core.streams import stream
from fallow.strategies import CoreSet
from tests.simulations import Table, simulation, tables


def features(site: Table) -> Tensor:
    """Return the input, which is the embedding of a linear model."""
    return torch.cat([site.local, site.common], 1)


def test_each_pick_is_farthest_from_all_labeled_and_picked_rows() -> None:
    site = tables()["a"]
    federation = simulation({"a": site}, CoreSet())
    x, member = features(site), federation.members["a"]
    centers = list(member.x[member.labeled])
    for row in federation.selected(6)["a"]:
        distance = torch.cdist(x, torch.stack(centers)).amin(1)
        assert int(distance.argmax()) == row
        centers.append(x[row])


def test_a_site_without_labels_starts_in_the_middle_of_its_pool() -> None:
    site = replace(tables()["a"], labels=())
    x = features(site)
    middle = int((x - x.mean(0)).norm(dim=1).argmin())
    assert simulation({"a": site}, CoreSet()).selected(3)["a"][0] == middle


def test_duplicates_of_labeled_rows_come_last() -> None:
    draw = stream(0, "core-set")
    rows = torch.randn(6, 3, generator=draw, dtype=torch.float64)
    twice = torch.cat([rows, rows])
    selected = simulation({"a": Table(twice, twice, [0, 1, 2])}, CoreSet()).selected(6)["a"]
    assert len({row % 6 for row in selected}) == 6


def test_a_common_shift_of_all_features_changes_nothing() -> None:
    site = tables(rows=40)["a"]
    far = Table(site.local + 2.0**27, site.common + 2.0**27)  # squared norms leave 5 digits
    assert simulation({"a": far}, CoreSet()).selected(20) == simulation(
        {"a": Table(site.local, site.common)}, CoreSet()
    ).selected(20)


@pytest.mark.parametrize("labels", [(), (0, 1)])
def test_rows_that_are_not_finite_come_last(labels: tuple[int, ...]) -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1], local[7, 2] = torch.nan, torch.inf, -torch.inf
    federation = simulation({"a": Table(local, site.common, labels)}, CoreSet())
    selected = federation.selected(12)["a"]
    assert sorted(selected) == list(range(12)) and set(selected[-3:]) == {2, 5, 7}
    finite = [row for row in range(12) if row not in (2, 5, 7)]
    rest = simulation({"a": Table(local[finite], site.common[finite], labels)}, CoreSet())
    assert [finite[row] for row in rest.selected(9)["a"]] == selected[:9]


def test_a_labeled_row_that_is_not_finite_is_no_center() -> None:
    site = tables()["a"]
    federation, rest = (simulation({"a": site}, CoreSet()) for _ in range(2))
    member = federation.members["a"]
    row = int(member.labeled[0])
    member.x[row] = torch.nan
    rest.members["a"].x[row] = rest.members["a"].x[int(member.labeled[1])]  # a center twice
    assert federation.selected(6) == rest.selected(6)


def test_features_that_are_all_nan_are_an_error_that_says_so() -> None:
    nan = torch.full((4, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 scores are NaN or infinite"):
        simulation({"a": Table(nan, nan, [0])}, CoreSet()).selected(2)
