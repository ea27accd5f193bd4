"""Initialization of weights from a given generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor, nn

Layer = nn.Linear | nn.Conv2d
Rule = Callable[[Layer, Generator], None]


def fill(module: nn.Module, generator: Generator, rule: Rule) -> None:
    """Initialize all weights of ``module``.

    ``rule`` draws linear and convolutional layers in the order of ``modules()``; batch norm becomes
    the identity with new statistics.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            rule(layer, generator)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()  # constants: draws nothing


def fan_in_uniform(layer: Layer, generator: Generator) -> None:
    """Apply PyTorch's default: weight and bias from U(-b, b), b = 1 / sqrt(fan in)."""
    bound = 1 / math.sqrt(_fan_in(layer.weight))
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def kaiming_uniform(layer: Layer, generator: Generator) -> None:
    """Apply He et al. (2015) with the ReLU gain: U(-b, b), b = sqrt(6 / fan in); bias 0."""
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
    zero_bias(layer)


def kaiming_fan_out(layer: Layer, generator: Generator) -> None:
    """Apply He et al. (2015) by fan out: N(0, 2 / fan out), fan out = k * k * channels out; bias 0."""
    nn.init.kaiming_normal_(
        layer.weight, mode="fan_out", nonlinearity="relu", generator=generator
    )
    zero_bias(layer)


def zeros(layer: Layer, generator: Generator) -> None:
    """Set weight and bias to 0, the start of a convex problem."""
    nn.init.zeros_(layer.weight)
    zero_bias(layer)


def zero_bias(layer: Layer) -> None:
    """Set the bias, if any, to 0."""
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _fan_in(weight: Tensor) -> int:
    return math.prod(weight.shape[1:])  # (out, in) or (out, in, k, k)


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """Use ``generator`` for PyTorch's global random numbers in this context.

    This is for custom modules, whose constructors take no generator.  The state of ``generator``
    advances, and the global state is restored.
    """
    outside = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(outside)
