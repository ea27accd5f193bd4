"""Forward pass in evaluation mode, with optional dropout and gradients for examples."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from typing import final

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from fallow.core.model_vectors import Layout
from fallow.core.types import State
from fallow.models.base import make_rows
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
    rows = make_rows(next(tried.parameters()), tuple(shape))
    generator = torch.Generator()
    before = generator.get_state()
    with drawing_from(generator), torch.no_grad():
        tried(rows)
    if not torch.equal(generator.get_state(), before):
        raise ValueError(
            f"model {type(model).__name__} draws random numbers outside of nn.Dropout "
            "layers, which would differ on a device; use nn.Dropout only, or set "
            "device=none"
        )


DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    DrawnDropout,
)


def has_dropout(model: nn.Module) -> bool:
    """Return whether a dropout layer has p > 0, so that passes with and without a generator
    differ.
    """
    return any(isinstance(m, DROPOUT) and m.p > 0 for m in model.modules())


def forward(
    model: nn.Module,
    layout: Layout,
    state: State,
    x: Tensor,
    draw: Generator | None = None,
    batch: int = 512,
) -> Tensor:
    """Return the outputs of the model at ``state``, in batches. x: (n, *shape) -> (n, c).

    With ``draw``, dropout is active and draws from it.  All other layers, such as batch
    norm, stay in evaluation mode.  The outputs are differentiable in ``x`` if ``x``
    requires a gradient, and never in ``state``.
    """
    model.eval()
    named = layout.views(state["w"].detach(), state["stats"].detach())
    with ExitStack() as undo:
        undo.enter_context(torch.set_grad_enabled(x.requires_grad))
        if draw is not None:
            undo.enter_context(drawing_from(draw))
            undo.callback(model.eval)
            for layer in model.modules():
                if isinstance(layer, DROPOUT):
                    layer.train()
        outputs = [functional_call(model, named, (rows,)) for rows in torch.split(x, batch)]
        return torch.cat(outputs)
