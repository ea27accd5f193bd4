"""A forward pass in evaluation mode that a query may draw in, or take the gradient of its rows."""

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
    """Whether a pass with a generator differs from one without: some dropout layer has p > 0."""
    return any(isinstance(m, DROPOUT) and m.p > 0 for m in model.modules())


def forward(
    model: nn.Module,
    layout: Layout,
    state: State,
    x: Tensor,
    draw: Generator | None = None,
    batch: int = 512,
) -> Tensor:
    """Outputs of the model at ``state``, in batches.  x: (n, *shape) -> (n, c).

    With ``draw`` the dropout layers drop, and draw from it; everything else, batch norm above all,
    stays in evaluation mode.  The graph reaches back to ``x`` where ``x`` requires a gradient, and
    there is none otherwise; ``state`` never gets one.
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
