"""Dropout on a device with masks drawn on the CPU, so that they are the same on every
device.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from fallow.models.init import drawing_from


def draw_mask(like: Tensor, p: float) -> Tensor:
    """Return a mask with 0 with probability ``p``, else 1 / (1 - p), in shape and layout of
    ``like``.

    It is drawn on the CPU, because PyTorch draws in the order of memory.
    """
    ones = torch.ones_like(like, device="cpu")
    return nn.functional.dropout(ones, p).to(like.device)


@final
class DrawnDropout(nn.Module):
    """`nn.Dropout` with masks drawn on the CPU."""

    def __init__(self, p: float, *, inplace: bool) -> None:
        super().__init__()
        self.p = p
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.numel() == 0:
            return x
        mask: Tensor | float = 0.0  # with p = 1, nothing is drawn
        if self.p < 1:
            mask = draw_mask(x, self.p)
        if self.inplace:
            return x.mul_(mask)
        return x * mask


def draw_on_processor(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose `nn.Dropout` layers are `DrawnDropout`."""
    model = copy.deepcopy(model)
    drawn: dict[nn.Module, DrawnDropout] = {}  # a layer may occur several times
    for parent in list(model.modules()):
        for name, layer in parent._modules.items():
            if type(layer) is not nn.Dropout:
                continue
            if layer not in drawn:
                drawn[layer] = DrawnDropout(layer.p, inplace=layer.inplace)
                drawn[layer].train(layer.training)
            parent._modules[name] = drawn[layer]
    return model


def has_plain_dropout(model: nn.Module) -> bool:
    """Return whether a forward pass in training draws masks of `nn.Dropout`."""
    return any(type(layer) is nn.Dropout and layer.p > 0 for layer in model.modules())


def check_draws(model: nn.Module, shape: Sequence[int]) -> None:
    """Raise ValueError for a model that draws random numbers elsewhere than in
    `nn.Dropout`.

    They would differ on a device. Two artificial examples of ``shape`` are passed through a
    copy.

    >>> check_draws(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), (3,))
    """
    tried = copy.deepcopy(model).train()
    for layer in tried.modules():
        if type(layer) is nn.Dropout:
            layer.eval()
    like = next(tried.parameters())
    rows = torch.linspace(-1, 1, 2 * math.prod(shape))
    generator = torch.Generator()
    before = generator.get_state()
    with drawing_from(generator), torch.no_grad():
        tried(rows.to(like).reshape(2, *shape))
    if not torch.equal(generator.get_state(), before):
        raise ValueError(
            f"model {type(model).__name__} draws random numbers outside of nn.Dropout "
            "layers, which would differ on a device; use nn.Dropout only, or set "
            "device=none"
        )
