"""Forward passes through the models of K sites, for models whose parameters are all linear."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from fallow.core.model_vectors import Layout
from fallow.models.norms import BATCH_NORMS

RANDOM = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    nn.RReLU,
)


def can_stack(model: nn.Module) -> bool:
    """Return whether `Stacked` can train the model.

    All parameters must be in ``nn.Linear`` layers, no layer may keep statistics or draw
    random numbers. A forward pass must also treat each example separately, and only call
    its linear layers, which cannot be checked.
    """
    return all(_is_row_wise(module) for module in model.modules())


def _is_row_wise(module: nn.Module) -> bool:
    holds = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    is_joint = isinstance(module, (*RANDOM, *BATCH_NORMS))  # random, or over all examples
    return not is_joint and (type(module) is nn.Linear or not holds)


@final
class BankedLinear(nn.Module):
    """``nn.Linear`` with separate weights for each of K sites.

    weight: (K, o, i); bias: (K, o) or None; examples (K * b, ..., i), sorted by site. Both
    are plain attributes that are set before the forward passes.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features

    def forward(self, x: Tensor) -> Tensor:
        sites, out_features, in_features = self.weight.shape
        rows = x.reshape(sites, -1, in_features)
        # outputs are computed as (K, o, b) and transposed, which makes the backward pass
        # three times as fast
        if self.bias is None:
            y = torch.bmm(self.weight, rows.mT)
        else:
            y = torch.baddbmm(self.bias.unsqueeze(2), self.weight, rows.mT)
        return y.mT.reshape((*x.shape[:-1], out_features))


@final
class BankedModel:
    """Copy of a model whose linear layers contain the weights of all sites.

    All other operations treat examples separately, so they work for examples of several
    sites.  The model is one that `can_stack` accepts.
    """

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        self.source = model
        self.layout = layout

        # position of each parameter in the layout
        position_of_name = {name: at for at, (name, _) in enumerate(layout.params)}
        position = {
            id(parameter): position_of_name[name]
            for name, parameter in model.named_parameters()
        }
        # each layer, and the positions of its weight and its bias
        self.layers: list[tuple[BankedLinear, int, int | None]] = []
        # `deepcopy` treats these objects as copied, which replaces linear layers
        twins: dict[int, nn.Module] = {}
        for linear in model.modules():
            if not isinstance(linear, nn.Linear):
                continue
            banked = BankedLinear(linear.in_features, linear.out_features)
            twins[id(linear)] = banked
            bias = None
            if isinstance(linear.bias, nn.Parameter):
                bias = position[id(linear.bias)]
            self.layers.append((banked, position[id(linear.weight)], bias))
        self.model = copy.deepcopy(model, twins).train()

    def put(self, w: Tensor, stats: Tensor) -> Sequence[Tensor]:
        sites = len(w)
        parts = w.detach().split_with_sizes(self.layout.param_sizes, -1)  # (K, size) each
        leaves = []
        for part, (_, shape) in zip(parts, self.layout.params, strict=True):
            leaf = part.view((sites, *shape))  # a view of w, the start of the graph
            leaves.append(leaf.requires_grad_())
        for banked, weight, bias in self.layers:
            banked.weight = leaves[weight]
            banked.bias = None
            if bias is not None:
                banked.bias = leaves[bias]
        self._stats = stats
        return leaves

    def __call__(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.model(x.flatten(0, 1))  # (K b, ..., c)
        return outputs.view((*x.shape[:2], *outputs.shape[1:]))  # (K, b, ..., c)

    def stats(self) -> Tensor:
        return self._stats  # empty, because no layer keeps statistics

    @cached_property
    def judge(self) -> BankedModel:
        """A second copy in evaluation mode, because the first one has the weights of a
        graph.
        """
        judge = BankedModel(self.source, self.layout)
        judge.model.eval()
        return judge

    @torch.no_grad()
    def predict(self, w: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        self.judge.put(w, stats)
        return self.judge(x)
