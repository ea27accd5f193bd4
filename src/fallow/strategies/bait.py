"""BAIT (Ash et al., 2021), Algorithm 1, for one output: minimum variance of all
predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts import (
    SIGMA,
    TIED,
    LastLayer,
    Reduction,
    Sigma,
    first_best,
    order_ties,
    refuse_classes,
)

PENDING = 32  # selected examples by which the matrices may lag
MANY = 256  # candidates for the best example; beyond it, all gains are computed
ROUNDING = 1e-12  # relative to the largest term of a sum of about 32, with margin
BLOCK = 1024  # examples


@explain_constructor
@final
@dataclass(frozen=True)
class BAIT:
    """Select examples whose labels most reduce the variance of all predictions.

    The strategy minimizes Tr(MF).  F is the Fisher information of the last layer over all examples
    of the site, and M is the inverse of the Fisher information over labeled and selected examples.
    Twice as many examples as requested are selected greedily; then those whose removal costs least
    are removed.

    Parameters
    ----------
    model : {"local", "global"}
        Model that provides the features.
    forward_only : bool
        Skip the removal step.
    sigma : float
        Standard deviation of the label noise.  The paper's λ is sigma² / number of examples.

    Notes
    -----
    With one output and squared error, the Fisher information of an example is φφ', φ = (embed(x),
    1), and depends neither on labels nor on the last layer.  Classification requires a different
    matrix and is not supported.  Noise and scale follow Holzmüller et al. (2023).  An example
    without which M is undefined is not removed.  Ties are broken at random.  Examples with
    non-finite features are ranked last.

    References
    ----------
    Ash, Goel, Krishnamurthy, Kakade. Gone Fishing: Neural Active Learning with Fisher Embeddings.
    2021.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [0.0, 3.0], [0.1, 3.0]]
    >>> labeled = ([[0.0, 0.0]], [0.5])
    >>> fl.select(pool, fl.BAIT(), labeled=labeled, n=2)
    array([1, 2])
    """

    model: Literal["local", "global"] = "local"
    forward_only: bool = False  # no removal step
    sigma: Sigma = SIGMA  # σ; the paper's λ is σ² over the number of examples

    contract: ClassVar[Contract] = Contract(
        title="BAIT",
        paper="Gone Fishing: Neural Active Learning with Fisher Embeddings",
        year=2021,
        authors="Ash, Jordan T. and Goel, Surbhi and "
        "Krishnamurthy, Akshay and Kakade, Sham",
        needs=("local",),
        regression=True,
        classes=False,
    )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        ask.keep(self.select, to=label_counts(budget))
        return memo

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        refuse_classes(self, view)
        rows = LastLayer.of(view, self.model)
        more = 2 * n
        if self.forward_only:
            more = n
        chosen = forward_backward(
            Reduction.of(rows, self.sigma), n, more, view.stream("ties")
        )
        return rows.selected(chosen, n)


def forward_backward(
    rows: Reduction, n: int, more: int, ties: torch.Generator | None = None
) -> Tensor:
    """Select ``more`` examples greedily, then remove all but ``n``; in order of selection."""
    forward = Forward(rows, ties)
    for _ in range(min(more, len(rows.phi))):
        forward.take(forward.find_best())
    kept = torch.tensor(forward.selected, dtype=torch.int64)
    rows = forward.read_rows(kept)
    while len(kept) > n:
        loss = rows.loss()
        j = len(kept) - 1  # the last one, if none can be removed
        if bool(loss.isfinite().any()):
            j = int(loss.argmin())
        stay = torch.arange(len(kept)) != j
        rows = rows.after(j, -1).at(stay)
        kept = kept[stay]
    return kept


@final
class Forward:
    """Greedy selection with matrices that are updated in blocks.

    A selected example changes M by an outer product, and with it Mφ and RMφ of all examples: two
    matrices (m, k) to write for each selected example.  Here φ'Mφ and |RMφ|², (m,) each, are
    updated by two matrix-vector products, and the matrices once in `PENDING` selected examples, by
    a matrix product.  The incremental values have larger rounding errors than values read from the
    matrices.  The candidates for the best example are therefore computed from the matrices before
    one is selected.
    """

    def __init__(self, rows: Reduction, ties: torch.Generator | None = None) -> None:
        m, k = rows.phi.shape
        self.selected: list[int] = []
        self.order = order_ties(m, ties)
        self.is_taken = torch.zeros(m, dtype=torch.bool)
        self.phi = _copy_by_columns(rows.phi)  # (m, k), and so the next two
        self.m_phi = _copy_by_columns(rows.m_phi)  # before the pending examples
        self.r_m_phi = _copy_by_columns(rows.r_m_phi)
        # Step length of every example and direction, for each pending example.
        self.pending = 0
        self.steps = rows.phi.new_empty(PENDING, m)
        self.m_phi_picked = rows.phi.new_empty(PENDING, k)
        self.r_m_phi_picked = rows.phi.new_empty(PENDING, rows.r_m_phi.shape[1])
        # φ'Mφ and |RMφ|² of all examples, (m,), and their maxima since the last update.
        self.variance = rows.phi.new_empty(m)
        self.reward = rows.phi.new_empty(m)
        self.most_variance = rows.phi.new_empty(m)
        self.most_reward = rows.phi.new_empty(m)
        self._read_off()

    def find_best(self) -> int:
        """Return the remaining example with the largest gain, up to rounding."""
        gain = self.reward / (1 + self.variance)
        if self.pending:
            doubt = self.most_reward + gain.abs() * self.most_variance
            doubt = ROUNDING * doubt / (1 + self.variance)
            least = (gain - doubt).masked_fill(self.is_taken, -torch.inf).max()
            may_be_best = gain + doubt >= least - TIED * least.abs()
            at = (may_be_best & ~self.is_taken).nonzero().squeeze(1)
            if 0 < len(at) <= MANY:  # none if values overflow and gains are NaN
                return int(at[first_best(self.read_rows(at).gain(), self.order[at], TIED)])
            self.catch_up()
            gain = self.reward / (1 + self.variance)
        return first_best(gain.masked_fill(self.is_taken, -torch.inf), self.order, TIED)

    def take(self, j: int) -> None:
        """Select example ``j``."""
        picked = self.read_rows(torch.tensor([j]))
        m_phi = picked.m_phi[0]
        r_m_phi = picked.r_m_phi[0]
        before = self.steps[: self.pending].T  # (m, pending)

        covariance = self.phi @ m_phi  # φ'Mφ_j, (m,)
        along = self.r_m_phi @ r_m_phi  # φ'MFMφ_j, (m,), after pending examples are added
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
        self.selected.append(j)
        self.is_taken[j] = True
        if self.pending == PENDING:
            self.catch_up()

    def read_rows(self, at: Tensor) -> Reduction:
        """Return these examples, after all selected ones."""
        moved = self.steps[: self.pending, at].T  # (rows, pending)
        return Reduction(
            self.phi[at],
            self.m_phi[at] - moved @ self.m_phi_picked[: self.pending],
            self.r_m_phi[at] - moved @ self.r_m_phi_picked[: self.pending],
        )

    def catch_up(self) -> None:
        """Update the matrices and recompute the incremental values from them."""
        moved = self.steps[: self.pending].T  # (m, pending)
        self.m_phi.addmm_(moved, self.m_phi_picked[: self.pending], alpha=-1)
        self.r_m_phi.addmm_(moved, self.r_m_phi_picked[: self.pending], alpha=-1)
        self.pending = 0
        self._read_off()

    def _read_off(self) -> None:
        """Recompute the incremental values; rounding errors scale with the largest values since."""
        for first in range(0, len(self.phi), BLOCK):
            rows = slice(first, first + BLOCK)
            self.variance[rows] = (self.phi[rows] * self.m_phi[rows]).sum(1)
            self.reward[rows] = self.r_m_phi[rows].square().sum(1)
        self.most_variance = self.variance.clone()
        self.most_reward = self.reward.clone()


def _copy_by_columns(x: Tensor) -> Tensor:
    """Return a copy in column-major order, which makes matrix-vector products faster."""
    return x.T.clone(memory_format=torch.contiguous_format).T
