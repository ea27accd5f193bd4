"""Construction of a model by name, with weights that depend on a given generator only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, nn

from fallow.core.build import build, find
from fallow.core.model_vectors import Layout
from fallow.core.names import OWN, NamePolicy, own_class
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
    """Build the model ``name`` for examples of ``shape``, on the CPU, with new weights.

    Parameters
    ----------
    name : str
        A class of this package ("lenet", "ResNet8"), or a custom one as "module:Class", see
        `build_custom`.
    shape : sequence of int
        Shape of one example, e.g. ``(1, 28, 28)`` or ``(64,)``.
    outputs : int
        Number of classes, or of regression targets.
    generator : torch.Generator
        A CPU generator.  Equal generators give equal weights.  PyTorch's global random state is
        unchanged, also for a custom class.
    policy : NamePolicy
        Modules that a name may refer to, by default all.  Names in received files need another
        policy.
    **fields
        Other fields of the class, e.g. ``hidden=(32, 16)``.

    Raises
    ------
    ValueError
        For an unknown name or field, and for an unsupported shape.

    Examples
    --------
    >>> from fallow.core.streams import stream
    >>> model = build_model("mlp", (1, 8, 8), 10, stream(0, "init"), hidden=(32,))
    >>> sum(weight.numel() for weight in model.parameters())
    2410
    """
    shape = row_shape(shape)
    if ":" in name:
        return _users_own(name, shape, outputs, generator, policy, fields)
    _check_free(name, fields)
    with torch.device("meta"):  # shapes only: nothing is drawn yet
        model = build(networks, name, shape=shape, outputs=outputs, **fields)
    # like to_empty, but without the import of torch's symbolic shapes (0.5 s per process)
    model._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device="cpu"))
    model.reset(generator)
    built: nn.Module = model
    return built


def outline_model(
    name: str, shape: Sequence[int], outputs: int, /, **fields: Any
) -> Layout:
    """Return the shapes of the weights of a built-in network without building it.

    >>> outline_model("linear", (10**9,), 10).d
    10000000010
    """
    _check_free(name, fields)
    with torch.device("meta"):
        model = build(networks, name, shape=row_shape(shape), outputs=outputs, **fields)
    return Layout.of(model)


def _check_free(name: str, fields: dict[str, Any]) -> None:
    """Raise ValueError for a field that is determined by the data."""
    for value in ("shape", "outputs"):
        if value in fields:
            raise ValueError(
                f"{name}: {value} is determined by the data; omit that parameter"
            )


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
