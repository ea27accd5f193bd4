"""First weights, drawn from a given generator and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor, nn

Layer = nn.Linear | nn.Conv2d
Rule = Callable[[Layer, Generator], None]


def fill(module: nn.Module, generator: Generator, rule: Rule) -> None:
    """Set every weight in ``module``: ``rule`` draws the linear and convolutional layers in
    the order of ``modules()``; batch normalization becomes the identity with fresh statistics.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            rule(layer, generator)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()  # constants: draws nothing


def fan_in_uniform(layer: Layer, generator: Generator) -> None:
    """PyTorch's default: weight and bias from U(-b, b), b = 1 / sqrt(fan in)."""
    bound = 1 / math.sqrt(_fan_in(layer.weight))
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def kaiming_uniform(layer: Layer, generator: Generator) -> None:
    """He et al. (2015) with the ReLU gain: U(-b, b), b = sqrt(6 / fan in); the bias is 0."""
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
    zero_bias(layer)


def kaiming_fan_out(layer: Layer, generator: Generator) -> None:
    """He et al. (2015) by fan out: N(0, 2 / fan out), fan out = k * k * channels out; bias 0."""
    nn.init.kaiming_normal_(
        layer.weight, mode="fan_out", nonlinearity="relu", generator=generator
    )
    zero_bias(layer)


def zeros(layer: Layer, generator: Generator) -> None:
    """Weight and bias 0: where a convex model starts, with nothing drawn."""
    nn.init.zeros_(layer.weight)
    zero_bias(layer)


def zero_bias(layer: Layer) -> None:
    """The bias, where there is one, becomes 0."""
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _fan_in(weight: Tensor) -> int:
    return math.prod(weight.shape[1:])  # (out, in) or (out, in, k, k)


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """A context in which PyTorch's global random numbers come from ``generator``.

    For a user's own module, whose constructor knows no generator: what it draws is drawn from
    ``generator``, which moves on as if it had been asked, and the global state is put back.
    """
    outside = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(outside)
