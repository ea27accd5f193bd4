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
from fallow.strategies.parts.posterior import (
    SIGMA,
    TIED,
    LastLayer,
    Reduction,
    Sigma,
    refuse_classes,
)
from fallow.strategies.parts.top import first_best, order_ties

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
    matrix and is not supported.  Noise and scale follow Holzmüller et al. (2023).  Ties are broken
    at random.  Examples with non-finite features are ranked last.

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
    selected = torch.tensor(forward.selected, dtype=torch.int64)
    backward = Backward(rows.phi[selected], rows.root)
    for _ in range(len(selected) - n):
        backward.remove(backward.find_cheapest())
    return selected[backward.is_kept]


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
        self.root = rows.root
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
            self.root,
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


@final
class Backward:
    """Removal of selected examples, whose increases of Tr(MF) are computed without cancellation.

    A removal increases Tr(MF) by φ'MFMφ / (1 - φ'Mφ).  For an example far longer than the labeled
    ones, φ'Mφ is 1 up to rounding, so the difference is never formed.  Let Z (s, k) be the selected
    examples in coordinates in which M was I before the selection, and [Z'; I] = [Q1; Q2] R.  Then
    1 - φ'Mφ is the squared length of the example's row of Q2, and RMφ its row of W = Q2 Q1'R',
    where F = R'R.  A reflection that turns the row of the removed example into (0, ..., 0, ρ)
    leaves the Q2 of the others in all columns but the last.

    phi: (s, k); root: R, (m, k).
    """

    def __init__(self, phi: Tensor, root: Tensor) -> None:
        s, k = phi.shape
        identity = torch.eye(s, dtype=phi.dtype)
        q = torch.linalg.qr(torch.cat([phi.T, identity])).Q  # (k + s, s)
        self.q2 = q[k:].clone()
        self.r_m_phi = self.q2 @ (root @ q[:k]).T  # W, (s, m)
        self.is_kept = torch.ones(s, dtype=torch.bool)
        self.columns = s  # columns of q2 in use: one for each example that is kept

    def find_cheapest(self) -> int:
        """Return the example whose removal increases Tr(MF) least; the first of equal ones."""
        kept = self.is_kept.nonzero().squeeze(1)
        return int(kept[self.losses()[kept].argmin()])

    def losses(self) -> Tensor:
        """Return the increase of Tr(MF) by each removal, (s,)."""
        left = torch.linalg.vector_norm(self.q2[:, : self.columns], dim=1)
        reward = torch.linalg.vector_norm(self.r_m_phi, dim=1)
        increase: Tensor = (reward / left).square()
        return increase

    def remove(self, j: int) -> None:
        """Remove example ``j``."""
        last = self.columns - 1
        normal = self.q2[j, : self.columns].clone()  # of the reflection, (columns,)
        length = torch.linalg.vector_norm(normal)
        rho = -torch.copysign(length, normal[last])
        normal[last] -= rho
        # (s,)
        reflected = self.q2[:, : self.columns] @ normal * (2 / normal.square().sum())
        step = (self.q2[:, last] - reflected * normal[last]) / rho
        self.q2[:, :last].addr_(reflected, normal[:last], alpha=-1)
        self.r_m_phi.addr_(step, self.r_m_phi[j].clone(), alpha=-1)
        self.is_kept[j] = False
        self.columns = last


def _copy_by_columns(x: Tensor) -> Tensor:
    """Return a copy in column-major order, which makes matrix-vector products faster."""
    return x.T.clone(memory_format=torch.contiguous_format).T
