"""Losses of examples by task, weighted and masked in the same way in every executor."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.core.local import RowLoss


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of each example.  outputs: (..., b, c), y: (..., b) class
    ids -> (..., b)."""
    flat = nn.functional.cross_entropy(
        outputs.flatten(0, -2), y.flatten(), reduction="none"
    )
    return flat.view(y.shape)


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of each example.  outputs: (..., b, 1), y: (..., b) -> (...,
    b)."""
    error = outputs.squeeze(-1) - y
    return error * error


def row_loss(task: str) -> RowLoss:
    """Return the loss of a task: cross-entropy for ``"classification"``, else the squared
    error.
    """
    if task == "classification":
        return cross_entropy
    return squared_error
