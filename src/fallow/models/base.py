"""What every model offers, and the shape of the rows it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor, nn

Shape = tuple[int, ...]
"""The shape of one row, without the batch: ``(1, 28, 28)`` or ``(64,)``."""


class Model(Protocol):
    """The whole contract with a module, ours or a user's own.

    ``forward(x) == head(embed(x))``; both halves take batches ``(n, *shape)``.
    """

    head: nn.Linear

    def embed(self, x: Tensor) -> Tensor:
        """Features before the head.  x: (n, *shape) -> (n, d)."""
        ...

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or predictions of a regression.  x: (n, *shape) -> (n, outputs)."""
        ...


class Image(NamedTuple):
    """A row read as an image."""

    channels: int
    height: int
    width: int


def row_shape(shape: Sequence[int]) -> Shape:
    """``shape`` as a tuple; ValueError unless it has at least one axis and every size is positive.

    >>> row_shape([1, 8, 8])
    (1, 8, 8)
    """
    sizes = tuple(int(size) for size in shape)
    if not sizes or min(sizes) < 1:
        raise ValueError(
            f"a row of shape {sizes} holds nothing: every size must be at least 1"
        )
    return sizes


def image(net: str, shape: Sequence[int], smallest: int) -> Image:
    """``shape`` as an image of at least ``smallest`` pixels a side; ValueError names the way out.

    >>> image("LeNet", (3, 32, 32), smallest=16)
    Image(channels=3, height=32, width=32)
    """
    sizes = row_shape(shape)
    if len(sizes) != 3:
        raise ValueError(
            f"{net} needs rows of shape (channels, height, width), but the data has"
            f" rows of shape {sizes}; Linear and MLP take any shape"
        )
    values = Image(*sizes)
    if min(values.height, values.width) < smallest:
        raise ValueError(
            f"{net} needs images of at least {smallest}x{smallest}, but the data has"
            f" {values.height}x{values.width}; Linear, MLP and DigitsCNN take less"
        )
    return values
