"""Where a query takes its heavy products: distances and cosines of many rows with many others.

A strategy does not know.  What it calls passes rows through `place` before they are multiplied, and
hands what came of it back on the processor: whatever is drawn or chosen is drawn and chosen there.
Who runs a site function says by `taking_products_on` where products are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

CELLS = 2**24  # numbers of a block on a device: 128 MB in double precision

_PLACE: ContextVar[torch.device | None] = ContextVar("place of products", default=None)


@contextmanager
def taking_products_on(device: torch.device | None) -> Iterator[None]:
    """A context in which products are taken on a device; None: where the rows are.

    >>> with taking_products_on(torch.device("meta")):
    ...     place(torch.ones(2, 3)).device
    device(type='meta')
    >>> place(torch.ones(2, 3)).device
    device(type='cpu')
    """
    before = _PLACE.set(device)
    try:
        yield
    finally:
        _PLACE.reset(before)


def place(rows: Tensor) -> Tensor:
    """Rows where products with them are taken.  Double precision stays where it is if the device
    has none."""
    device = _PLACE.get()
    if device is None or (device.type == "mps" and rows.dtype == torch.float64):
        return rows
    return rows.to(device)


def has_device() -> bool:
    """Whether products are taken on a device."""
    return _PLACE.get() is not None


def block_rows(most: int, columns: int) -> int:
    """How many rows of a matrix with so many columns are made at a time: ``most``, and on a device no
    more than `CELLS` numbers allow, because its memory is that of all sites.

    >>> block_rows(1024, 100_000)
    1024
    >>> with taking_products_on(torch.device("cpu")):
    ...     block_rows(1024, 100_000)
    167
    """
    if not has_device():
        return most
    return max(1, min(most, CELLS // max(columns, 1)))
