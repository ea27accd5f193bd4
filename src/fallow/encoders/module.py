"""Encoders from a frozen module or a function, in simulations and in Python."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.types import State
from fallow.encoders.base import DIGITS, Shape, describe_shape

BATCH = 256  # examples at a time
Network = Callable[[Tensor], Tensor]
"""Examples (b, *shape) -> features (b, ...)."""


def encoder_class(network: Network) -> type:
    """Return a class whose instances encode examples with ``network.embed`` or ``network``.

    A module runs as a copy, in evaluation mode, on its own device and in its own dtype; outputs are
    flattened.  The name of the class contains a digest of the weights, or of the code of a
    function, so experiment configurations identify it.  Raises ValueError for an object that cannot
    be called.
    """
    if not callable(network):
        raise ValueError(
            f"{network!r} cannot be called with examples; give a module or a function"
        )
    frozen = copy.deepcopy(network)
    if isinstance(frozen, nn.Module):
        frozen = frozen.eval()
    digest = _digest_network(network)
    embed: Network = getattr(frozen, "embed", frozen)
    title = type(network).__name__
    if inspect.isfunction(network):
        title = network.__name__

    @dataclass(frozen=True)
    class ModuleEncoder:
        """Features computed by a frozen module or a function."""

        version: ClassVar[int] = 1
        contract: ClassVar[Contract] = Contract(title=title)

        def width(self, shape: Shape) -> int:
            return self.encode(torch.zeros((1, *shape)), {}).shape[1]

        def fit(self, ask: Ask, shape: Shape) -> State:
            return {}

        def encode(self, x: Tensor, state: State) -> Tensor:
            like = x
            if isinstance(frozen, nn.Module):
                like = next(frozen.parameters(), x)
            parts = []
            with torch.no_grad():
                for block in torch.split(x, BATCH):
                    parts.append(_embed_block(embed, block.to(like), title).float().cpu())
            return torch.cat(parts)

        def network(self, shape: Shape, state: State) -> nn.Module:
            return Embedding(frozen)

        def weights_digest(self) -> str:
            return digest

    ModuleEncoder.__name__ = f"{title}_{digest[:12]}"
    ModuleEncoder.__qualname__ = ModuleEncoder.__name__
    # There is no module "given": the class is registered in the context, and its
    # annotations refer to no names of such a module.
    ModuleEncoder.__module__ = "given"
    ModuleEncoder.__annotations__ = {}
    return ModuleEncoder


@final
class Embedding(nn.Module):
    """Features of `encoder_class`, as a module for export."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        self.kind = torch.float32
        if isinstance(network, nn.Module):
            self.kind = next((weight.dtype for weight in network.parameters()), self.kind)
            self.cpu()

    def forward(self, x: Tensor) -> Tensor:
        embed: Network = getattr(self.network, "embed", self.network)
        return embed(x.to(self.kind)).flatten(1).float()


def _embed_block(embed: Network, block: Tensor, title: str) -> Tensor:
    """Return features (b, d) of examples (b, *shape); ValueError, with the shape, on failure."""
    try:
        return embed(block).flatten(1)
    except (RuntimeError, IndexError, TypeError) as error:
        shape = describe_shape(tuple(block.shape[1:]))
        raise ValueError(
            f"{title} cannot encode examples of shape {shape}: {error}"
        ) from error


def _digest_network(network: Network) -> str:
    """Return 32 hexadecimal digits of the weights and code of a module.

    For a function, the digest covers its code and the numbers that it refers to.
    """
    h = hashlib.sha256(type(network).__qualname__.encode())
    h.update(_find_source(network).encode())
    if isinstance(network, nn.Module):
        h.update(repr(network).encode())
        for name, value in sorted(network.state_dict().items()):
            h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
            h.update(value.detach().cpu().contiguous().numpy().tobytes())
    if inspect.isfunction(network):
        for cell in network.__closure__ or ():
            h.update(repr(cell.cell_contents).encode())
        h.update(repr((network.__defaults__, network.__kwdefaults__)).encode())
    return h.hexdigest()[:DIGITS]


def _find_source(network: Network) -> str:
    """Return the code of a function or of the class of an object; "" if unavailable."""
    try:
        if inspect.isfunction(network):
            return inspect.getsource(network)
        return inspect.getsource(type(network))
    except (OSError, TypeError):
        return ""
