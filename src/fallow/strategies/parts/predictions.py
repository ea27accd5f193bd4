"""Predictions of the global model for the unlabeled pool."""

from __future__ import annotations

from torch import Tensor

from fallow.core.view import Rows, View


def predict(view: View, which: Rows = "pool") -> Tensor | None:
    """Return probabilities by the global model, (n, C); None without a model or for regression."""
    if "global" not in view.memory or not view.classes:
        return None
    return view.logits("global", which).softmax(1)


def margins(p: Tensor) -> Tensor:
    """Return the gap between the two largest probabilities, (n, C) -> (n,); to 0 for one class."""
    if p.shape[1] == 1:
        return p[:, 0]
    two = p.topk(2, 1).values
    return two[:, 0] - two[:, 1]
