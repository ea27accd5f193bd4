"""Logits as evidence for classes: a Dirichlet distribution over predictions.

The evidence of a class is relu(logit), and α = evidence + 1 (Sensoy, Kaplan, Kandemir, 2018).  All
functions except `alpha` take α (..., C), return (...) and are differentiable.
"""

from __future__ import annotations

from torch import Tensor


def alpha(logits: Tensor) -> Tensor:
    """Return the parameters of the Dirichlet distribution, each at least 1.  (..., C) -> (..., C).

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
