"""Gradients of the cross-entropy with respect to the last layer, as factors."""

from __future__ import annotations

import torch
from torch import Tensor


def residuals(p: Tensor, y: Tensor | None = None) -> Tensor:
    """Return P - e_y, the factor q of the gradient q ⊗ z.  p: (n, c), y: (n,) -> (n, c).

    Without labels, y is the predicted class, the lowest one of ties.

    >>> import torch
    >>> residuals(torch.tensor([[0.5, 0.25, 0.25]]))
    tensor([[-0.5000,  0.2500,  0.2500]])
    """
    if y is None:
        y = p.argmax(1)
    q = p.clone()
    q[torch.arange(len(q)), y] -= 1
    return q
