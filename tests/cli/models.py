"""Modules for tests that refer to a model as module:Class."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn


class Positional(nn.Module):
    """A module without forward."""

    def __init__(self, in_dim: int, n_classes: int) -> None:
        super().__init__()
        self.body = nn.Linear(in_dim, 8)
        self.head = nn.Linear(8, n_classes)


class Own(nn.Module):
    """Custom model that no executor can stack."""

    def __init__(self, shape: Sequence[int], outputs: int, extra: int = 0) -> None:
        super().__init__()
        self.scale = nn.Bilinear(prod(shape), prod(shape), 4)
        self.head = nn.Linear(4, outputs + extra)

    def embed(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        features: Tensor = self.scale(flat, flat)
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


def wide(shape: Sequence[int], outputs: int) -> nn.Module:
    """Return a model whose number of outputs differs from the number of classes."""
    return Own(shape, outputs, extra=2)
