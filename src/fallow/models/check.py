"""Validation of a module as a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fallow.models.base import Shape, row_shape


def check_model(module: nn.Module, shape: Sequence[int], outputs: int) -> None:
    """Raise ValueError, with the reason, unless ``module`` can serve as a model.

    It must be a module with ``embed`` and a linear ``head`` of ``outputs`` outputs.  For examples
    of ``shape``, ``embed(x)`` has the shape (n, d), and ``forward(x) == head(embed(x))``.  Two
    artificial examples are passed through in evaluation mode; weights, statistics and modes are
    unchanged.
    """
    shape = row_shape(shape)
    if not isinstance(module, nn.Module):
        raise ValueError(f"a model must be a torch.nn.Module, not {type(module).__name__}")
    name = type(module).__name__
    if not callable(getattr(module, "embed", None)):
        raise ValueError(
            f"{name} needs a method embed(x) that returns the features before the"
            " head, of shape (n, d)"
        )
    head = getattr(module, "head", None)
    if not isinstance(head, nn.Linear):
        raise ValueError(
            f"{name} needs a last layer called head that is a torch.nn.Linear, not"
            f" {type(head).__name__}"
        )
    if head.out_features != outputs:
        raise ValueError(
            f"the head has {head.out_features} outputs but the data has {outputs} classes"
        )
    _check_pass(module, head, shape)


def _check_pass(module: nn.Module, head: nn.Linear, shape: Shape) -> None:
    name = type(module).__name__
    numbers = 2 * math.prod(shape)
    like = head.weight
    line = torch.linspace(-1, 1, numbers, dtype=like.dtype, device=like.device)
    rows = line.reshape((2, *shape))
    with evaluating(module), torch.no_grad():
        try:
            features = module.embed(rows)  # type: ignore[operator]
            logits = module(rows)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"{name} does not accept examples of shape {shape}: {error}"
            ) from error
        _check_shape(f"embed(x) of {name}", features, (2, head.in_features))
        _check_shape(f"forward(x) of {name}", logits, (2, head.out_features))
        if not torch.allclose(logits, head(features), rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ValueError(
                f"forward(x) of {name} is not head(embed(x)): return the logits of the "
                "head, without softmax or a further layer"
            )


def _check_shape(what: str, answer: object, expected: Shape) -> None:
    outcome: Shape | str = type(answer).__name__
    if isinstance(answer, Tensor):
        outcome = tuple(answer.shape)
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
