"""Blocks of all examples of a site, over which encoders aggregate."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fallow.core.view import Rows, View

CHUNK = 4096  # examples per block, so that no second copy of all examples is in memory
PICTURES = 256
KINDS: tuple[Rows, ...] = ("pool", "labeled", "validation")


def all_blocks(view: View, size: int = CHUNK) -> Iterator[Tensor]:
    """Yield examples (b, d) in float64, labeled or not.

    Raises ValueError for NaN and infinite numbers, with their column.
    """
    for which in KINDS:
        for rows in view.blocks(which, size):
            block = rows.flatten(1).double()
            check_finite(block)
            yield block


def check_finite(block: Tensor) -> None:
    """Raise ValueError for examples (b, d) with NaN or infinite numbers."""
    wrong = ~block.isfinite()
    if bool(wrong.any()):
        column = int(wrong.any(0).int().argmax())
        raise ValueError(
            f"column {column} has {int(wrong[:, column].sum())} values or more that are "
            "NaN or infinite; correct them, or omit such examples"
        )


def picture_blocks(view: View, size: int = PICTURES) -> Iterator[Tensor]:
    """Yield examples in their shape, (b, *shape) in float64, labeled or not."""
    for which in KINDS:
        for rows in view.blocks(which, size):
            check_finite(rows.flatten(1).double())
            yield rows.double()


def empty_sum(*shape: int) -> Tensor:
    """Return zeros in float64, as start of a sum."""
    return torch.zeros(*shape, dtype=torch.float64)
