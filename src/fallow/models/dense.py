"""Models for examples of any shape: linear model and multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal, final

from torch import Generator, Tensor, nn

from fallow.core.suggestions import require_known
from fallow.models.base import embed_by_body, predict_by_head, row_shape
from fallow.models.init import Rule, fan_in_uniform, fill, zeros


@final
class Linear(nn.Module):
    """One linear layer on the flattened example, which is also the embedding.

    It has outputs * (features + 1) parameters, or outputs * features without ``bias``.

    Parameters
    ----------
    bias : bool
        Whether the layer has an intercept.
    init : {"zeros", "default"}
        Initial weights: zeros, or PyTorch's uniform initialization.
    """

    features_are_rows: ClassVar[bool] = True  # for query strategies

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
        require_known(init, rules, f"Linear has no init {init!r}")
        self.rule = rules[init]
        self.head = nn.Linear(math.prod(row_shape(shape)), outputs, bias=bias)

    def embed(self, x: Tensor) -> Tensor:
        """Flatten examples.  x: (n, *shape) -> (n, features)."""
        return x.flatten(1)

    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights by ``init``."""
        fill(self, generator, self.rule)


@final
class MLP(nn.Module):
    """Hidden layers with ReLU, one for each width in ``hidden``, on the flattened example.

    Weights have PyTorch's default initialization.  The embedding is the last hidden layer after its
    ReLU.

    Parameters
    ----------
    hidden : sequence of int
        Width of each hidden layer.
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

    embed = embed_by_body
    forward = predict_by_head

    def reset(self, generator: Generator) -> None:
        """Initialize weights with PyTorch's default."""
        fill(self, generator, fan_in_uniform)
