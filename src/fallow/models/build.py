"""A model by its name, with weights that depend on the given generator alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, nn

from fallow.core.banks import Layout
from fallow.core.build import build, find
from fallow.core.names import OWN, NamePolicy
from fallow.core.own import own_class
from fallow.models import networks
from fallow.models.base import row_shape
from fallow.models.custom import build_custom


def build_model(
    name: str,
    shape: Sequence[int],
    outputs: int,
    generator: Generator,
    policy: NamePolicy = OWN,
    /,
    **fields: Any,
) -> nn.Module:
    """The model called ``name`` for rows of ``shape``, on the CPU, with fresh weights.

    name       a class of this package ("lenet", "ResNet8"), or a custom one as "module:Class", see
               `build_custom`
    shape      of one row, e.g. ``(1, 28, 28)`` or ``(64,)``
    outputs    classes, or targets of a regression
    generator  a CPU generator; equal generators give equal weights, and PyTorch's global
               random state stays as it was, also for a user's own class
    policy     which modules a name may be of: by default all; what is named in a file that somebody
               else wrote is built with another policy
    fields     the further fields of the class, e.g. ``hidden=(32, 16)``

    Raises ValueError for an unknown name or field, and for a shape the model cannot take.

    >>> from fallow.core.streams import stream
    >>> model = build_model("mlp", (1, 8, 8), 10, stream(0, "init"), hidden=(32,))
    >>> sum(weight.numel() for weight in model.parameters())
    2410
    """
    shape = row_shape(shape)
    if outputs < 1:
        raise ValueError(f"a model needs at least 1 output, not {outputs}")
    if ":" in name:
        return _users_own(name, shape, outputs, generator, policy, fields)
    _check_free(name, fields)
    with torch.device("meta"):  # shapes only: nothing is drawn yet
        model = build(networks, name, shape=shape, outputs=outputs, **fields)
    # what to_empty does, without its import of torch's symbolic shapes: half a second a process
    model._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device="cpu"))
    model.reset(generator)
    built: nn.Module = model
    return built


def outline_model(
    name: str, shape: Sequence[int], outputs: int, /, **fields: Any
) -> Layout:
    """The shapes of the weights of a network of this package, which is not built.

    >>> outline_model("linear", (10**9,), 10).d
    10000000010
    """
    _check_free(name, fields)
    with torch.device("meta"):
        model = build(networks, name, shape=row_shape(shape), outputs=outputs, **fields)
    return Layout.of(model)


def _check_free(name: str, fields: dict[str, Any]) -> None:
    """Raise ValueError for a field that the data decide."""
    for value in ("shape", "outputs"):
        if value in fields:
            raise ValueError(f"{name}: the data decide its {value}; leave that field out")


def _users_own(
    name: str,
    shape: Sequence[int],
    outputs: int,
    generator: Generator,
    policy: NamePolicy,
    fields: dict[str, Any],
) -> nn.Module:
    factory = own_class(name) or find(networks, name, policy)
    return build_custom(factory, shape, outputs, generator, fields, name)
