"""Greedy maximum coverage and herding: selected examples represent those similar to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fallow.core.limits import Limits
from fallow.core.view import View
from fallow.strategies.parts.kcenter import EXACT
from fallow.strategies.parts.top import require_finite

CANDIDATES = 64  # examples whose gains are computed together
CELLS = 2**24  # similarities of one block: 128 MB in double precision
EQUAL = 1e-9  # gains that differ by a smaller share are equal: two examples that cover each other

Similarity = Callable[[Tensor], Tensor]
"""Similarities in 0..1 from squared distances, of the same shape; not increasing."""


def maximize_coverage(
    x: Tensor,
    labeled: Tensor,
    similarity: Similarity,
    weight: Tensor,
    n: int,
    generator: torch.Generator,
) -> Tensor:
    """Return ``n`` positions, each of the example that adds most to the covered weight.

    An example is covered by its largest similarity to a labeled or selected one.  Of examples that
    add the same, the one that is most similar to all others comes first, then a random one.

    Parameters
    ----------
    x
        (m, d) finite features of the unlabeled pool.
    labeled
        (l, d) finite features of labeled examples.
    similarity
        From squared Euclidean distances.
    weight
        (m,) not negative: importance of covering each example.
    n
        Number of examples to select, at most m.
    generator
        Of the order among equal gains.

    Notes
    -----
    The gain of an example never grows while others are selected (the objective is submodular), so
    a gain that was computed before is an upper bound.  Only the examples with the largest bounds
    are computed again: the result is that of computing all of them, usually 20 to 100 times faster.

    >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
    >>> near = lambda square: (square <= 0.25).double()
    >>> maximize_coverage(x, x[:0], near, torch.ones(4), 2, torch.Generator())[1]
    tensor(3)
    """
    order = torch.randperm(len(x), generator=generator)
    x = x[order]
    weight = weight[order].to(x)
    covered = _cover_by(x, labeled, similarity)
    density = _gains(x, similarity, weight, torch.zeros_like(covered)).float()
    gains = _gains(x, similarity, weight, covered)
    selected = []
    for _ in range(n):
        best = _find_best(x, similarity, weight, covered, gains, density)
        selected.append(best)
        gains[best] = -torch.inf
        similar = similarity(square_distances(x, x[best : best + 1])).squeeze(1)
        covered = torch.maximum(covered, similar.to(x))
    return order[torch.tensor(selected, dtype=torch.int64)]


@final
@dataclass(frozen=True)
class UnitFeatures:
    """Features of unit length of a site's examples, as far as they are finite.

    Attributes
    ----------
    pool
        (k, d) of the unlabeled pool.
    labeled
        (l, d) of labeled examples.
    positions
        (k,) of ``pool`` in the unlabeled pool.
    not_finite
        (m - k,) positions of the others.
    """

    pool: Tensor
    labeled: Tensor
    positions: Tensor
    not_finite: Tensor

    @staticmethod
    def of(view: View, model: str) -> UnitFeatures:
        pool = unit_length(view.embed(model))
        is_finite = pool.isfinite().all(1)
        if len(pool):
            require_finite(is_finite)
        labeled = pool[:0]
        if len(view.labels):
            labeled = unit_length(view.embed(model, "labeled"))
        return UnitFeatures(
            pool=pool[is_finite],
            labeled=labeled[labeled.isfinite().all(1)],
            positions=is_finite.nonzero().squeeze(1),
            not_finite=(~is_finite).nonzero().squeeze(1),
        )

    def cover(
        self, similarity: Similarity, weight: Tensor, n: int, generator: torch.Generator
    ) -> Tensor:
        """Return ``n`` positions in the unlabeled pool by `maximize_coverage`.

        weight: (m,) of the whole pool; NaN counts as 0.  Examples with features that are not
        finite come last.
        """
        selected = maximize_coverage(
            self.pool,
            self.labeled,
            similarity,
            weight[self.positions].nan_to_num(0.0),
            min(n, len(self.positions)),
            generator,
        )
        return torch.cat([self.positions[selected], self.not_finite])[:n]


def unit_length(x: Tensor) -> Tensor:
    """Rows divided by their length; rows of zeros stay zero.  (m, d) -> (m, d)."""
    if len(x) < EXACT:
        x = x.double()
    tiny = torch.finfo(x.dtype).tiny
    scaled = x / x.abs().amax(1, keepdim=True).clamp_min(tiny)  # so that squares are finite
    length = scaled.square().sum(1, keepdim=True).sqrt()
    return scaled / length.clamp_min(tiny)


def square_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances between rows.  x: (m, d), y: (l, d) -> (m, l)."""
    half_x = x.square().sum(1) / 2
    half_y = y.square().sum(1) / 2
    half = torch.addmm(half_y, x, y.T, alpha=-1).add_(half_x[:, None])
    return half.mul_(2).clamp_min_(0)


def _cover_by(x: Tensor, labeled: Tensor, similarity: Similarity) -> Tensor:
    """The largest similarity of each row of ``x`` to a labeled one, (m,); 0 without any."""
    covered = x.new_zeros(len(x))
    size = max(1, CELLS // max(1, len(x)))
    for some in torch.split(labeled.to(x), size):
        if len(some):
            covered = torch.maximum(covered, similarity(square_distances(x, some)).amax(1))
    return covered


def _gains(
    x: Tensor,
    similarity: Similarity,
    weight: Tensor,
    covered: Tensor,
    candidates: Tensor | None = None,
) -> Tensor:
    """The weight that each candidate would cover beyond ``covered``, (k,); None: every row."""
    added = []
    size = max(1, CELLS // max(1, len(x)))
    rows = x if candidates is None else x[candidates]
    for block in torch.split(rows, size):
        similar = similarity(square_distances(x, block)).to(x)  # (m, b)
        added.append(weight @ similar.sub_(covered[:, None]).clamp_min_(0))
    return torch.cat(added)


def _find_best(
    x: Tensor,
    similarity: Similarity,
    weight: Tensor,
    covered: Tensor,
    gains: Tensor,
    density: Tensor,
) -> int:
    """The row with the largest gain; ``gains``, upper bounds before, are updated on the way."""
    is_current = gains <= 0  # a gain of nothing is exact
    while True:
        bounds = gains.masked_fill(is_current, -torch.inf)
        candidates = bounds.topk(min(CANDIDATES, len(x))).indices
        candidates = candidates[bounds[candidates] > -torch.inf]
        if len(candidates):
            gains[candidates] = _gains(x, similarity, weight, covered, candidates)
            is_current[candidates] = True
        current = gains.masked_fill(~is_current, -torch.inf)
        least = float(current.max()) * (1 - EQUAL)
        outside = gains.masked_fill(is_current, -torch.inf)
        if not len(candidates) or float(outside.max()) < least:
            is_best = is_current & (gains >= least)
            return int(density.masked_fill(~is_best, -torch.inf).argmax())


NARROW, WIDE = 0.2, 1.0  # limits of a width that is chosen from the labeled examples


WIDTH = Limits(
    gt=0, is_finite=True, advice=", or None to choose it from the labeled examples"
)
"""Width of a kernel."""


def herd(view: View, model: str, weight: Tensor, width: float | None, n: int) -> Tensor:
    """Return the positions of ``n`` examples whose kernel covers the unlabeled pool best.

    weight: (m,) importance of covering each example; NaN counts as 0.  width: of the kernel
    exp(-(distance / width)²); None: by `choose_width`.
    """
    features = UnitFeatures.of(view, model)
    if width is None:
        width = choose_width(features.labeled)
    scale = -(width**2)

    def similarity(square: Tensor) -> Tensor:
        return square.div(scale).exp()

    return features.cover(similarity, weight, n, view.stream("ties"))


def choose_width(labeled: Tensor) -> float:
    """Return the smallest distance between labeled examples, within `NARROW` and `WIDE`.

    labeled: (l, d) of unit length.  `WIDE` with fewer than two.

    >>> choose_width(torch.tensor([[1.0, 0.0], [0.8, 0.6]]))
    0.63...
    """
    if len(labeled) < 2:
        return WIDE
    square = square_distances(labeled, labeled).fill_diagonal_(torch.inf)
    smallest = math.sqrt(float(square.min()))
    return min(max(smallest, NARROW), WIDE)
