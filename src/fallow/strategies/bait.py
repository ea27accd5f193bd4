"""BAIT (Ash et al., 2021), Algorithm 1, for one output: small variance of all predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.view import Picks, View
from fallow.strategies.base import Budget, Memo, check_choices, orders
from fallow.strategies.parts import (
    SIGMA,
    TIED,
    LastLayer,
    Reduction,
    check_sigma,
    first_best,
    order_ties,
    refuse_classes,
)

PENDING = 32  # picks that the matrices may lag behind
MANY = 256  # rows that may be the best; of more, all are computed
ROUNDING = 1e-12  # of the largest number of a sum of some 32, with room
BLOCK = 1024  # rows


@final
@dataclass(frozen=True)
class BAIT:
    """Rows after whose labels the predictions of all rows vary least: Tr(MF) is made small.

    F is the Fisher information of the last layer over all rows of the site, and M the inverse of
    that over labeled rows and picks.  Twice as many rows as asked are picked greedily; then those
    whose loss is smallest are taken back.

    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [0.0, 3.0], [0.1, 3.0]]
    >>> labeled = ([[0.0, 0.0]], [0.5])
    >>> fl.select(pool, fl.BAIT(), labeled=labeled, n=2)
    array([1, 2])

    Notes
    -----
    With one output and squared error the Fisher information of a row is φφ', φ = (embed(x), 1), and
    neither labels nor the head decide anything.  For classes it is another matrix: refused.  Noise
    and scale as in Holzmüller et al. (2023).  A pick without which M is not known is not taken
    back.  Equal scores are broken at random.  Rows whose features are not finite come last.
    """

    model: Literal["local", "global"] = "local"
    forward_only: bool = False  # nothing is taken back
    sigma: float = SIGMA  # σ; the paper's λ is σ² over the number of rows

    contract: ClassVar[Contract] = Contract(
        title="BAIT",
        paper="Gone Fishing: Neural Active Learning with Fisher Embeddings",
        year=2021,
        authors="Ash, Jordan T. and Goel, Surbhi and "
        "Krishnamurthy, Akshay and Kakade, Sham",
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
        chosen = forward_backward(
            Reduction.of(rows, self.sigma), n, more, view.stream("ties")
        )
        return rows.picks(chosen, n)


def forward_backward(
    rows: Reduction, n: int, more: int, ties: torch.Generator | None = None
) -> Tensor:
    """``more`` greedy picks of which all but ``n`` are taken back, in the order of picking."""
    forward = Forward(rows, ties)
    for _ in range(min(more, len(rows.phi))):
        forward.take(forward.find_best())
    kept = torch.tensor(forward.picks, dtype=torch.int64)
    rows = forward.read_rows(kept)
    while len(kept) > n:
        loss = rows.loss()
        j = len(kept) - 1  # the last pick, where none can be taken back
        if bool(loss.isfinite().any()):
            j = int(loss.argmin())
        stay = torch.arange(len(kept)) != j
        rows = rows.after(j, -1).at(stay)
        kept = kept[stay]
    return kept


@final
class Forward:
    """Greedy picks, whose matrices follow some picks later.

    A pick changes M by an outer product, and with it Mφ and RMφ of all rows: two matrices (m, k) to
    write for each pick.  Here φ'Mφ and |RMφ|², (m,) each, are carried from pick to pick by two
    products of a matrix and a vector, and the matrices follow once in `PENDING` picks, by a product
    of matrices.  What is carried is rounded more coarsely than what is read off the matrices; so
    the rows that may be the best are computed from these before one of them is taken.
    """

    def __init__(self, rows: Reduction, ties: torch.Generator | None = None) -> None:
        m, k = rows.phi.shape
        self.picks: list[int] = []
        self.order = order_ties(m, ties)
        self.is_taken = torch.zeros(m, dtype=torch.bool)
        self.phi = _copy_by_columns(rows.phi)  # (m, k), and so the next two
        self.m_phi = _copy_by_columns(rows.m_phi)  # before the pending picks
        self.r_m_phi = _copy_by_columns(rows.r_m_phi)
        # Of each pending pick: how far every row moves, and along what.
        self.pending = 0
        self.steps = rows.phi.new_empty(PENDING, m)
        self.m_phi_picked = rows.phi.new_empty(PENDING, k)
        self.r_m_phi_picked = rows.phi.new_empty(PENDING, rows.r_m_phi.shape[1])
        # φ'Mφ and |RMφ|² of all rows, (m,), and the largest that each was since the matrices told.
        self.variance = rows.phi.new_empty(m)
        self.reward = rows.phi.new_empty(m)
        self.most_variance = rows.phi.new_empty(m)
        self.most_reward = rows.phi.new_empty(m)
        self._read_off()

    def find_best(self) -> int:
        """The row, of those not taken, whose gain is the largest up to rounding."""
        gain = self.reward / (1 + self.variance)
        if self.pending:
            doubt = self.most_reward + gain.abs() * self.most_variance
            doubt = ROUNDING * doubt / (1 + self.variance)
            least = (gain - doubt).masked_fill(self.is_taken, -torch.inf).max()
            may_be_best = gain + doubt >= least - TIED * least.abs()
            at = (may_be_best & ~self.is_taken).nonzero().squeeze(1)
            if 0 < len(at) <= MANY:  # none where rows overflow, and gains are no numbers
                return int(at[first_best(self.read_rows(at).gain(), self.order[at], TIED)])
            self.catch_up()
            gain = self.reward / (1 + self.variance)
        return first_best(gain.masked_fill(self.is_taken, -torch.inf), self.order, TIED)

    def take(self, j: int) -> None:
        """Label row ``j``."""
        picked = self.read_rows(torch.tensor([j]))
        m_phi = picked.m_phi[0]
        r_m_phi = picked.r_m_phi[0]
        before = self.steps[: self.pending].T  # (m, pending)

        covariance = self.phi @ m_phi  # φ'Mφ_j, (m,)
        along = self.r_m_phi @ r_m_phi  # φ'MFMφ_j, (m,), once pending picks are counted
        along -= before @ (self.r_m_phi_picked[: self.pending] @ r_m_phi)
        step = covariance / (1 + covariance[j])
        shift = step.square() * r_m_phi.square().sum()
        self.variance -= step * covariance
        self.reward += shift - 2 * step * along
        self.most_reward = torch.maximum(self.most_reward, shift)

        self.steps[self.pending] = step
        self.m_phi_picked[self.pending] = m_phi
        self.r_m_phi_picked[self.pending] = r_m_phi
        self.pending += 1
        self.picks.append(j)
        self.is_taken[j] = True
        if self.pending == PENDING:
            self.catch_up()

    def read_rows(self, at: Tensor) -> Reduction:
        """These rows, after all picks."""
        moved = self.steps[: self.pending, at].T  # (rows, pending)
        return Reduction(
            self.phi[at],
            self.m_phi[at] - moved @ self.m_phi_picked[: self.pending],
            self.r_m_phi[at] - moved @ self.r_m_phi_picked[: self.pending],
        )

    def catch_up(self) -> None:
        """Bring the matrices up to date, and read off them again what was carried."""
        moved = self.steps[: self.pending].T  # (m, pending)
        self.m_phi.addmm_(moved, self.m_phi_picked[: self.pending], alpha=-1)
        self.r_m_phi.addmm_(moved, self.r_m_phi_picked[: self.pending], alpha=-1)
        self.pending = 0
        self._read_off()

    def _read_off(self) -> None:
        """Take what is carried from the matrices: rounding errors are in proportion to the largest
        numbers since."""
        for first in range(0, len(self.phi), BLOCK):
            rows = slice(first, first + BLOCK)
            self.variance[rows] = (self.phi[rows] * self.m_phi[rows]).sum(1)
            self.reward[rows] = self.r_m_phi[rows].square().sum(1)
        self.most_variance = self.variance.clone()
        self.most_reward = self.reward.clone()


def _copy_by_columns(x: Tensor) -> Tensor:
    """A copy that lies column by column in memory: products with a vector are faster so."""
    return x.T.clone(memory_format=torch.contiguous_format).T
