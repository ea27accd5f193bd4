"""Examples without encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State
from fallow.encoders.base import Shape


@explain_constructor
@final
@dataclass(frozen=True)
class Identity:
    """Flatten examples without encoding, for tables.

    Parameters
    ----------
    half : bool
        Round features to float16.

    Examples
    --------
    >>> Identity().width((3, 8, 8))
    192
    """

    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(title="Identity")

    def width(self, shape: Shape) -> int:
        return math.prod(shape)

    def fit(self, ask: Ask, shape: Shape) -> State:
        return {}

    def encode(self, x: Tensor, state: State) -> Tensor:
        return x.flatten(1).float()

    def network(self, shape: Shape, state: State) -> nn.Module:
        return nn.Flatten()
