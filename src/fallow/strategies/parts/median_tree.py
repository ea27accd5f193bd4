"""Rows in an order in which neighbors stand side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

Split = Literal["direction", "column"]
"""What rows are split along: the direction in which they vary most, or their widest column."""

LEAF = 8  # rows that are not split any more
SAMPLE = 512  # rows by which a direction is found
STEPS = 8  # towards the direction; it need not be exact
WIDE = 64  # columns; of more, so many principal directions are looked at
SKETCH = 4096  # rows by which these are found
STEADY = 2.0**30  # places apart by less than 1 / STEADY of the widest are the same place
TINY = torch.finfo(torch.float64).tiny
AT_ONCE = 2**22  # numbers of the parts that are looked at together

Places = Callable[[Tensor, Tensor], Tensor]
"""Rows of parts, (parts, most, d), and which of them are rows, (parts, most) -> where they lie."""


def order_by_neighbors(x: Tensor, unit: Tensor, split: Split = "direction") -> Tensor:
    """Rows along the leaves of a tree, each part of which is split at its median: (n,) positions.

    x: (n, d).  unit: (d,), what a column is multiplied by before columns are compared.  Rows at the
    same place keep their order.

    >>> order_by_neighbors(torch.tensor([[5.0], [0.0], [6.0]]), torch.ones(1))
    tensor([0, 1, 2])
    >>> order_by_neighbors(torch.arange(10.0).flip(0)[:, None], torch.ones(1))
    tensor([9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    """
    if split == "direction" and x.shape[1] > WIDE:
        x = narrow(x, unit)
        unit = torch.ones(WIDE)
    find_places = {"direction": places_along_direction, "column": places_along_column}
    parts = torch.arange(len(x))[
        None
    ]  # (parts, most): rows, and -1 behind a part with one less
    while parts.shape[1] > LEAF:
        places = places_of(x, parts, partial(find_places[split], unit=unit))
        parts = parts.gather(1, places.argsort(dim=1, stable=True))
        parts = halve(parts)
    return parts[parts >= 0]


def narrow(x: Tensor, unit: Tensor) -> Tensor:
    """Rows along the first principal directions of at most ``SKETCH`` of them, (n, WIDE)."""
    step = -(-len(x) // SKETCH)
    near = x[::step] * unit.double()
    near -= near.mean(dim=0)
    directions = torch.linalg.eigh(near.T @ near).eigenvectors[:, -WIDE:]
    largest = directions.abs().argmax(dim=0)  # which decides where they point to
    directions = directions * directions.gather(0, largest[None]).sign()
    narrowed: Tensor = x @ (unit[:, None] * directions).to(x.dtype)
    return narrowed


def places_of(x: Tensor, parts: Tensor, find: Places) -> Tensor:
    """Where the rows of each part lie within it, (parts, most); what is no row lies behind them, and
    the rows of a part that is split no more lie at one place."""
    is_row = parts >= 0
    at_once = max(1, AT_ONCE // (parts.shape[1] * x.shape[1]))
    result = []
    chunks = zip(torch.split(parts, at_once), torch.split(is_row, at_once), strict=True)
    for some, are_rows in chunks:
        result.append(find(x[some.clamp(min=0)], are_rows))
    places = torch.cat(result).double()
    places[is_row.sum(dim=1) <= LEAF] = 0.0
    return places.masked_fill(~is_row, torch.inf)


def halve(parts: Tensor) -> Tensor:
    """Each part as two, the lower half of its rows first.

    >>> halve(torch.tensor([[4, 2, 0, 1, 3], [5, 6, 7, 8, -1]])).tolist()
    [[4, 2, -1], [0, 1, 3], [5, 6, -1], [7, 8, -1]]
    """
    many, most = parts.shape
    rows = (parts >= 0).sum(dim=1, keepdim=True)
    lower = rows // 2
    place = torch.arange(-(-most // 2))[None]
    first = parts[:, : place.shape[1]].masked_fill(place >= lower, -1)
    behind = (lower + place).clamp(max=most - 1)
    second = parts.gather(1, behind).masked_fill(lower + place >= rows, -1)
    return torch.stack([first, second], dim=1).reshape(2 * many, -1)


def places_along_column(x: Tensor, is_row: Tensor, *, unit: Tensor) -> Tensor:
    """The widest column of each part, (parts, most).  x: (parts, most, d)"""
    low = x.masked_fill(~is_row[..., None], torch.inf).amin(dim=1)
    high = x.masked_fill(~is_row[..., None], -torch.inf).amax(dim=1)
    widest = ((high - low) * unit).argmax(dim=1)
    return x[torch.arange(len(x)), :, widest]


def places_along_direction(x: Tensor, is_row: Tensor, *, unit: Tensor) -> Tensor:
    """Where rows lie along the direction in which those of their part vary most, (parts, most).

    The direction is the first principal one of at most ``SAMPLE`` rows, by steps of the power
    method from their widest column, which grows along it.  Places are rounded, so that how sums
    are rounded does not change the order of rows.  x: (parts, most, d)

    >>> x = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [1.5, 2.0]]])
    >>> is_row = torch.ones(1, 3, dtype=torch.bool)
    >>> places_along_direction(x, is_row, unit=torch.ones(2)) / STEADY
    tensor([[0.0000, 1.0000, 0.5000]], dtype=torch.float64)
    """
    step = -(-x.shape[1] // SAMPLE)
    near = x[:, ::step] * unit.double()
    counts = is_row[:, ::step, None].double()
    near -= (counts.mT @ near) / counts.sum(dim=1, keepdim=True)
    if not bool(is_row.all()):
        near *= counts
    direction = first_direction(near)

    if step == 1:
        places = (near @ direction).squeeze(2)
    else:
        places = (x @ (direction * unit[:, None]).to(x.dtype)).squeeze(2).double()
    lowest = places.masked_fill(~is_row, torch.inf).amin(dim=1, keepdim=True)
    highest = places.masked_fill(~is_row, -torch.inf).amax(dim=1, keepdim=True)
    width = (highest - lowest).clamp(min=TINY)
    return ((places - lowest) / width * STEADY).round()


def first_direction(near: Tensor) -> Tensor:
    """About the first principal direction of rows around 0, (parts, d, 1); zeros for those that all
    lie at 0.  near: (parts, rows, d)

    >>> first_direction(torch.tensor([[[3.0, 4.0], [-3.0, -4.0]]])).squeeze().tolist()
    [0.6..., 0.8...]
    """
    widest = near.square().sum(dim=1).argmax(dim=1)
    along = near.take_along_dim(widest[:, None, None], dim=2)  # (parts, rows, 1)
    if near.shape[1] <= near.shape[2]:  # products of rows are the smaller matrix
        products = near @ near.mT
        for _ in range(STEPS):
            along = scale(products @ along)
        return scale(near.mT @ along)
    products = near.mT @ near
    direction = near.mT @ along
    for _ in range(STEPS):
        direction = scale(products @ direction)
    return direction


def scale(vectors: Tensor) -> Tensor:
    """Vectors of length 1; zeros stay.  (parts, n, 1)"""
    length: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / length.clamp(min=TINY)
