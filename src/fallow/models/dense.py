"""Models for rows of any shape: a linear map and a multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, final

from torch import Generator, Tensor, nn

from fallow.models.base import row_shape
from fallow.models.init import Rule, fan_in_uniform, fill, zeros


@final
class Linear(nn.Module):
    """One linear layer on the flattened row; the embedding is the row itself.

    Parameters: outputs * (features + 1), without ``bias`` outputs * features. ``init`` is
    "zeros" (the start of a convex problem, the default) or "default" (PyTorch's uniform).
    """

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        *,
        bias: bool = True,
        init: Literal["zeros", "default"] = "zeros",
    ) -> None:
        super().__init__()
        rules: dict[str, Rule] = {"zeros": zeros, "default": fan_in_uniform}
        if init not in rules:
            raise ValueError(f"Linear has no init {init!r}; known: {', '.join(rules)}")
        self.rule = rules[init]
        self.head = nn.Linear(math.prod(row_shape(shape)), outputs, bias=bias)

    def embed(self, x: Tensor) -> Tensor:
        """The rows, flattened.  x: (n, *shape) -> (n, features)."""
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits.  x: (n, *shape) -> (n, outputs)."""
        logits: Tensor = self.head(self.embed(x))
        return logits

    def reset(self, generator: Generator) -> None:
        """Fresh weights by the rule ``init``."""
        fill(self, generator, self.rule)


@final
class MLP(nn.Module):
    """Hidden layers with ReLU, one for each width in ``hidden``, on the flattened row.

    PyTorch's default weights. The embedding is the last hidden layer after its ReLU.
    """

    def __init__(
        self, shape: Sequence[int], outputs: int, *, hidden: Sequence[int] = (64,)
    ) -> None:
        super().__init__()
        if not hidden or min(hidden) < 1:
            raise ValueError(
                f"MLP needs one or more hidden widths of at least 1, not"
                f" {tuple(hidden)}; without hidden layers it is Linear"
            )
        self.body = nn.Sequential(nn.Flatten())
        for fan_in, fan_out in pairwise([math.prod(row_shape(shape)), *hidden]):
            self.body.extend([nn.Linear(fan_in, fan_out), nn.ReLU()])
        self.head = nn.Linear(hidden[-1], outputs)

    def embed(self, x: Tensor) -> Tensor:
        """The last hidden layer.  x: (n, *shape) -> (n, hidden[-1])."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits.  x: (n, *shape) -> (n, outputs)."""
        logits: Tensor = self.head(self.embed(x))
        return logits

    def reset(self, generator: Generator) -> None:
        """Fresh weights: PyTorch's default rule."""
        fill(self, generator, fan_in_uniform)
