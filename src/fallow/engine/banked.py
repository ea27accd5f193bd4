"""Forward passes through the models of K sites, for models whose parameters are all linear."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from fallow.core.banks import Layout

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
    """Whether `Stacked` can train the model: all parameters sit in ``nn.Linear`` layers, nothing
    keeps statistics, and no layer draws random numbers.

    A forward pass must also treat each row by itself, and use its linear layers only by calling
    them; that a module says nowhere.
    """
    return all(_is_row_wise(module) for module in model.modules())


def _is_row_wise(module: nn.Module) -> bool:
    holds = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return not isinstance(module, RANDOM) and (type(module) is nn.Linear or not holds)


@final
class BankedLinear(nn.Module):
    """``nn.Linear`` with a weight for each of K sites.

    weight: (K, o, i); bias: (K, o) or None; rows (K * b, ..., i), those of the first site first.
    Both are plain attributes, put in before the passes.
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
        # outputs are made as (K, o, b) and turned: the backward pass is three times as fast so
        if self.bias is None:
            y = torch.bmm(self.weight, rows.mT)
        else:
            y = torch.baddbmm(self.bias.unsqueeze(2), self.weight, rows.mT)
        return y.mT.reshape((*x.shape[:-1], out_features))


@final
class BankedModel:
    """A copy of the model in which every linear layer holds the weights of all sites.

    Everything between those layers treats rows one by one, so it does not notice that the rows
    come from several sites.
    """

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        if not can_stack(model):
            raise ValueError(
                f"{type(model).__name__} has weights outside nn.Linear or draws random numbers, "
                "so sites cannot be stacked; use Loop"
            )
        self.source = model
        self.layout = layout

        # where each parameter stands among those of the layout
        position_of_name = {name: at for at, (name, _) in enumerate(layout.params)}
        position = {
            id(parameter): position_of_name[name]
            for name, parameter in model.named_parameters()
        }
        # each layer, and the positions of its weight and its bias
        self.layers: list[tuple[BankedLinear, int, int | None]] = []
        # `deepcopy` takes what it finds here as copied already: so linear layers are replaced
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
        self.held = stats
        return leaves

    def __call__(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.model(x.flatten(0, 1))  # (K b, ..., c)
        return outputs.view((*x.shape[:2], *outputs.shape[1:]))  # (K, b, ..., c)

    def stats(self) -> Tensor:
        return self.held  # there are none: no layer keeps statistics

    @cached_property
    def judge(self) -> BankedModel:
        """A second copy, in evaluation mode: the first one holds the weights of a graph."""
        judge = BankedModel(self.source, self.layout)
        judge.model.eval()
        return judge

    @torch.no_grad()
    def predict(self, w: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        self.judge.put(w, stats)
        return self.judge(x)
