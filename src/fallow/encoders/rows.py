"""All rows of a site, some at a time: what encoders take their totals over."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fallow.core.view import Rows, View

CHUNK = 4096  # rows: beside those of a site there is never a second copy of all
PICTURES = 256
KINDS: tuple[Rows, ...] = ("pool", "labeled", "validation")


def all_blocks(view: View, size: int = CHUNK) -> Iterator[Tensor]:
    """Rows (b, d) in float64, labeled or not.

    Raises ValueError for NaN and infinite numbers, with their column.
    """
    for which in KINDS:
        for rows in view.blocks(which, size):
            block = rows.flatten(1).double()
            check_finite(block)
            yield block


def check_finite(block: Tensor) -> None:
    """Raise ValueError for rows (b, d) with NaN or infinite numbers."""
    wrong = ~block.isfinite()
    if bool(wrong.any()):
        column = int(wrong.any(0).int().argmax())
        raise ValueError(
            f"column {column} has {int(wrong[:, column].sum())} values or more that are NaN or "
            "infinite; fill them, or leave such rows out"
        )


def picture_blocks(view: View, size: int = PICTURES) -> Iterator[Tensor]:
    """Rows as they are shaped, (b, *shape) in float64, labeled or not."""
    for which in KINDS:
        for rows in view.blocks(which, size):
            check_finite(rows.flatten(1).double())
            yield rows.double()


def empty_sum(*shape: int) -> Tensor:
    """Zeros in float64, to add totals to."""
    return torch.zeros(*shape, dtype=torch.float64)
