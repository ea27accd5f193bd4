"""Dropout on a device, with masks that are drawn on the processor: the same wherever it runs."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from fallow.models.init import drawing_from


class MaskLike(NamedTuple):
    """A mask to draw: of the shape and layout of what it multiplies, 0 with probability ``p``."""

    like: Tensor  # on "meta", which has no numbers
    p: float

    def draw(self, generator: torch.Generator | None = None) -> Tensor:
        """0 or 1 / (1 - p), on the processor, from a generator or from the global one.

        PyTorch draws in the order in which numbers lie in memory.
        """
        mask = torch.empty_like(self.like, device="cpu")
        return mask.bernoulli_(1 - self.p, generator=generator).div_(1 - self.p)


@final
class Masks:
    """Where the dropout layers of one model take their masks from.

    Usually each is drawn when a layer asks, in the order of the pass, as PyTorch does on the
    processor.  Steps that are recorded can draw nothing: the masks of a pass are noted once, and
    given in their places from then on.
    """

    def __init__(self) -> None:
        self._noted: list[MaskLike] | None = None
        self._given: Iterator[Tensor] | None = None

    def take(self, x: Tensor, p: float) -> Tensor:
        """What ``x`` is multiplied by."""
        if self._given is not None:
            return next(self._given)
        wanted = MaskLike(torch.empty_like(x, device="meta"), p)
        if self._noted is not None:
            self._noted.append(wanted)
        return wanted.draw().to(x.device)

    @contextmanager
    def noting(self) -> Iterator[list[MaskLike]]:
        """A context that writes down which masks are asked for, in their order."""
        self._noted = []
        try:
            yield self._noted
        finally:
            self._noted = None

    @contextmanager
    def giving(self, masks: Sequence[Tensor]) -> Iterator[None]:
        """A context in which masks are those that are given, in the order of one pass."""
        self._given = iter(masks)
        try:
            yield
        finally:
            self._given = None


@final
class DrawnDropout(nn.Module):
    """`nn.Dropout` with masks from the processor."""

    def __init__(self, p: float, masks: Masks, *, inplace: bool) -> None:
        super().__init__()
        self.p = p
        self.masks = masks
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.numel() == 0:
            return x
        mask: Tensor | float = 0.0  # where all is dropped, nothing is drawn
        if self.p < 1:
            mask = self.masks.take(x, self.p)
        if self.inplace:
            return x.mul_(mask)
        return x * mask


def draw_on_processor(model: nn.Module) -> nn.Module:
    """A copy of a model whose `nn.Dropout` layers are `DrawnDropout`, all with the same masks."""
    model = copy.deepcopy(model)
    masks = Masks()
    drawn: dict[nn.Module, DrawnDropout] = {}  # a layer may stand in several places
    for parent in list(model.modules()):
        for name, layer in parent._modules.items():
            if type(layer) is not nn.Dropout:
                continue
            if layer not in drawn:
                drawn[layer] = DrawnDropout(layer.p, masks, inplace=layer.inplace)
                drawn[layer].train(layer.training)
            parent._modules[name] = drawn[layer]
    return model


def find_masks(model: nn.Module) -> Masks | None:
    """Where the dropout layers of a model take their masks from; None where it has none."""
    for layer in model.modules():
        if isinstance(layer, DrawnDropout):
            return layer.masks
    return None


def has_plain_dropout(model: nn.Module) -> bool:
    """Whether a pass in training draws masks of `nn.Dropout`."""
    return any(type(layer) is nn.Dropout and layer.p > 0 for layer in model.modules())


def check_draws(model: nn.Module, shape: Sequence[int]) -> None:
    """Raise ValueError for a model that draws random numbers elsewhere than in `nn.Dropout`: on a
    device they would be others.  Two made-up rows of ``shape`` are passed through a copy.

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
            f"model {type(model).__name__} draws random numbers elsewhere than in nn.Dropout layers, "
            "and on a device they would be others; draw by nn.Dropout alone, or set device=none"
        )
