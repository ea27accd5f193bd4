"""A model that fails in one of its passes, as with a broken device driver."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import torch
from torch import Tensor, nn


class Faulty(nn.Module):
    """Linear model that raises PyTorch's GPU error in training pass ``fails_at``."""

    fails_at: ClassVar[int | None] = None
    passes: ClassVar[int] = 0

    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.body = nn.Flatten()
        self.head = nn.Linear(prod(shape), outputs)

    def embed(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            Faulty.passes += 1
            if Faulty.passes == Faulty.fails_at:
                raise torch.AcceleratorError("CUDA error: unspecified launch failure\nmore")
        logits: Tensor = self.head(self.embed(x))
        return logits
