"""Gradients of dense networks of several sites without autograd, in place, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt
from torch import nn

from fallow.core.local import (
    RowLoss,
)
from fallow.core.model_vectors import Layout
from fallow.engine.learner import cross_entropy, squared_error
from fallow.models.custom import CustomModel
from fallow.models.networks import MLP, Linear

Array = npt.NDArray[Any]  # of the dtype of the model


class Activation(Protocol):
    """Activation function of a hidden layer, in place."""

    @staticmethod
    def forward(z: Array) -> None:
        """Replace the inputs ``z`` of the function by its outputs."""
        ...

    @staticmethod
    def backward(slope: Array, outputs: Array) -> None:
        """Multiply a derivative with respect to the outputs by that of the function."""
        ...


@final
class ReLU:
    """Activation max(z, 0), with derivative 0 at 0, as in PyTorch."""

    @staticmethod
    def forward(z: Array) -> None:
        np.maximum(z, 0, out=z)

    @staticmethod
    def backward(slope: Array, outputs: Array) -> None:
        np.copyto(slope, 0, where=outputs <= 0)


@final
class Tanh:
    """Activation tanh(z)."""

    @staticmethod
    def forward(z: Array) -> None:
        np.tanh(z, out=z)

    @staticmethod
    def backward(slope: Array, outputs: Array) -> None:
        slope *= 1 - outputs * outputs


@final
class Sigmoid:
    """Activation 1 / (1 + exp(-z)), as (1 + tanh(z / 2)) / 2, which cannot overflow."""

    @staticmethod
    def forward(z: Array) -> None:
        z *= 0.5
        np.tanh(z, out=z)
        z += 1
        z *= 0.5

    @staticmethod
    def backward(slope: Array, outputs: Array) -> None:
        slope *= outputs
        slope *= 1 - outputs


ACTIVATIONS: Mapping[type[nn.Module], type[Activation]] = {
    nn.ReLU: ReLU,
    nn.Tanh: Tanh,
    nn.Sigmoid: Sigmoid,
}


class RowSlope(Protocol):
    """Derivative of the loss of an example with respect to its outputs."""

    def __call__(self, z: Array, y: Array) -> None:
        """Replace the outputs z (k, b, c) of k sites by the derivative. y: (k, b)"""
        ...


def squared_error_slope(z: Array, y: Array) -> None:
    """Replace outputs (k, b, 1) by the derivative of their squared error."""
    z -= y[..., np.newaxis]
    z *= 2


def cross_entropy_slope(z: Array, y: Array) -> None:
    """Replace logits (k, b, c) by the derivative of their cross-entropy."""
    z -= np.maximum.reduce(z, axis=-1, keepdims=True)
    np.exp(z, out=z)
    z /= np.add.reduce(z, axis=-1, keepdims=True)
    by_row = z.reshape(-1, z.shape[-1])
    by_row[np.arange(len(by_row)), y.ravel()] -= 1


SLOPES: Mapping[RowLoss, RowSlope] = {
    squared_error: squared_error_slope,
    cross_entropy: cross_entropy_slope,
}


class Layer(NamedTuple):
    """A linear layer: its positions in the vector of parameters.

    ``activation`` is that of its outputs, None for the last layer.
    """

    weight: slice
    bias: slice | None
    outputs: int
    inputs: int
    activation: type[Activation] | None

    def matrix(self, w: Array) -> Array:
        """Return the weights of k sites as a view. (k, d) -> (k, outputs, inputs)"""
        return w[:, self.weight].reshape(-1, self.outputs, self.inputs)


@final
class DenseNetwork(NamedTuple):
    """Linear layers with activations between them, and the loss of the outputs.

    With ``has_ones``, examples have an additional 1, which the first layer multiplies by its
    bias.
    """

    layers: tuple[Layer, ...]
    slope: RowSlope
    has_ones: bool

    @staticmethod
    def of(model: nn.Module, layout: Layout, loss: RowLoss) -> DenseNetwork | None:
        """Return the dense network of a model and a loss; None for other ones."""
        modules = _list_modules(model)
        if modules is None or loss not in SLOPES:
            return None
        if not all(parameter.requires_grad for parameter in model.parameters()):
            return None
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        ends = np.cumsum([0, *layout.param_sizes]).tolist()
        places: dict[str, slice] = {}
        for (name, _), (first, last) in zip(layout.params, pairwise(ends), strict=True):
            places[name] = slice(first, last)
        layers = []
        for linear, activation in modules:
            bias = None
            if isinstance(linear.bias, nn.Parameter):
                bias = places[names[id(linear.bias)]]
            weight = places[names[id(linear.weight)]]
            layers.append(
                Layer(weight, bias, linear.out_features, linear.in_features, activation)
            )
        (first_layer, *others) = layers
        has_ones = not others and first_layer.outputs == 1 and first_layer.bias is not None
        if has_ones:  # one product for weights and bias, which are next to each other
            whole = slice(0, layout.d)
            layers = [Layer(whole, None, 1, layout.d, None)]
        return DenseNetwork(tuple(layers), SLOPES[loss], has_ones)

    @property
    def width(self) -> int:
        """Number of inputs of an example."""
        return self.layers[0].inputs


def _list_modules(
    model: nn.Module,
) -> list[tuple[nn.Linear, type[Activation] | None]] | None:
    """Return the linear layers of a model with the activations after them; None if it has
    other layers.

    The forward pass of a custom class is unknown, unless it is an `nn.Sequential`.
    """
    if isinstance(model, CustomModel):
        model = model.module
    parts: list[nn.Module] = [model]
    if type(model) is nn.Sequential:
        parts = list(model)
    elif isinstance(model, Linear):
        parts = [model.head]
    elif isinstance(model, MLP):
        parts = [*model.body, model.head]
    if parts and type(parts[0]) is nn.Flatten:  # of examples of any shape
        parts = parts[1:]
    linear = parts[::2]
    between = parts[1::2]
    is_alternating = len(linear) == len(between) + 1 and len(set(linear)) == len(linear)
    if not is_alternating or not all(type(part) is nn.Linear for part in linear):
        return None
    if not all(type(part) in ACTIVATIONS for part in between):
        return None
    activations = [ACTIVATIONS[type(part)] for part in between]
    return list(zip(linear, [*activations, None], strict=True))  # type: ignore[arg-type]


@final
class Workspace:
    """Memory for the passes of up to ``size`` sites, which is used again in every step.

    New memory is slow.
    """

    def __init__(
        self, network: DenseNetwork, size: int, b: int, dtype: np.dtype[Any]
    ) -> None:
        self.network = network
        self.outputs = [
            np.empty((size, b, layer.outputs), dtype) for layer in network.layers
        ]
        self.slopes = [np.empty_like(outputs) for outputs in self.outputs[:-1]]

    def write_gradient(self, w: Array, x: Array, y: Array, share: Array, g: Array) -> None:
        """Write the gradients of k sites.  w, g: (k, d); x: (k, b, width); y, share: (k, b)"""
        k = len(w)
        layers = self.network.layers
        inputs = [x]  # of each layer
        for layer, memory in zip(layers, self.outputs, strict=True):
            z = memory[:k]
            np.matmul(inputs[-1], layer.matrix(w).swapaxes(1, 2), out=z)
            if layer.bias is not None:
                z += w[:, np.newaxis, layer.bias]
            if layer.activation is not None:
                layer.activation.forward(z)
            inputs.append(z)

        slope = inputs.pop()
        self.network.slope(slope, y)
        slope *= share[..., np.newaxis]
        for at in reversed(range(len(layers))):
            layer = layers[at]
            np.matmul(slope.swapaxes(1, 2), inputs[at], out=layer.matrix(g))
            if layer.bias is not None:
                np.add.reduce(slope, axis=1, out=g[:, layer.bias])
            below = layers[at - 1].activation
            if at == 0 or below is None:
                break
            before = self.slopes[at - 1][:k]
            np.matmul(slope, layer.matrix(w), out=before)
            below.backward(before, inputs[at])
            slope = before
