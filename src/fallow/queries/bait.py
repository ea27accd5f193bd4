"""BAIT (Ash et al., 2021), Algorithm 1, for one output: small variance of all predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, View
from fallow.queries.base import Budget, Memo, check_choices, orders
from fallow.queries.parts import (
    SIGMA,
    LastLayer,
    Reduction,
    check_sigma,
    first_best,
    refuse_classes,
)


@final
@dataclass(frozen=True)
class BAIT:
    """Rows after whose labels the predictions of all rows vary least: Tr(MF) is made small.

    F is the Fisher information of the last layer over all rows of the site, and M the inverse of
    that over labelled rows and picks.  Twice as many rows as asked are picked greedily; then those
    whose loss is smallest are taken back.

    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [0.0, 3.0], [0.1, 3.0]]
    >>> labelled = ([[0.0, 0.0]], [0.5])
    >>> fl.select(fl.BAIT(), pool=pool, labelled=labelled, n=2)
    array([1, 2])

    Notes
    -----
    With one output and squared error the Fisher information of a row is φφ', φ = (embed(x), 1), and
    neither labels nor the head decide anything.  For classes it is another matrix: refused.  Noise
    and scale as in Holzmüller et al. (2023).  A pick without which M is not known is not taken
    back.  Equal scores go by position.  Rows whose features are not finite come last.
    """

    model: Literal["local", "global"] = "local"
    forward_only: bool = False  # nothing is taken back
    sigma: float = SIGMA  # σ; the paper's λ is σ² over the number of rows

    contract: ClassVar[Contract] = Contract(
        title="BAIT",
        paper="Gone Fishing: Neural Active Learning with Fisher Embeddings",
        year=2021,
        keep={"select": "number of picks"},
        needs=("local",),
        regression=True,
        classes=False,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        check_sigma(self)

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep("select", to=orders(budget))
        return memo

    def select(self, view: View, n: int) -> Picks:
        refuse_classes(self, view)
        rows = LastLayer.of(view, self.model)
        more = 2 * n
        if self.forward_only:
            more = n
        chosen = forward_backward(Reduction.of(rows, self.sigma), n, more)
        return rows.picks(chosen, n)


def forward_backward(rows: Reduction, n: int, more: int) -> Tensor:
    """``more`` greedy picks of which all but ``n`` are taken back, in the order of picking."""
    is_taken = torch.zeros(len(rows.phi), dtype=torch.bool)
    picks: list[int] = []
    for _ in range(min(more, len(rows.phi))):
        j = first_best(rows.gain().masked_fill(is_taken, -torch.inf))
        rows = rows.after(j)
        is_taken[j] = True
        picks.append(j)
    kept = torch.tensor(picks, dtype=torch.int64)
    rows = rows.at(kept)
    while len(kept) > n:
        loss = rows.loss()
        j = len(kept) - 1  # the last pick, where none can be taken back
        if bool(loss.isfinite().any()):
            j = int(loss.argmin())
        stay = torch.arange(len(kept)) != j
        rows = rows.after(j, -1).at(stay)
        kept = kept[stay]
    return kept
