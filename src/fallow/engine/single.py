"""One model whose weights are put in for each pass."""

from __future__ import annotations

import copy
from typing import final

from torch import Tensor, nn

from fallow.core.banks import Layout
from fallow.engine.learner import Pass

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@final
class SingleModel:
    """A copy of the model in training mode, its parameters and statistics laid out side by side.

    A pass copies the given weights there: ``functional_call`` does the same, but walks through
    all modules each time, which costs as much as a small convolution.  Raises ValueError for
    batch norm whose statistics are a mean over all batches: sites could not average them.
    """

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        for name, module in model.named_modules():
            if isinstance(module, NORMS) and module.momentum is None:
                raise ValueError(
                    f"batch norm {name!r} has momentum None, a mean over all batches that sites "
                    "cannot share; give it a momentum, such as 0.1"
                )
        self.model = copy.deepcopy(model).train()
        self.state = layout.flatten(self.model)
        held = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        for name, view in layout.views(self.state["w"], self.state["stats"]).items():
            held[name].data = view
        self.has_stats = bool(layout.buffers)
        self.leaves = [held[name].requires_grad_() for name, _ in layout.params]

    def __call__(self, w: Tensor, stats: Tensor, x: Tensor) -> Pass:
        self.state["w"].copy_(w)
        if not self.has_stats:
            return Pass(self.model(x), self.leaves, stats)
        self.state["stats"].copy_(stats)
        outputs: Tensor = self.model(x)
        return Pass(outputs, self.leaves, self.state["stats"].clone())
