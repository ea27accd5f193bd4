"""Order of examples in which neighbors are adjacent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

Split = Literal["direction", "column"]
"""Direction of splits: the direction of the largest variance, or the widest column."""

LEAF = 8  # maximum number of examples of a leaf
SAMPLE = 512  # number of examples that determine a direction
STEPS = 8  # power iterations; the direction need not be exact
WIDE = 64  # columns; beyond it, this number of principal directions is used
SKETCH = 4096  # number of examples that determine these
STEADY = 2.0**30  # positions closer than 1 / STEADY of the range are equal
TINY = torch.finfo(torch.float64).tiny
AT_ONCE = 2**22  # numbers per block of nodes

Places = Callable[[Tensor, Tensor], Tensor]
"""Examples of nodes, (parts, most, d), and a mask of them, (parts, most) -> their positions."""


def order_by_neighbors(x: Tensor, unit: Tensor, split: Split = "direction") -> Tensor:
    """Return examples along the leaves of a tree with median splits: (n,) positions.

    x: (n, d).  unit: (d,) factors of the columns for comparison.  Equal examples keep their order.

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
    """Project examples on the first principal directions of at most ``SKETCH``, (n, WIDE)."""
    step = -(-len(x) // SKETCH)
    near = x[::step] * unit.double()
    near -= near.mean(dim=0)
    directions = torch.linalg.eigh(near.T @ near).eigenvectors[:, -WIDE:]
    largest = directions.abs().argmax(dim=0)  # which decides where they point to
    directions = directions * directions.gather(0, largest[None]).sign()
    narrowed: Tensor = x @ (unit[:, None] * directions).to(x.dtype)
    return narrowed


def places_of(x: Tensor, parts: Tensor, find: Places) -> Tensor:
    """Return the positions of the examples within each node, (parts, most).

    Padding comes last, and the examples of a leaf have equal positions.
    """
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
    """Divide each node in two, the lower half of its examples first.

    >>> halve(torch.tensor([[4, 2, 0, 1, 3], [5, 6, 7, 8, -1]])).tolist()
    [[4, 2, -1], [0, 1, 3], [5, 6, -1], [7, 8, -1]]
    """
    n_nodes, width = parts.shape
    rows = (parts >= 0).sum(dim=1, keepdim=True)
    lower = rows // 2
    position = torch.arange(-(-width // 2))[None]
    first = parts[:, : position.shape[1]].masked_fill(position >= lower, -1)
    behind = (lower + position).clamp(max=width - 1)
    second = parts.gather(1, behind).masked_fill(lower + position >= rows, -1)
    return torch.stack([first, second], dim=1).reshape(2 * n_nodes, -1)


def places_along_column(x: Tensor, is_row: Tensor, *, unit: Tensor) -> Tensor:
    """Return the widest column of each node, (parts, most).  x: (parts, most, d)"""
    low = x.masked_fill(~is_row[..., None], torch.inf).amin(dim=1)
    high = x.masked_fill(~is_row[..., None], -torch.inf).amax(dim=1)
    widest = ((high - low) * unit).argmax(dim=1)
    return x[torch.arange(len(x)), :, widest]


def places_along_direction(x: Tensor, is_row: Tensor, *, unit: Tensor) -> Tensor:
    """Return positions along the direction of the largest variance of each node, (parts, most).

    The direction is the first principal one of at most ``SAMPLE`` examples, by power iterations
    from their widest column, oriented along it.  Positions are rounded, so rounding errors do not
    change the order.  x: (parts, most, d)

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
    """Return the approximate first principal direction of centered examples, (parts, d, 1).

    It is zero for examples that are all 0.  near: (parts, rows, d)

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
    """Scale vectors to length 1; zeros are unchanged.  (parts, n, 1)"""
    length: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / length.clamp(min=TINY)
