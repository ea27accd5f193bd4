"""Rows in an order in which neighbours stand side by side."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Split = Literal["direction", "column"]
"""What rows are split along: the direction in which they vary most, or their widest column."""

LEAF = 8  # rows that are not split any more
SAMPLE = 512  # rows by which a direction is found
STEPS = 8  # towards the direction; it need not be exact
STEADY = 2.0**30  # places apart by less than 1 / STEADY of the widest are the same place


def order_by_neighbours(x: Tensor, unit: Tensor, split: Split = "direction") -> Tensor:
    """Rows along the leaves of a tree, each part of which is split at its median: (n,) positions.

    x: (n, d).  unit: (d,), what a column is multiplied by before columns are compared.  Rows at the
    same place keep their order.

    >>> order_by_neighbours(torch.tensor([[5.0], [0.0], [6.0]]), torch.ones(1))
    tensor([0, 1, 2])
    >>> order_by_neighbours(torch.arange(10.0).flip(0)[:, None], torch.ones(1))
    tensor([9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    """
    leaves: list[Tensor] = []

    def split_rows(rows: Tensor) -> None:
        if len(rows) <= LEAF:
            leaves.append(rows)
            return
        if split == "direction":
            places = places_along_direction(x[rows], unit)
        else:
            places = places_along_column(x[rows], unit)
        rows = rows[places.argsort(stable=True)]
        half = len(rows) // 2
        split_rows(rows[:half])
        split_rows(rows[half:])

    split_rows(torch.arange(len(x)))
    return torch.cat(leaves)


def places_along_column(x: Tensor, unit: Tensor) -> Tensor:
    """The widest column of rows, (n,)."""
    low, high = x.aminmax(dim=0)
    widest = ((high - low) * unit).argmax()
    return x[:, widest]


def places_along_direction(x: Tensor, unit: Tensor) -> Tensor:
    """Where rows lie along the direction in which they vary most, (n,).

    The direction is the first principal one of at most ``SAMPLE`` rows, by steps of the power
    method from their widest column, which grows along it.  Places are rounded, so that how sums
    are rounded does not change the order of rows.

    >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.5, 2.0]])
    >>> places_along_direction(x, torch.ones(2)) / STEADY
    tensor([0.0000, 1.0000, 0.5000], dtype=torch.float64)
    """
    step = -(-len(x) // SAMPLE)
    near = x[::step].double() * unit
    near = near - near.mean(dim=0)
    direction = torch.zeros(near.shape[1], dtype=torch.float64)
    direction[near.square().sum(dim=0).argmax()] = 1.0
    for _ in range(STEPS):
        turned = near.T @ (near @ direction)
        length = turned.norm()
        if length == 0:  # all rows lie in one place
            return torch.zeros(len(x), dtype=torch.float64)
        direction = turned / length

    places = (x @ (direction * unit).to(x.dtype)).double()
    places = places - places.min()
    width = places.max()
    if width == 0:
        return places
    return (places / width * STEADY).round()
