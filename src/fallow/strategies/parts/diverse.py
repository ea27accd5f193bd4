"""Diverse selection, in order of selection, by gradients or features."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from fallow.strategies.parts.kcenter import FeatureVectors, Gradients, k_center
from fallow.strategies.parts.kmeans import k_means_pp
from fallow.strategies.parts.top import rank_rows


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


def pick_by_gradient(
    p: Tensor, z: Tensor, n: int, ties: Generator, draw: Generator
) -> Tensor:
    """Run k-means++ on gradients of the last layer for the predicted label.  -> (n,).

    p: (m, C) probabilities; z: (m, d) features.  Examples with a non-finite gradient are ranked
    last.
    """
    gradients = Gradients.of(residuals(p), z)
    mixed = rank_rows(0 * gradients.half_norms(), ties)  # 0 · inf is NaN: last
    return mixed[k_means_pp(gradients.at(mixed), n, draw)]


def pick_by_cover(x: Tensor, anchors: Tensor | None, n: int, ties: Generator) -> Tensor:
    """Run greedy k-center from ``anchors``.  x: (m, d); anchors: (a, d) -> (n,).

    Without anchors, the first example is the closest to the mean.  Ties are broken at random.
    Non-finite examples are ranked last.
    """
    mixed = rank_rows(0 * x.sum(1), ties)  # 0 · NaN is NaN: ranked last
    middle = x[x.isfinite().all(1)].mean(0)
    pool = FeatureVectors.of(x[mixed] - middle)  # the same distances with less rounding
    if anchors is not None:
        return mixed[k_center(pool, n, pool.nearest(FeatureVectors.of(anchors - middle)))]
    return mixed[k_center(pool, n, first=int(pool.half_norms().argmin()))]
