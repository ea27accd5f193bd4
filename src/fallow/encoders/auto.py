"""The encoder that suits rows of a shape, where nobody named one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.methods import Encoder
from fallow.core.types import State
from fallow.encoders.base import Shape
from fallow.encoders.convolution import Convolution
from fallow.encoders.fourier import Fourier

SMALLEST = 8  # pixels: smaller pictures are tables


@final
@dataclass(frozen=True)
class Auto:
    """`Convolution` for pictures of 8 pixels and more in each direction, else `Fourier`.

    >>> Auto().settle((1, 28, 28))
    Convolution(filters=64, patch=5, threshold=0.5, grid=4, seed=0, half=False)
    >>> Auto().settle((13,)).width((13,))
    1024
    """

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(title="By the shape of rows")

    def settle(self, shape: Shape) -> Encoder:
        """The encoder for rows of ``shape``; it takes this one's place."""
        is_picture = len(shape) == 3 and min(shape[1:]) >= SMALLEST
        if is_picture:
            return Convolution().settle(shape)
        return Fourier()

    def width(self, shape: Shape) -> int:
        return self.settle(shape).width(shape)

    def fit(self, ask: Ask, shape: Shape) -> State:
        return self.settle(shape).fit(ask, shape)

    def encode(self, x: Tensor, state: State) -> Tensor:
        return self.settle(tuple(x.shape[1:])).encode(x, state)

    def network(self, shape: Shape, state: State) -> nn.Module:
        settled = self.settle(shape)
        assert isinstance(settled, Convolution | Fourier)  # noqa: S101 - it makes no other
        return settled.network(shape, state)
