"""Custom modules, valid and invalid."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Own(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.Dropout(0.5))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)

    def embed(self, x: Tensor) -> Tensor:
        features: Tensor = self.norm(self.body(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


class TwoTooMany(Own):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes + 2)


class Softmaxed(Own):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).softmax(1)


class Tall(Own):
    def embed(self, x: Tensor) -> Tensor:
        return super().embed(x).unsqueeze(-1)


class Pair(Own):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(x), self.embed(x)


class NoEmbed(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(shape[0], classes)


class ConvHead(Own):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.head = nn.Conv1d(3, classes, 1)  # type: ignore[assignment]


class NoRoom(nn.Module):
    def __init__(self) -> None:
        super().__init__()


def not_a_module(shape: tuple[int, ...], classes: int) -> Tensor:
    return torch.zeros(shape[0], classes)
