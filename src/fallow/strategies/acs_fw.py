"""ACS-FW (Pinsler et al., 2019), Algorithm 1: a batch that represents the whole pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.products import to_device
from fallow.core.suggestions import explain_constructor
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts.posterior import SIGMA, TIED, LastLayer, Sigma, refuse_classes
from fallow.strategies.parts.top import first_best, order_ties

ROUNDING = 1e-12  # relative to a squared length: closer points are equal


@explain_constructor
@final
@dataclass(frozen=True)
class ACSFW:
    """Select a Bayesian coreset of the unlabeled pool with the Frank-Wolfe algorithm.

    The weighted sum of log-likelihoods of the selected examples approximates the sum over the pool.

    Parameters
    ----------
    model : {"local", "global"}
        Model that provides the features.
    sigma : float
        Standard deviation of the label noise.

    Notes
    -----
    The inner product of two log-likelihoods is the paper's weighted Fisher inner product for a
    linear output: k(x, x̃) = φ'φ̃ · φ'Mφ̃ up to a factor, with φ = (embed(x), 1).  The matrix of
    all pairs is never computed.  The paper's algorithm can select an example twice and then selects
    fewer examples.  Here each example is selected at most once, as in Holzmüller et al. (2023), who
    also define the noise and the scale used here.  Classification requires a different inner
    product and is not supported.  Ties are broken at random.  Examples with non-finite features are
    ranked last.

    References
    ----------
    Pinsler, Gordon, Nalisnick, Hernández-Lobato. Bayesian Batch Active Learning as Sparse Subset
    Approximation. 2019.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.1, 0.0], [0.0, 3.0], [0.1, 3.0]]
    >>> labeled = ([[0.0, 0.0]], [0.5])
    >>> fl.select(pool, fl.ACSFW(), labeled=labeled, n=2)
    array([3, 1])
    """

    model: Literal["local", "global"] = "local"
    sigma: Sigma = SIGMA  # σ

    contract: ClassVar[Contract] = Contract(
        title="ACS-FW",
        paper="Bayesian Batch Active Learning as Sparse Subset Approximation",
        year=2019,
        authors="Pinsler, Robert and Gordon, Jonathan and "
        "Nalisnick, Eric and Hernández-Lobato, José Miguel",
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
        posterior = rows.posterior(self.sigma)
        return rows.selected(
            frank_wolfe(rows.pool, posterior.pool, n, view.stream("ties")), n
        )


def frank_wolfe(
    x: Tensor, z: Tensor, n: int, ties: torch.Generator | None = None
) -> Tensor:
    """Return the positions of ``min(n, m)`` examples, for the kernel k = (x x')(z z').

    x, z: (m, k).  Let L be the sum of all log-likelihoods and L(w) that of the selected examples:
    u, v are the inner products of each example with L and L(w), s = |L(w)|², t = <L(w), L>.
    Examples of length 0 are ranked last.
    """
    length = (x.square().sum(1) * z.square().sum(1)).sqrt()  # σ_n of the paper
    is_free = length > 0
    total = float(length.sum())
    x_there = to_device(x)
    z_there = to_device(z)
    u = ((x @ (x.T @ z)) * z).sum(1)
    v = torch.zeros_like(length)
    s = 0.0
    t = 0.0
    order = order_ties(len(length), ties)
    selected: list[int] = []
    for _ in range(min(n, int(is_free.sum()))):
        f = first_best(((u - v) / length).masked_fill(~is_free, -torch.inf), order, TIED)
        a = total / float(length[f])  # weight of example f if it were selected alone
        u_f = float(u[f])
        v_f = float(v[f])
        far = total**2 - 2 * a * v_f + s  # |a L_f - L(w)|²
        step = 0.0  # γ, by exact line search; 0 where a L_f equals L(w)
        if far > ROUNDING * total**2:
            step = (a * (u_f - v_f) + s - t) / far
        s = (1 - step) ** 2 * s + 2 * (1 - step) * step * a * v_f + (step * total) ** 2
        t = (1 - step) * t + step * a * u_f
        along_x = (x_there @ x_there[f]).cpu()
        along_z = (z_there @ z_there[f]).cpu()
        v = (1 - step) * v + step * a * along_x * along_z
        is_free[f] = False
        selected.append(f)
    rest = (length == 0).nonzero()[:, 0]
    return torch.cat([torch.tensor(selected, dtype=torch.int64), rest])[:n]
