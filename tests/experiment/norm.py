"""A custom model with batch norm."""

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn


class Norm(nn.Module):
    def __init__(self, shape: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(prod(shape))
        self.head = nn.Linear(prod(shape), outputs)

    def embed(self, x: Tensor) -> Tensor:
        features: Tensor = self.norm(x.flatten(1))
        return features

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.embed(x))
        return outputs
