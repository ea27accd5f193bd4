"""Construction of an encoder by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fallow import encoders
from fallow.core.build import build
from fallow.core.methods import Encoder
from fallow.core.names import OWN, NamePolicy
from fallow.encoders.base import ShapeDependent, describe_shape

MOST = 65_536
"""Maximum number of features: a thousand examples take 0.25 GB."""


def build_encoder(
    name: str, shape: Sequence[int], policy: NamePolicy = OWN, /, **fields: Any
) -> Encoder:
    """Build the encoder ``name`` for examples of ``shape``; ``policy``: names that resolve.

    Raises ValueError for an unknown name or field, and for examples that it cannot encode.

    >>> build_encoder("convolution", (1, 28, 28), filters=8).width((1, 28, 28))
    128
    """
    built: Encoder = build(encoders, name, policy, **fields)
    if isinstance(built, ShapeDependent):
        built = built.settle(tuple(shape))
    width = built.width(tuple(shape))
    if width < 1:
        raise ValueError(
            f"{name} does not support examples of shape {describe_shape(shape)}"
        )
    if width > MOST:
        raise ValueError(
            f"{name} computes {width:,} features for examples of shape "
            f"{describe_shape(shape)}, more than the maximum of {MOST:,}; set a lower "
            "number"
        )
    return built
