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
    """Yield examples (b, d) in float64, labeled or not."""
    for block in picture_blocks(view, size):
        yield block.flatten(1)


def picture_blocks(view: View, size: int = PICTURES) -> Iterator[Tensor]:
    """Yield examples in their shape, (b, *shape) in float64, labeled or not."""
    for which in KINDS:
        for rows in view.blocks(which, size):
            yield rows.double()


def empty_sum(*shape: int) -> Tensor:
    """Return zeros in float64, as start of a sum."""
    return torch.zeros(*shape, dtype=torch.float64)
