"""Least squares on the server side, line 9 of FALE's Algorithm 1 (Tang et al., 2025).

Sites send the products of their labeled examples with one another and with the labels.  The server
side solves the normal equations of the examples of all sites, without local steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, FitDeclaration
from fallow.core.limits import NonNegativeFinite
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import SUM_OF_WEIGHTS, Count, Optional, Real
from fallow.core.view import View
from fallow.training.parts import (
    Scaled,
    check_linear,
    column_means,
    coordinates,
    scale_columns,
)

EPS = torch.finfo(torch.float64).eps
FINE = 2.0**16
"""Scale of the products in the second exchange: masked aggregates keep 40 bits."""
CHUNK = 4096  # examples at a time


@explain_constructor
@final
@dataclass(frozen=True)
class ServerSolve:
    """Solve weighted least squares over the labeled examples of all sites.

    The linear model minimizes Σ w (y - x θ)² + ridge Σw ‖θ‖², where w is the weight that the query
    strategy gave a label.  With the weights of `FALE`, the sum represents the whole pool.  With
    other query strategies, or without weights, this is ordinary least squares and a baseline for
    comparisons.

    The algorithm is for regression with the model ``linear``.  All rounds of a cycle give the same
    model, so one is sufficient (``rounds=1``).  The settings of local training are not used.

    Parameters
    ----------
    ridge : float
        Ridge penalty λ.  It is 0 in the paper; 1e-3 stabilizes small samples.  It does not apply to
        the intercept.
    intercept : bool
        Fit a bias.
    weighted : bool
        Apply the weights that the query strategy assigns to examples.
    passes : int
        Number of exchanges of products.  The first one, about the mean of each column, gives
        coordinates in which the second one is well-conditioned.

    Notes
    -----
    Products square the condition number, hence the second pass.  The paper solves masked examples
    (`MaskedSolve`), which show the coordinator the products of each site up to a rotation.  Here
    the coordinator sees aggregates without rotation, and the model.

    With collinear columns, the solution of minimum norm is computed for columns of unit variance
    over the labels.

    References
    ----------
    Tang, Ren, Tang, Huang, Cui, Yu. Efficient Heterogeneity-Aware Federated Active Data Selection.
    2025.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("diabetes", fl.IID(), sites=3)
    >>> solved = fl.run(
    ...     federation, training=fl.ServerSolve(), cycles=0, rounds=1, initial=0.5
    ... )
    >>> bool(solved.records["mse"].iloc[-1] < 0.7)  # predicting the mean has 1
    True
    """

    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )
    ridge: NonNegativeFinite = 0.0  # λ
    intercept: bool = True  # False: the model's bias is 0
    weighted: bool = True
    passes: Literal[1, 2] = 2

    contract: ClassVar[Contract] = Contract(
        title="Least squares on the server side (FALE)",
        paper="Efficient Heterogeneity-Aware Federated Active Data Selection",
        year=2025,
        authors="Tang, Ying-Peng and Ren, Chao and Tang, Xiaoli and Huang, Sheng-Jun and "
        "Cui, Lizhen and Yu, Han",
        missing="stops: all exchanges are over the same examples; a resumed run asks again",
        regression=True,
        classes=False,
        model="linear",
        local_dp=False,  # aggregates of labeled examples are sent without noise
        tags=("least-squares",),
        fit=FitDeclaration({"local": STORED}),
    )

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        total = sum_of_all(ask, self.center)
        if float(total["weight"]) > 0:
            center = column_means(total, self.intercept)
            total = sum_of_all(ask, self.normal, mean=center)
            at, noise, gram, target = equations(total, center, self.intercept)
            basis = torch.eye(len(gram), dtype=gram.dtype)
            if self.passes == 2:
                basis = find_whitening(
                    gram + self.penalty(basis), noise, int(total["rows"])
                )
                total = sum_of_all(
                    ask, self.normal, mean=at.mean, basis=at.unit[:, None] * basis
                )
                gram = total["products"] / FINE
                target = total["targets"]
            theta = solve_equations(gram + self.penalty(basis), target, basis)
            w = state["w"]
            state = {**state, "w": at.model(theta, len(w)).to(w.dtype)}
        ask.fit(None, "local", None, **state)
        return state

    def penalty(self, basis: Tensor) -> Tensor:
        """Return ridge Σw ‖θ‖², without the intercept, in the coordinates of a basis (k, k).

        Columns of length 1 are √Σw times smaller than columns of unit variance.
        """
        counted = basis[: len(basis) - self.intercept]
        return self.ridge * counted.T @ counted

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of labeled columns",
        returns={"weight": SUM_OF_WEIGHTS, "columns": Real("inputs")},
        weighted_by="labels",
    )
    def center(self, view: View) -> Values:
        x, _, w = self.read_labeled(view)
        return {"weight": w.sum(), "columns": w @ x.flatten(1).double()}

    @client.sum(
        "aggregates of products of labeled examples and labels",
        returns={
            "rows": Count(of="labels"),
            "weight": SUM_OF_WEIGHTS,
            "products": Real(("columns", "columns")),
            "targets": Real("columns"),
        },
        takes={"mean": Real("inputs"), "basis": Optional(Real(("size", "columns")))},
        times=2,
        weighted_by="labels",
    )
    def normal(self, view: View, mean: Tensor, basis: Tensor | None = None) -> Values:
        """Return sums over the labeled examples of w, w z zᵀ and w y z.

        z is the example minus ``mean`` (d,) with a 1 appended, or its coordinates in ``basis`` (k,
        r).
        """
        x, y, w = self.read_labeled(view)
        if basis is None:
            size = x.flatten(1).shape[1] + 1
            fine = 1.0
        else:
            size = basis.shape[1]
            fine = FINE
        products = torch.zeros(size, size, dtype=y.dtype)
        targets = torch.zeros(size, dtype=y.dtype)
        for rows in torch.split(torch.arange(len(x)), CHUNK):
            z = coordinates(x[rows], mean, basis)
            products += z.T @ (w[rows, None] * z)
            targets += z.T @ (w[rows] * y[rows])
        return {
            "rows": float(len(x)),
            "weight": w.sum(),
            "products": fine * products,
            "targets": targets,
        }

    def read_labeled(self, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """Return labeled examples (n, *shape), regression targets (n,) and weights (n,)."""
        x = view.rows("labeled")
        y = view.labels.double()
        check_linear(view, x, "server-solve", self.intercept)
        weights = torch.ones_like(y)
        if self.weighted:
            weights = view.weights.double()
        return x, y, weights

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return state


def equations(
    total: dict[str, Tensor], center: Tensor, intercept: bool
) -> tuple[Scaled, float, Tensor, Tensor]:
    """Return coordinates of columns of length 1 and the normal equations (k, k), (k,) in them.

    The second value is the size of rounding errors of the products, in units of the precision.
    """
    gram = total["products"]  # (d + 1, d + 1), of centered examples with a column of ones
    target = total["targets"]  # (d + 1,)
    d = len(target) - 1
    k = d + int(intercept)
    squares = gram.diagonal()
    at = scale_columns(center, gram[:d, d], squares[:d], gram[d, d], intercept)
    noise = float((squares[:k] * at.unit**2).max())

    move = torch.eye(d + 1, dtype=gram.dtype)
    move[d, :d] = center - at.mean  # [x - center, 1] -> [x - mean, 1]
    moved = (move.T @ gram @ move)[:k, :k]
    moved_target = (move.T @ target)[:k]
    return at, noise, at.unit[:, None] * moved * at.unit, at.unit * moved_target


def find_whitening(gram: Tensor, noise: float, rows: int) -> Tensor:
    """Return coordinates (k, k) in which the columns are nearly orthonormal.

    The shift (of shifted Cholesky QR; Fukaya et al., 2020) covers the rounding errors.
    """
    k = len(gram)
    values, vectors = torch.linalg.eigh(gram)
    shift = 11 * (k + k * (k + 1) / rows) * EPS * max(float(values[-1]), noise, 1.0)
    basis: Tensor = vectors / (values.clamp_min(0) + shift).sqrt()
    return basis.contiguous()  # as received: other strides give other rounding errors


def solve_equations(gram: Tensor, target: Tensor, basis: Tensor) -> Tensor:
    """Return θ = basis a, where gram a = target, without directions that no example has.  -> (k,)"""
    values, vectors = torch.linalg.eigh(gram)
    keep = values > len(gram) * EPS * values[-1].clamp_min(EPS)
    inside = vectors[:, keep]
    theta = basis @ (inside @ ((inside.T @ target) / values[keep]))

    # minimum norm: remove the components along the dropped directions
    lost = basis @ vectors[:, ~keep]
    lost = lost / lost.norm(dim=0).clamp_min(EPS)
    outcome: Tensor = theta - lost @ (torch.linalg.pinv(lost, rtol=1e-8) @ theta)
    return outcome
