from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fallow.core.streams import stream
from fallow.strategies import Typicality
from fallow.strategies.parts.density import cover
from tests.simulations import Table, simulation, tables


def groups(sizes: Sequence[int], labels: Sequence[int] = ()) -> Table:
    """Return a site with examples around one point per group: 2 classes, 4 features."""
    at = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)) * 100.0
    spread = torch.randn(sum(sizes), 4, generator=stream(0, "groups"), dtype=torch.float64)
    x = spread + at[:, None]
    return Table(x[:, :2], x[:, 2:], labels)


def features(site: Table) -> Tensor:
    """Return the input, which is the embedding of a linear model."""
    return torch.cat([site.local, site.common], 1)


def test_the_largest_clusters_give_their_most_typical_row() -> None:
    site = groups([4, 9, 6])
    x = features(site)
    expected = []
    for rows in (range(4, 13), range(13, 19), range(4)):  # the largest group first
        near = torch.cdist(x[list(rows)], x[list(rows)]).sort(1).values[:, 1:4].mean(1)
        expected.append(rows[int(near.argmin())])
    for seed in range(4):
        selected = simulation({"a": site}, Typicality(neighbors=3), seed).selected(3)["a"]
        assert selected == expected


def test_a_cluster_with_a_label_waits_for_those_without() -> None:
    site = groups([9, 4, 6], labels=[0])
    federation = simulation({"a": site}, Typicality())
    member = federation.members["a"]
    member.x[int(member.labeled[0])] = features(site)[0]  # in the largest group
    selected = federation.selected(2)["a"]
    assert selected[0] in range(13, 19) and selected[1] in range(9, 13)


def test_where_all_clusters_have_labels_those_with_the_fewest_come_first() -> None:
    cluster = torch.tensor(
        [0, 0, 0, 1, 1, 0, 0, 1]
    )  # two labels in the larger one, one in the other
    assert cover(cluster, torch.tensor([1.0, 3, 2, 4, 5]), 5).tolist() == [4, 1, 3, 2, 0]


def test_a_budget_of_the_whole_pool_takes_it_all() -> None:
    site = groups([3, 2])
    assert sorted(simulation({"a": site}, Typicality()).selected(9)["a"]) == [0, 1, 2, 3, 4]
    alone = {"a": site.rows(torch.tensor([3]))}
    assert simulation(alone, Typicality()).selected(2)["a"] == [0]


def test_copies_of_a_row_are_one_cluster_and_are_picked_once_before_the_others_run_out() -> (
    None
):
    draw = stream(0, "rows")
    rows = torch.randn(5, 3, generator=draw, dtype=torch.float64)
    twice = torch.cat([rows, rows])
    selected = simulation({"a": Table(twice, twice)}, Typicality()).selected(5)["a"]
    assert {row % 5 for row in selected} == set(range(5))


def test_features_that_are_not_finite_come_last_and_are_nobodys_neighbors() -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    federation = simulation({"a": Table(local, site.common, [0, 1])}, Typicality())
    member = federation.members["a"]
    member.x[int(member.labeled[0])] = torch.nan
    selected = federation.selected(12)["a"]
    assert sorted(selected) == list(range(12)) and set(selected[-2:]) == {2, 5}


def test_there_are_never_more_clusters_than_the_paper_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.strategies.typicality.MAX_CLUSTERS", 2)
    selected = simulation({"a": groups([8, 5])}, Typicality()).selected(4)["a"]
    assert [row < 8 for row in selected] == [True, False, True, False]
