"""LCMD (Holzmüller et al., 2023): the farthest example of the largest cluster, repeatedly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.products import block_rows
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.kcenter import CHUNK, FeatureVectors
from fallow.strategies.parts.posterior import TIED, LastLayer
from fallow.strategies.parts.top import first_best, order_ties


@explain_constructor
@final
@dataclass(frozen=True)
class LCMD:
    """Select the farthest example of the largest cluster (maximum distance).

    The strategy resembles Core-Set, but prefers dense regions.  Labeled and selected examples are
    centers; the cluster of a center contains the examples nearest to it.  The size of a cluster is
    the sum of its squared distances.

    Parameters
    ----------
    model : {"local", "global"}
        Model whose features are used.

    Notes
    -----
    Distances are those of the gradients of one linear output, which equal distances of features.
    For classification, which the paper does not treat, they are the same.  A site without labels
    starts with the example of the largest norm.  Ties are broken at random.  Examples with
    non-finite features are ranked last.

    References
    ----------
    Holzmüller, Zaverkin, Kästner, Steinwart. A Framework and Benchmark for Deep Batch Active
    Learning for Regression. 2023.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [0.0, 3.0], [0.1, 3.0]]
    >>> labeled = ([[0.0, 0.0]], [0.5])
    >>> fl.select(pool, fl.LCMD(), labeled=labeled, n=2)
    array([3, 1])
    """

    model: Literal["local", "global"] = "local"

    contract: ClassVar[Contract] = Contract(
        title="LCMD",
        paper="A Framework and Benchmark for Deep Batch Active Learning for Regression",
        year=2023,
        authors="Holzmüller, David and Zaverkin, Viktor and "
        "Kästner, Johannes and Steinwart, Ingo",
        needs=("local",),
        regression=True,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        rows = LastLayer.of(view, self.model)
        ties = view.stream("ties")
        pool, labeled, start = rows.points(ties)
        return rows.selected(pick_by_cluster(pool, labeled, start, n, ties), n)


def pick_by_cluster(
    pool: FeatureVectors,
    labeled: FeatureVectors,
    start: int | None,
    n: int,
    ties: torch.Generator,
) -> Tensor:
    """Return ``min(n, m)`` examples of the pool (m), the first of them ``start`` if it is given."""
    left, center = nearest(pool, labeled)
    order = order_ties(len(left), ties)
    is_free = torch.ones(len(left), dtype=torch.bool)
    selected: list[int] = []
    for _ in range(min(n, len(left))):
        if start is not None and not selected:
            j = start
        else:
            size = torch.bincount(center, left)  # (centers,) sums of squared distances
            is_open = is_free & (size[center] == size.max())
            j = first_best(left.masked_fill(~is_open, -1), order, TIED)
        to_j = pool.to(j)
        is_closer = to_j < left  # ties keep the older center
        center = center.masked_fill(is_closer, len(labeled.half) + len(selected))
        left = left.minimum(to_j)
        is_free[j] = False
        left[j] = 0
        selected.append(j)
    return torch.tensor(selected, dtype=torch.int64)


def nearest(pool: FeatureVectors, centers: FeatureVectors) -> tuple[Tensor, Tensor]:
    """Return half the squared distance to the nearest center, and its position: (m,) each.

    Without centers, all examples are infinitely far from center 0.
    """
    if not len(centers.half):
        left = torch.full_like(pool.half_norms(), torch.inf)
        return left, torch.zeros(len(left)).long()
    distances = []
    places = []
    for x in torch.split(pool.x, block_rows(CHUNK, len(centers.half))):
        # half squared distances without |x|² / 2, which is the same for all centers
        outcome = torch.addmm(centers.half, x, centers.x.T, alpha=-1).min(1)
        distances.append(outcome.values)
        places.append(outcome.indices)
    left = torch.cat(distances) + pool.half
    return left.clamp_min(0).cpu(), torch.cat(places).cpu()
