"""FEAL (Chen et al., 2024): evidence of both models, calibrated, and no near copies among picks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, View
from fallow.models.evidence import aleatoric, alpha, dirichlet_entropy
from fallow.strategies.base import Budget, Memo, orders
from fallow.strategies.parts import rank_rows, similar_blocks


@final
@dataclass(frozen=True)
class FEAL:
    """Aleatoric uncertainty of both models, scaled by the global model's epistemic one.

    Going down the ranking, a row is passed over where the site's model sees many rows like it and
    one of them is chosen already.  It reads the logits as evidence, which is what they are after
    FEAL's own training: ``feal@training=evidential``.  After another one the scores have no meaning
    beyond their order; AHFAL's comparisons ran it so.

    >>> import fallow as fl
    >>> outputs = {
    ...     "local": [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]],
    ...     "global": [[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]],
    ... }
    >>> labeled = ([[0.5], [8.0]], [0, 1])
    >>> pool = [[0.0], [1.0], [9.0]]
    >>> fl.select(pool, fl.FEAL(neighbors=1), labeled=labeled, outputs=outputs, n=1)
    array([2])

    Notes
    -----
    The paper's features are a pooled map of an EfficientNet; here they are those before the head.
    A row's neighbors are other rows: its copies count and it does not.  Where all global models
    are equally sure of all rows, the scale is 1; the public code divides 0 by 0.  Where too few
    rows are accepted, the best of those passed over follow; the public code takes the last in the
    pool.  The code looks at 10,000 random rows of a larger pool, and a site stops at 85 % labels;
    here all rows are ranked and the budget says when to stop.  Rows whose prediction or feature is
    not finite come last.

    Rows are compared with all others as far down the ranking as the budget reaches: time grows as
    that many times the pool, at most as its square, and memory as the pool.
    """

    neighbors: int = 5  # k; as many similar rows make a row one of many
    similar: float = 0.85  # the cosine above which rows are similar

    contract: ClassVar[Contract] = Contract(
        title="FEAL",
        paper="Think Twice Before Selection: Federated Evidential Active Learning for Medical "
        "Image Analysis with Domain Shifts",
        year=2024,
        authors="Chen, Jiayi and Ma, Benteng and Cui, Hengfei and Xia, Yong",
        keep={"select": "number of picks"},
        needs=("local", "global"),
        not_solved="it reads outputs as evidence for classes, which those of a model that "
        "is solved for are not",
    )

    def __post_init__(self) -> None:
        if self.neighbors < 1:
            raise ValueError(f"FEAL's neighbors is {self.neighbors}; it must be 1 or more")
        if not -1 <= self.similar <= 1:
            raise ValueError(
                f"FEAL's similar is {self.similar}; it must lie between -1 and 1"
            )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep("select", to=orders(budget))
        return memo

    def select(self, view: View, n: int) -> Picks:
        z = view.embed("local")
        score = uncertainty(view.logits("local"), view.logits("global"))
        score = score.masked_fill(~z.isfinite().all(1), torch.nan)
        order = rank_rows(score, view.stream("ties"))
        scored = order[score[order].isfinite()]
        best = pass_over_crowds(self.crowds(z[scored]), n)
        return Picks(torch.cat([scored[best], order[len(scored) :]])[:n])

    def crowds(self, z: Tensor) -> Iterator[list[int]]:
        """For each row its k most similar others, if so many are similar.  z: (m, d).

        Found when they are asked for: the walk ends where all labels are spent.
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
    """ê(x) (u(x; global) + u(x; local)) from the logits of both models.  (m, C), (m, C) -> (m,)."""
    a = alpha(local.double())
    b = alpha(globe.double())
    return scale_scores(dirichlet_entropy(b)) * (aleatoric(b) + aleatoric(a))


def scale_scores(e: Tensor) -> Tensor:
    """Between 0 and 1 over the finite values, all 1 where they are equal.  (m,) -> (m,).

    >>> scale_scores(torch.tensor([-3.0, 1.0, torch.nan, -1.0]))
    tensor([0.0000, 1.0000,    nan, 0.5000])
    """
    known = e[e.isfinite()]
    if not len(known) or known.min() == known.max():
        return torch.ones_like(e).masked_fill(~e.isfinite(), torch.nan)
    return (e - known.min()) / (known.max() - known.min())


def pass_over_crowds(crowds: Iterable[list[int]], n: int) -> Tensor:
    """``n`` rows, the best first: accepted ones, and then those passed over.

    crowds: for each row, in descending order of score, the rows of which none may be chosen before.
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
