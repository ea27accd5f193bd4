"""Forward pass in evaluation mode, with optional dropout and gradients for examples."""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from fallow.core.banks import Layout
from fallow.core.types import State
from fallow.engine.dropout import DrawnDropout
from fallow.models.init import drawing_from

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
