"""FEAL (Chen et al., 2024): calibrated evidential uncertainty, without near-duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import Limits, PositiveInt
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.models.scores import aleatoric, alpha, dirichlet_entropy
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.neighbors import similar_blocks
from fallow.strategies.parts.top import rank_rows


@explain_constructor
@final
@dataclass(frozen=True)
class FEAL:
    """Select by aleatoric uncertainty of both models and epistemic uncertainty of one.

    The aleatoric uncertainty of both models is multiplied by the epistemic uncertainty of the
    global model.  In descending order of the score, an example is skipped if the local model sees
    many similar examples and one of them is already selected.

    Logits are interpreted as evidence, as in FEAL's own training algorithm:
    ``feal@training=evidential``.  After another training algorithm, only the order of the scores is
    meaningful; AHFAL's comparisons used it in this way.

    Parameters
    ----------
    neighbors : int
        Number of similar examples from which an example can be skipped.
    similar : float
        Cosine similarity above which examples are similar.

    Notes
    -----
    The paper's features are a pooled map of an EfficientNet; here they are the inputs of the last
    layer.  Neighbors of an example are other examples, including its copies.  If all global models
    are equally certain about all examples, the scale is 1; the public code divides 0 by 0.  If too
    few examples are accepted, the best skipped ones follow; the public code takes the last ones in
    the pool.  The public code considers 10,000 random examples of a larger pool, and stops at 85 %
    labels; here all examples are ranked and the label budget decides.  Examples with a non-finite
    prediction or feature are ranked last.

    Examples are compared with all others as far down the ranking as the label budget requires.
    Time is proportional to that number times the size of the pool, at most quadratic, and memory is
    linear in the size of the pool.

    References
    ----------
    Chen, Ma, Cui, Xia. Think Twice Before Selection: Federated Evidential Active Learning for
    Medical Image Analysis with Domain Shifts. 2024.

    Examples
    --------
    >>> import fallow as fl
    >>> outputs = {
    ...     "local": [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]],
    ...     "global": [[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]],
    ... }
    >>> labeled = ([[0.5], [8.0]], [0, 1])
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> fl.select(pool, fl.FEAL(neighbors=1), labeled=labeled, outputs=outputs, n=1)
    array([2])
    """

    neighbors: PositiveInt = (
        5  # k; number of similar examples from which an example can be skipped
    )
    similar: Annotated[float, Limits(ge=-1, le=1)] = (
        0.85  # cosine similarity above which examples are similar
    )

    contract: ClassVar[Contract] = Contract(
        title="FEAL",
        paper="Think Twice Before Selection: Federated Evidential Active Learning for Medical "
        "Image Analysis with Domain Shifts",
        year=2024,
        authors="Chen, Jiayi and Ma, Benteng and Cui, Hengfei and Xia, Yong",
        needs=("local", "global"),
        not_solved="it reads outputs as evidence for classes, which outputs of "
        "closed-form models are not",
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        z = view.embed("local")
        score = uncertainty(view.logits("local"), view.logits("global"))
        score = score.masked_fill(~z.isfinite().all(1), torch.nan)
        order = rank_rows(score, view.stream("ties"))
        scored = order[score[order].isfinite()]
        best = pass_over_crowds(self.crowds(z[scored]), n)
        return SelectedExamples(torch.cat([scored[best], order[len(scored) :]])[:n])

    def crowds(self, z: Tensor) -> Iterator[list[int]]:
        """Yield the k most similar examples of each example, if k are similar.  z: (m, d).

        They are computed on demand, because the ranking ends when the label budget is spent.
        """
        for cosine, at in similar_blocks(z, self.neighbors):
            is_one_of_many = (cosine > self.similar).sum(1) == self.neighbors
            for is_crowd, neighbors in zip(
                is_one_of_many.tolist(), at.tolist(), strict=True
            ):
                if is_crowd:
                    yield neighbors
                else:
                    yield []


def uncertainty(local: Tensor, globe: Tensor) -> Tensor:
    """Compute ê(x) (u(x; global) + u(x; local)) from the logits.  (m, C), (m, C) -> (m,)."""
    a = alpha(local.double())
    b = alpha(globe.double())
    return scale_scores(dirichlet_entropy(b)) * (aleatoric(b) + aleatoric(a))


def scale_scores(e: Tensor) -> Tensor:
    """Scale finite values to [0, 1], or to 1 if they are equal.  (m,) -> (m,).

    >>> scale_scores(torch.tensor([-3.0, 1.0, torch.nan, -1.0]))
    tensor([0.0000, 1.0000,    nan, 0.5000])
    """
    known = e[e.isfinite()]
    if not len(known) or known.min() == known.max():
        return torch.ones_like(e).masked_fill(~e.isfinite(), torch.nan)
    return (e - known.min()) / (known.max() - known.min())


def pass_over_crowds(crowds: Iterable[list[int]], n: int) -> Tensor:
    """Return ``n`` examples, the best first: accepted ones, then skipped ones.

    crowds: for each example, in descending order of score, the examples that exclude it if selected
    before.
    """
    chosen: set[int] = set()
    passed: list[int] = []
    for row, crowd in enumerate(crowds):
        if len(chosen) == n:
            break
        if chosen.isdisjoint(crowd):
            chosen.add(row)
        else:
            passed.append(row)
    return torch.tensor([*sorted(chosen), *passed][:n], dtype=torch.int64)
