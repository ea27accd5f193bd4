"""Ordering of examples by a median tree: split directions and completeness."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fallow.strategies.pivotal import (
    LEAF,
    Split,
    order_by_neighbors,
    places_along_direction,
)
from tests.strategies.regression import draws


def test_leaves_are_neighbors_on_the_widest_column() -> None:
    x = draws(64, 3) * torch.tensor([1.0, 5.0, 0.2])
    order = order_by_neighbors(x, torch.ones(3), "column")
    assert sorted(order.tolist()) == list(range(64))
    lower, upper = x[order[:32], 1], x[order[32:], 1]
    assert float(lower.max()) <= float(upper.min())
    other = order_by_neighbors(
        x, torch.tensor([1.0, 0.01, 50.0]), "column"
    )  # scaling decides which column is wide
    lower, upper = x[other[:32], 2], x[other[32:], 2]
    assert float(lower.max()) <= float(upper.min())


def test_a_tree_splits_along_the_direction_in_which_rows_vary_most() -> None:
    """Split along a direction shared by ten columns, not along one wider column."""
    number = torch.randn(2000, generator=torch.Generator().manual_seed(3))
    x = torch.cat([number[:, None].expand(-1, 10), 1.5 * draws(2000, 1)], dim=1)
    by_direction = order_by_neighbors(x, torch.ones(11))
    assert sorted(by_direction.tolist()) == list(range(2000))
    assert overlap(number, by_direction) < 0.3
    by_column = order_by_neighbors(x, torch.ones(11), "column")
    assert overlap(x[:, 10], by_column) <= 0
    units = torch.tensor([0.0] * 10 + [1.0])  # scaling decides the weight of a column
    assert overlap(x[:, 10], order_by_neighbors(x, units)) <= 0


def overlap(values: Tensor, order: Tensor) -> float:
    """Return the overlap of the values of one half of an order with the other."""
    halves = sorted(values[order].chunk(2), key=lambda half: float(half.mean()))
    return float(halves[0].max() - halves[1].min())


def test_places_along_a_direction_are_those_of_the_first_principal_component() -> None:
    x = draws(400, 6).double() @ torch.diag(torch.tensor([1, 5, 2, 1, 0.5, 3]).double())
    x = x @ torch.linalg.qr(draws(6, 6).double()).Q
    first = torch.linalg.svd(x - x.mean(dim=0)).Vh[0]
    is_row = torch.ones(1, 400, dtype=torch.bool)
    places = places_along_direction(x[None], is_row, unit=torch.ones(6))[0]
    result = torch.stack([places, x @ first])
    assert abs(float(torch.corrcoef(result)[0, 1])) > 0.99


@pytest.mark.parametrize("split", ["direction", "column"])
def test_rows_that_are_alike_or_alone_have_an_order_too(split: Split) -> None:
    for n in (0, 1, LEAF, 3 * LEAF + 1):
        order = order_by_neighbors(torch.zeros(n, 2), torch.ones(2), split)
        assert order.tolist() == list(range(n))


def test_of_many_columns_the_principal_directions_are_looked_at() -> None:
    """Use principal directions if a hundred columns of two hundred are correlated."""
    number = draws(900, 1)
    x = torch.cat([number.expand(-1, 100), 1.5 * draws(900, 100, name="others")], dim=1)
    order = order_by_neighbors(x, torch.ones(200))
    assert sorted(order.tolist()) == list(range(900))
    assert overlap(number[:, 0], order) < 0.3
    again = order_by_neighbors(100 * x, torch.full((200,), 0.01))
    assert order.tolist() == again.tolist()
