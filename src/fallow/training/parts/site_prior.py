"""Class shares of a site, which adapt a classifier to it.

A site with few classes knows more about an example than a common model does.  Its class shares π_k
follow from its own examples by expectation maximization, and correct the probabilities of the common
model, whose class shares over all sites are π:

    P = softmax(10 (W'z + b))                          labels are fixed
    Q = P π_k / π, normalized;  π_k <- (Σ Q + 20 π) / (n + 20);  30 times
    b_k = b + log(π_k / π) / 10

Twenty pseudo-examples with the common shares keep a site with few examples near the common model.

Related work: Saerens, Latinne, Decaestecker. Adjusting the Outputs of a Classifier to New a Priori
Probabilities: A Simple Procedure. Neural Computation 14 (1), 2002, equations (2.9) and (2.10).
"""

from __future__ import annotations

from torch import Tensor

from fallow.training.parts.self_training import SMALLEST_SHARE, TEMPERATURE, normalize

PSEUDO_EXAMPLES = 20
STEPS = 30


def estimate_shares(p: Tensor, common: Tensor) -> Tensor:
    """Return the class shares of a site, (S, C), by S models.

    p: (m, S, C) class probabilities of its examples, one-hot where a label is known;
    common: (S, C) class shares over all sites.

    >>> import torch
    >>> p = torch.tensor([[[0.8, 0.2]]]).double().expand(200, 1, 2)
    >>> estimate_shares(p, torch.tensor([[0.5, 0.5]])).round(decimals=2)
    tensor([[0.9400, 0.0600]], dtype=torch.float64)
    >>> estimate_shares(p[:0], torch.tensor([[0.5, 0.5]])).tolist()
    [[0.5, 0.5]]
    """
    examples = len(p) + PSEUDO_EXAMPLES
    shares = common
    for _ in range(STEPS):
        q = normalize(p * (shares / common))
        shares = (q.sum(0) + PSEUDO_EXAMPLES * common) / examples
    return shares


def limit_shares(sums: Tensor) -> Tensor:
    """Return positive class shares from summed class probabilities, (S, C)."""
    return normalize(normalize(sums.clamp_min(0)).clamp_min(SMALLEST_SHARE))


def adapt_bias(bias: Tensor, shares: Tensor, common: Tensor) -> Tensor:
    """Return the biases of S models at a site with these class shares, all (S, C)."""
    change = shares.clamp_min(SMALLEST_SHARE).log() - common.log()
    return bias + change / TEMPERATURE
