"""Interface of models, its validation, and the shape of an example."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from fallow.core.refusal import explain_errors

Shape = tuple[int, ...]
"""Shape of one example, without the batch dimension: ``(1, 28, 28)`` or ``(64,)``."""


class EmbeddingModel(Protocol):
    """Interface of every model, built-in or custom.

    ``forward(x) == head(embed(x))``; both parts take batches ``(n, *shape)``.
    """

    head: nn.Linear

    def embed(self, x: Tensor) -> Tensor:
        """Return the features before the head.  x: (n, *shape) -> (n, d)."""
        ...

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, or predictions for regression.  x: (n, *shape) -> (n, outputs)."""
        ...


class HasBody(Protocol):
    """Network whose features are the output of its body."""

    body: nn.Sequential


def embed_by_body(model: HasBody, x: Tensor) -> Tensor:
    """Return the features before the head.  x: (n, *shape) -> (n, d)."""
    features: Tensor = model.body(x)
    return features


def predict_by_head(model: EmbeddingModel, x: Tensor) -> Tensor:
    """Return logits, or predictions for regression.  x: (n, *shape) -> (n, outputs)."""
    logits: Tensor = model.head(model.embed(x))
    return logits


class Image(NamedTuple):
    """Shape of an example that is an image."""

    channels: int
    height: int
    width: int


def row_shape(shape: Sequence[int]) -> Shape:
    """Return ``shape`` as a tuple; ValueError unless it has axes and all sizes are positive.

    >>> row_shape([1, 8, 8])
    (1, 8, 8)
    """
    sizes = tuple(int(size) for size in shape)
    if not sizes or min(sizes) < 1:
        raise ValueError(
            f"an example of shape {sizes} is empty: every size must be at least 1"
        )
    return sizes


def image(net: str, shape: Sequence[int], smallest: int) -> Image:
    """Return ``shape`` as an image; ValueError if a side is below ``smallest`` pixels.

    >>> image("LeNet", (3, 32, 32), smallest=16)
    Image(channels=3, height=32, width=32)
    """
    sizes = row_shape(shape)
    if len(sizes) != 3:
        raise ValueError(
            f"{net} needs examples of shape (channels, height, width), but the data has "
            f"examples of shape {sizes}; Linear and MLP support any shape"
        )
    values = Image(*sizes)
    if min(values.height, values.width) < smallest:
        raise ValueError(
            f"{net} needs images of at least {smallest}x{smallest}, but the data has "
            f"{values.height}x{values.width}; Linear, MLP and DigitsCNN support smaller "
            "ones"
        )
    return values


def check_model(module: nn.Module, shape: Sequence[int], outputs: int) -> None:
    """Raise ValueError, with the reason, unless ``module`` can serve as a model.

    It has ``embed`` and a linear ``head``, which must have ``outputs`` outputs.  For examples of
    ``shape``, ``embed(x)`` must have the shape (n, d), and ``forward(x) == head(embed(x))``.  Two
    artificial examples are passed through in evaluation mode; weights, statistics and modes are
    unchanged.
    """
    shape = row_shape(shape)
    head = cast(nn.Linear, module.head)
    if head.out_features != outputs:
        needed = "regression needs 1"
        if outputs > 1:
            needed = f"the data has {outputs} classes"
        raise ValueError(f"the head has {head.out_features} outputs but {needed}")
    _check_pass(module, head, shape)


def _check_pass(module: nn.Module, head: nn.Linear, shape: Shape) -> None:
    name = type(module).__name__
    rows = make_rows(head.weight, shape)
    with evaluating(module), torch.no_grad():
        with explain_errors(
            f"{name} does not accept examples of shape {shape}: ",
            of=(RuntimeError, TypeError, ValueError, IndexError),
        ):
            features = module.embed(rows)  # type: ignore[operator]
            logits = module(rows)
        _check_shape(f"embed(x) of {name}", features, (2, head.in_features))
        _check_shape(f"forward(x) of {name}", logits, (2, head.out_features))
        if not torch.allclose(logits, head(features), rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ValueError(
                f"forward(x) of {name} is not head(embed(x)): return the logits of the "
                "head, without softmax or a further layer"
            )


def make_rows(like: Tensor, shape: Shape) -> Tensor:
    """Return two artificial examples, with the dtype and device of ``like``."""
    line = torch.linspace(-1, 1, 2 * math.prod(shape))
    return line.to(like).reshape((2, *shape))


def _check_shape(what: str, output: object, expected: Shape) -> None:
    outcome: Shape | str = type(output).__name__
    if isinstance(output, Tensor):
        outcome = tuple(output.shape)
    if outcome != expected:
        raise ValueError(
            f"{what} must return a tensor of shape {expected} for 2 examples, not {outcome}"
        )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Return a context in which ``module`` is in evaluation mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, was_training in modes:
            part.training = was_training
