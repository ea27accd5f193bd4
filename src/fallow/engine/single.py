"""A model whose weights are set before forward passes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from fallow.core.banks import Layout

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@final
class SingleModel:
    """Copy of a model in training mode, with concatenated parameters and statistics.

    ``put`` copies the given weights there. ``functional_call`` does the same, but its
    traversal of all modules takes as long as a small convolution. ``autocast``: type of
    products in training; outputs have the type of the examples. Raises ValueError for batch
    norm whose statistics are a mean over all batches, because sites could not average them.
    """

    def __init__(
        self, model: nn.Module, layout: Layout, autocast: torch.dtype | None = None
    ) -> None:
        for name, module in model.named_modules():
            if isinstance(module, NORMS) and module.momentum is None:
                raise ValueError(
                    f"batch norm {name!r} has momentum None, a mean over all batches that "
                    "cannot be averaged over sites; set a momentum, such as 0.1"
                )
        self.source = model
        self.layout = layout
        self.autocast = autocast
        self.model = copy.deepcopy(model).train()
        self.state = layout.flatten(self.model)
        tensors = {
            **dict(self.model.named_parameters()),
            **dict(self.model.named_buffers()),
        }
        for name, view in layout.views(self.state["w"], self.state["stats"]).items():
            tensors[name].data = view
        self.leaves = [tensors[name].requires_grad_() for name, _ in layout.params]

    def put(self, w: Tensor, stats: Tensor) -> Sequence[Tensor]:
        self.state["w"].copy_(w)
        self.state["stats"].copy_(stats)
        return self.leaves

    def __call__(self, x: Tensor) -> Tensor:
        if self.autocast is None:
            outputs: Tensor = self.model(x)
            return outputs
        with torch.autocast(x.device.type, self.autocast, cache_enabled=False):
            rough: Tensor = self.model(x)
        return rough.to(x.dtype)

    def stats(self) -> Tensor:
        return self.state["stats"].clone()

    @cached_property
    def judge(self) -> SingleModel:
        """A second copy in evaluation mode, because the first one has the weights of a
        graph.
        """
        judge = SingleModel(self.source, self.layout)
        judge.model.eval()
        return judge

    @torch.no_grad()
    def predict(self, w: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        self.judge.put(w, stats)
        return self.judge(x)
