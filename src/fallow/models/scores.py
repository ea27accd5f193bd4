"""Uncertainty scores: functions of logits, where larger means more uncertain.

All take logits (n, c) and return (n,) in the same dtype.  Adding a constant to the logits of an
example changes nothing.  NaN logits give NaN, which the caller must mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the softmax, in nats, between 0 and log c.  (n, c) -> (n,).

    A class with probability 0, also from a logit of -inf, contributes 0.

    >>> from torch import tensor
    >>> entropy(tensor([[0.0, 0.0], [200.0, 0.0]]))
    tensor([0.6931, 0.0000])
    """
    log_p = _rows(logits).log_softmax(1)
    p = log_p.exp()
    terms = p * log_p.masked_fill(p == 0, 0.0)  # 0 * -inf would be NaN
    return 0.0 - terms.sum(1)  # 0.0 - x and not -x: never -0.0


def margin(logits: Tensor) -> Tensor:
    """Return 1 - (p1 - p2), for the two largest probabilities.  (n, c) -> (n,), in [0, 1].

    With one class, every example is certain: 0.

    >>> from torch import tensor
    >>> margin(tensor([[0.6, 0.3, 0.1]]).log())
    tensor([0.7000])
    """
    if _rows(logits).shape[1] < 2:
        return logits[:, 0] * 0  # NaN stays NaN
    top = logits.softmax(1).topk(2, dim=1).values  # (n, 2)
    return 1 - (top[:, 0] - top[:, 1])


def least_confidence(logits: Tensor) -> Tensor:
    """Return 1 - the largest probability.  (n, c) -> (n,), between 0 and 1 - 1 / c.

    >>> from torch import tensor
    >>> least_confidence(tensor([[0.6, 0.3, 0.1]]).log())
    tensor([0.4000])
    """
    return 1 - _rows(logits).softmax(1).amax(1)


Over = Literal["mean", "max"]
"""Combination of the scores of several labels of an example."""


def score_labels(
    score: Callable[[Tensor], Tensor], outputs: Tensor, n_labels: int, over: Over
) -> Tensor:
    """Return an uncertainty score of each example, (n,).

    Parameters
    ----------
    score : callable
        Score of logits (n, c).
    outputs : Tensor
        (n, c) logits of classes, or (n, L) log-odds of several labels.
    n_labels : int
        Number of labels L; 0 for classes.
    over : {"mean", "max"}
        Combination of the scores of labels, each of which has the classes absent and present (Esuli
        and Sebastiani, 2009; Brinker, 2006, takes the maximum).

    Examples
    --------
    >>> from torch import tensor
    >>> score_labels(least_confidence, tensor([[0.0, 100.0]]), 2, "mean")
    tensor([0.2500])
    """
    if not n_labels:
        return score(outputs)
    log_odds = _rows(outputs).flatten()
    both = torch.stack([torch.zeros_like(log_odds), log_odds], dim=1)  # (n L, 2)
    scores = score(both).view(outputs.shape)
    return scores.amax(1) if over == "max" else scores.mean(1)


SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "entropy": entropy,
    "margin": margin,
    "least_confidence": least_confidence,
}
"""Uncertainty scores of classifiers by name."""


def _rows(logits: Tensor) -> Tensor:
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (n, c), not {tuple(logits.shape)}")
    return logits


def alpha(logits: Tensor) -> Tensor:
    """Return the parameters of the Dirichlet distribution, each at least 1.  (..., C) -> (..., C).

    The evidence of a class is relu(logit), and α = evidence + 1 (Sensoy, Kaplan, Kandemir, 2018).  The
    functions below take α (..., C), return (...) and are differentiable.

    >>> from torch import tensor
    >>> alpha(tensor([2.0, -3.0, 0.0]))
    tensor([3., 1., 1.])
    """
    return logits.relu() + 1


def aleatoric(a: Tensor) -> Tensor:
    """Return the mean entropy of a prediction drawn from the distribution, in nats.

    Σ_c (α_c / S) (ψ(S + 1) - ψ(α_c + 1)) with S = Σ α.  (..., C) -> (...).

    >>> from torch import tensor
    >>> aleatoric(tensor([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))
    tensor([0.7833, 0.8333])
    """
    s = a.sum(-1, keepdim=True)
    return (a / s * ((s + 1).digamma() - (a + 1).digamma())).sum(-1)


def dirichlet_entropy(a: Tensor) -> Tensor:
    """Return the differential entropy of the distribution, in nats.  (..., C) -> (...).

    >>> from torch import tensor
    >>> dirichlet_entropy(tensor([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))
    tensor([-1.3182, -0.6931])
    """
    s = a.sum(-1)  # (...)
    c = a.shape[-1]
    return (
        a.lgamma().sum(-1)
        - s.lgamma()
        + (s - c) * s.digamma()
        - ((a - 1) * a.digamma()).sum(-1)
    )


def from_uniform(a: Tensor) -> Tensor:
    """Return KL(Dir(α) || Dir(1, ..., 1)), in nats.  (..., C) -> (...).

    >>> from torch import tensor
    >>> from_uniform(tensor([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))
    tensor([0.6251, 0.0000])
    """
    return -dirichlet_entropy(a) - a.new_tensor(float(a.shape[-1])).lgamma()
