"""Device for the expensive products of a query: distances and cosines of many examples.

Query strategies do not depend on it.  Their helpers pass examples through `to_device` before products,
and return results on the CPU, where all random draws and selections happen.  The caller of a client
function selects the device with `taking_products_on`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

CELLS = 2**24  # numbers per block on a device: 128 MB in double precision

_PLACE: ContextVar[torch.device | None] = ContextVar("place of products", default=None)


@contextmanager
def taking_products_on(device: torch.device | None) -> Iterator[None]:
    """Compute products on a device in this context; None: on the device of the examples.

    >>> with taking_products_on(torch.device("meta")):
    ...     to_device(torch.ones(2, 3)).device
    device(type='meta')
    >>> to_device(torch.ones(2, 3)).device
    device(type='cpu')
    """
    before = _PLACE.set(device)
    try:
        yield
    finally:
        _PLACE.reset(before)


def to_device(rows: Tensor) -> Tensor:
    """Move examples to the device of products.

    Double precision stays on the CPU if the device does not support it.
    """
    device = _PLACE.get()
    if device is None or (device.type == "mps" and rows.dtype == torch.float64):
        return rows
    return rows.to(device)


def has_device() -> bool:
    """Return whether products are computed on a device."""
    return _PLACE.get() is not None


def block_rows(limit: int, columns: int) -> int:
    """Return the number of rows of a block with ``columns`` columns: at most ``limit``.

    On a device it is also limited to `CELLS` numbers, because all sites share its memory.

    >>> block_rows(1024, 100_000)
    1024
    >>> with taking_products_on(torch.device("cpu")):
    ...     block_rows(1024, 100_000)
    167
    """
    if not has_device():
        return limit
    return max(1, min(limit, CELLS // max(columns, 1)))
