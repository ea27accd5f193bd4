"""LCMD: the farthest example of the largest cluster."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fallow.strategies import LCMD
from fallow.strategies.lcmd import nearest
from fallow.strategies.parts.kcenter import FeatureVectors
from tests.contracts.numbers import with_numbers
from tests.simulations import Table, simulation, tables
from tests.strategies.regression import draws


def plain(phi: Tensor, centers: list[Tensor], n: int) -> list[int]:
    """Select by the definition, with all distances to all centers."""
    selected = [] if centers else [int(phi.norm(dim=1).argmax())]
    centers = centers or [phi[selected[0]]]
    while len(selected) < n:
        squares = torch.stack(
            [(phi - c).square().sum(1) for c in centers], 1
        )  # (m, centers)
        left, cluster = squares.min(1)
        sizes = [float(left[cluster == c].sum()) for c in range(len(centers))]
        inside = cluster == sizes.index(max(sizes))
        inside[selected] = False
        selected.append(int(left.masked_fill(~inside, -1).argmax()))
        centers.append(phi[selected[-1]])
    return selected


@pytest.mark.parametrize("labels", [0, 1, 8])
@pytest.mark.parametrize("seed", range(4))
def test_picks_are_those_of_the_definition(seed: int, labels: int) -> None:
    sites = {
        name: Table(t.local, t.common, t.labels[:labels])
        for name, t in tables(seed, rows=40).items()
    }
    made = with_numbers(sites, LCMD())
    for name, selected in made.selected(15).items():
        site = made.members[name]
        assert selected == plain(site.x[site.pool], list(site.x[site.labeled]), 15)


def test_many_rows_that_are_rather_far_come_before_one_that_is_farthest() -> None:
    crowd = 3 + 0.01 * torch.arange(6.0).double()
    x = torch.cat([crowd, torch.tensor([-4.0]).double()])[:, None]  # a label at 0
    made = with_numbers({"a": Table(x, torch.zeros_like(x), [0])}, LCMD())
    made.members["a"].x[7] = 0.0
    first = made.selected(2)["a"]
    assert first == [
        6,
        5,
    ]  # one cluster: its farthest example; then the dense group has the larger one


def test_classes_make_no_difference() -> None:
    sites = tables(rows=30)
    assert simulation(sites, LCMD()).selected(9) == with_numbers(sites, LCMD()).selected(9)


def test_copies_of_labeled_rows_come_last() -> None:
    x = draws(6, 3)
    twice = torch.cat([x, x])
    for labels in ([], [0]):
        site = Table(twice, torch.zeros_like(twice), labels)
        selected = with_numbers({"a": site}, LCMD()).selected(6)["a"]
        assert len({row % 6 for row in selected}) == 6


def test_a_common_shift_of_all_features_changes_nothing() -> None:
    sites = tables(rows=40)
    made = with_numbers(sites, LCMD())
    for site in made.members.values():
        site.x += 2.0**27  # squared norms leave 5 digits
    assert made.selected(20) == with_numbers(sites, LCMD()).selected(20)


def test_a_row_between_two_centers_stays_with_the_older_one() -> None:
    x = torch.tensor(
        [[8.0], [4], [6], [6.5], [-4.5]]
    ).double()  # a label at 0, then a selection at 8
    made = with_numbers({"a": Table(x, 0 * x, [0])}, LCMD())
    made.members["a"].x[5] = 0.0
    assert made.selected(2)["a"] == [0, 4]  # 4 is as far from 0 as from 8


def test_of_two_centers_that_are_equally_near_the_older_one_keeps_the_row() -> None:
    pool, centers = (
        FeatureVectors.of(torch.zeros(1, 2)),
        torch.tensor([[3.0, 0], [0, 1], [0, -1]]),
    )
    left, at = nearest(pool, FeatureVectors.of(centers))
    assert left.tolist() == [0.5] and at.tolist() == [1]


def test_blocks_of_rows_are_put_together_in_order() -> None:
    pool, centers = draws(2500, 2), draws(7, 2, name="centers")
    squares, at = torch.cdist(pool, centers).square().min(1)
    left, ours = nearest(FeatureVectors.of(pool), FeatureVectors.of(centers))
    assert torch.equal(ours, at)
    torch.testing.assert_close(left, squares / 2, rtol=0, atol=1e-12)


def test_rows_that_are_not_finite_come_last_and_are_no_centers() -> None:
    made = with_numbers({"a": tables()["a"]}, LCMD())
    x, (labeled, *others) = made.members["a"].x, made.members["a"].labeled.tolist()
    x[2, 0], x[5, 1], x[labeled] = torch.nan, torch.inf, torch.nan
    selected = made.selected(12)["a"]
    assert sorted(selected) == list(range(12)) and selected[-2:] == [2, 5]
    kept = [row for row in range(12) if row not in (2, 5)]
    assert selected[:10] == [kept[row] for row in plain(x[kept], list(x[others]), 10)]
