"""Interface of models, and the shape of an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor, nn

Shape = tuple[int, ...]
"""Shape of one example, without the batch dimension: ``(1, 28, 28)`` or ``(64,)``."""


class EmbeddingModel(Protocol):
    """Interface of every model, built-in or custom.

    ``forward(x) == head(embed(x))``; both parts take batches ``(n, *shape)``.
    """

    head: nn.Linear

    def embed(self, x: Tensor) -> Tensor:
        """Return the features before the head.  x: (n, *shape) -> (n, d)."""
        ...

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, or predictions for regression.  x: (n, *shape) -> (n, outputs)."""
        ...


class Image(NamedTuple):
    """Shape of an example that is an image."""

    channels: int
    height: int
    width: int


def row_shape(shape: Sequence[int]) -> Shape:
    """Return ``shape`` as a tuple; ValueError unless it has axes and all sizes are positive.

    >>> row_shape([1, 8, 8])
    (1, 8, 8)
    """
    sizes = tuple(int(size) for size in shape)
    if not sizes or min(sizes) < 1:
        raise ValueError(
            f"an example of shape {sizes} is empty: every size must be at least 1"
        )
    return sizes


def image(net: str, shape: Sequence[int], smallest: int) -> Image:
    """Return ``shape`` as an image; ValueError if a side is below ``smallest`` pixels.

    >>> image("LeNet", (3, 32, 32), smallest=16)
    Image(channels=3, height=32, width=32)
    """
    sizes = row_shape(shape)
    if len(sizes) != 3:
        raise ValueError(
            f"{net} needs examples of shape (channels, height, width), but the data has "
            f"examples of shape {sizes}; Linear and MLP support any shape"
        )
    values = Image(*sizes)
    if min(values.height, values.width) < smallest:
        raise ValueError(
            f"{net} needs images of at least {smallest}x{smallest}, but the data has "
            f"{values.height}x{values.width}; Linear, MLP and DigitsCNN support smaller "
            "ones"
        )
    return values
