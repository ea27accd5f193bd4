"""Row losses by task, weighted and masked in the same way in every executor."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.core.local import RowLoss


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each row.  outputs: (..., b, c), y: (..., b) class ids -> (..., b)."""
    flat = nn.functional.cross_entropy(outputs.flatten(0, -2), y.flatten(), reduction="none")
    return flat.view(y.shape)


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """Squared error of each row.  outputs: (..., b, 1), y: (..., b) -> (..., b)."""
    error = outputs.squeeze(-1) - y
    return error * error


def row_loss(task: str) -> RowLoss:
    """The loss of a task: cross-entropy for ``"classification"``, else the squared error."""
    return cross_entropy if task == "classification" else squared_error


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """The weighted mean over the batch.  (..., b), (..., b) -> (...); padding weighs 0.

    A batch in which every row weighs 0 has loss 0: it asks for no step.

    >>> import torch
    >>> weighted_mean(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(2.)
    """
    total = weight.sum(-1, keepdim=True).clamp_min(1e-30)  # no weight is negative
    return (losses * (weight / total)).sum(-1)
