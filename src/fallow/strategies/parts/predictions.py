"""What the common model says of a pool."""

from __future__ import annotations

from torch import Tensor

from fallow.core.view import Rows, View


def predict(view: View, which: Rows = "pool") -> Tensor | None:
    """Probabilities by the global model, (n, C); None where there is none, or none are predicted."""
    if "global" not in view.memory or not view.classes:
        return None
    return view.logits("global", which).softmax(1)


def margins(p: Tensor) -> Tensor:
    """The gap between the two largest probabilities, (n, C) -> (n,): of one class that to 0."""
    if p.shape[1] == 1:
        return p[:, 0]
    two = p.topk(2, 1).values
    return two[:, 0] - two[:, 1]
