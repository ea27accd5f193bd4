"""Minimum variance of predictions: Fisher information of all sites, selected greedily.

The criterion tr(M⁻¹ F) is that of BAIT (Ash et al., 2021) and FIRAL (Chen, Biros, 2023).  F is the
information of all examples about a linear model, and M that of the labeled ones.  Here both are
aggregates over sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.contract import Contract
from fallow.core.limits import PositiveFinite
from fallow.core.suggestions import explain_constructor
from fallow.core.types import Values
from fallow.core.values import Count, Real, Triangle, Whole
from fallow.core.view import Rows, SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    label_counts,
    selects,
)
from fallow.strategies.parts import (
    first_best,
    order_ties,
    predict,
    read_shared_features,
    require_finite,
)

SUB_ROUNDS = 8  # parts of the label budget
FLAT = 1e-3  # minimum information of an example of which the model is certain
CHUNK = 4096  # examples at a time


@explain_constructor
@final
@dataclass(frozen=True)
class Fisher:
    """Select examples greedily by the decrease of tr(M⁻¹ F).

    F is the mean of u x xᵀ over all examples, and M = Σ u x xᵀ + λ I over labeled and selected
    examples.  x are the features of an example and a 1.  u is 1 - Σ p² under the global model, and
    1 for regression or if no model is trained.  The strategy is for a linear model on features, in
    closed form or trained.

    Parameters
    ----------
    ridge : float
        λ, in units of the mean information of one example.
    shown : {"totals", "parts"}
        "parts" allows the coordinator to see the contribution of each site, for federations without
        secure aggregation.

    Notes
    -----
    With A = M⁻¹, an example lowers the trace by u xᵀAFAx / (1 + u xᵀAx).  Each site spends an
    eighth of its label budget with the A and AFA that it receives and updates both after each
    example.  The aggregates of the examples that all sites have selected give the next matrices.

    An aggregate over the examples that one site has selected can consist of a single example and
    then reveals it.  Federations therefore need secure aggregation or ``shown="parts"``, as for
    `ClosedForm`.

    Examples with non-finite features are ranked last.  Features are recomputed in nine exchanges.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [0.9, 0.1], [0.9, -0.1], [0.0, 1.0]]
    >>> 3 in fl.select(pool, fl.contrib.Fisher(), n=2)  # the one row of its direction
    True
    """

    ridge: PositiveFinite = 1e-2
    shown: Literal["totals", "parts"] = "totals"

    contract: ClassVar[Contract] = Contract(
        title="Fisher information of all sites",
        short="Fisher",
        regression=True,
        local_dp=False,  # aggregates of features are sent without noise
        missing="stops: the information is that of all sites; a resumed run asks again",
    )

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        output = sum_of_all(ask, self.totals)
        wanted = fold(output["products"]) / output["rows"].clamp_min(1)  # F, (k, k)
        k = len(wanted)
        usual = float(wanted.trace()) / k
        if not usual > 0:
            raise ValueError(
                "the features of all examples are 0 or uninformative, so no example is "
                "better than another; check the data, or use random sampling"
            )
        floor = self.ridge * usual * torch.eye(k, dtype=wanted.dtype)
        known = fold(output["labeled"]) + floor
        now = known
        n_parts = min(SUB_ROUNDS, max(budget.values(), default=0))
        for part in range(n_parts):
            inverse = torch.linalg.inv(now)
            share: dict[str, Values] = {}
            for site, n in budget.items():
                if n > 0:
                    share[site] = {"many": n * (part + 1) // n_parts}
            ask.keep(self.grow, to=share, inverse=inverse, drop=inverse @ wanted @ inverse)
            now = known + fold(sum_of_all(ask, self.grown, width=k)["products"])
        ask.keep(self.select, to=label_counts(budget))
        trace = float((torch.linalg.inv(now) @ wanted).trace())
        before = float((torch.linalg.inv(known) @ wanted).trace())
        return {**memo, "notes": {"trace before": before, "trace": trace}}

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of products of all and of labeled examples",
        returns={
            "products": Real(Triangle("columns")),
            "labeled": Real(Triangle("columns")),
            "rows": Count(of="rows"),
        },
    )
    def totals(self, view: View) -> Values:
        """Return the products of all and of labeled examples, as upper triangles."""
        pool, u = tell(view, "pool")
        labeled, v = tell(view, "labeled")
        rows = add_products(pool, u) + add_products(labeled, v)
        return {
            "products": unfold(rows),
            "labeled": unfold(add_products(labeled, v)),
            "rows": float((u > 0).sum() + (v > 0).sum()),
        }

    @client.keep(
        "number of tensors kept",
        takes={
            "inverse": Real(("columns", "columns")),
            "drop": Real(("columns", "columns")),
            "many": Whole(upto=("rows",)),
        },
        times=SUB_ROUNDS,
    )
    def grow(self, view: View, inverse: Tensor, drop: Tensor, many: int) -> Values:
        """Return ``many`` selected examples, earlier parts first, and their products, (k, k)."""
        x, u = tell(view, "pool")
        rows = torch.empty(0, dtype=torch.int64)
        if "grow" in view.memory:
            rows = view.memory["grow"]["rows"]
        is_free = u > 0
        is_free[rows] = False
        free = is_free.nonzero().squeeze(1)
        new = lower_trace(
            x[free],
            u[free],
            inverse,
            drop,
            n=many - len(rows),
            ties=view.stream("ties"),
        )
        rows = torch.cat([rows, free[new]])
        return {"rows": rows, "products": add_products(x[rows], u[rows])}

    @client.sum(
        "aggregates of products of selected examples",
        returns={"products": Real(Triangle("columns"))},
        takes={"width": Whole(upto=("features", 1))},
        times=SUB_ROUNDS,
        reveals_parts="the coordinator sees products of each site's few selected "
        "examples; those of a single example reveal it",
    )
    def grown(self, view: View, width: int) -> Values:
        products = torch.zeros(width, width, dtype=torch.float64)
        if "grow" in view.memory:
            products = view.memory["grow"]["products"]
        return {"products": unfold(products)}

    @selects()
    def select(self, view: View, n: int) -> SelectedExamples:
        rows = view.memory["grow"]["rows"]
        is_left = torch.ones(view.pool, dtype=torch.bool)
        is_left[rows] = False
        return SelectedExamples(torch.cat([rows, is_left.nonzero().squeeze(1)])[:n])


def tell(view: View, which: Rows) -> tuple[Tensor, Tensor]:
    """Return features with a column of ones, (m, k) float64, and information, (m,).

    Both are 0 for an example with non-finite features.
    """
    x = read_shared_features(view, which).double()
    x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    u = torch.ones(len(x), dtype=torch.float64)
    p = predict(view, which)
    if p is not None and len(view.labels):
        u = (1 - p.double().square().sum(1)).clamp_min(FLAT)
    is_finite = x.isfinite().all(1) & u.isfinite()
    if len(x):
        require_finite(is_finite)
    return x.masked_fill(~is_finite[:, None], 0.0), u.masked_fill(~is_finite, 0.0)


def add_products(x: Tensor, u: Tensor) -> Tensor:
    """Return Σ u x xᵀ.  x: (m, k), u: (m,) -> (k, k)"""
    total = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype)
    for some in torch.split(torch.arange(len(x)), CHUNK):
        total += x[some].T @ (u[some, None] * x[some])
    return total


def unfold(products: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix: (k, k) -> (k (k + 1) / 2,)."""
    row, column = torch.triu_indices(*products.shape)
    return products[row, column]


def fold(triangle: Tensor) -> Tensor:
    """Return the symmetric matrix with this upper triangle, the inverse of `unfold`.

    >>> fold(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    k = round(((8 * len(triangle) + 1) ** 0.5 - 1) / 2)
    upper = triangle.new_zeros(k, k)
    row, column = torch.triu_indices(k, k)
    upper[row, column] = triangle
    return upper + upper.triu(1).T


def lower_trace(
    x: Tensor,
    u: Tensor,
    inverse: Tensor,
    drop: Tensor,
    *,
    n: int,
    ties: torch.Generator | None = None,
) -> Tensor:
    """Select ``n`` examples greedily by the decrease of tr(A F).

    A = ``inverse`` and AFA = ``drop``, both (k, k), are updated after each selected example.  Ties
    are broken at random by ``ties``.  x: (m, k), u: (m,) -> (n,)
    """
    inverse = inverse.clone()
    drop = drop.clone()
    by_inverse = quadratic(x, inverse)  # (m,) xᵀAx
    by_drop = quadratic(x, drop)  # (m,) xᵀAFAx
    is_taken = torch.zeros(len(x), dtype=torch.bool)
    order = order_ties(len(x), ties)
    selected: list[int] = []
    for _ in range(min(n, len(x))):
        gain = u * by_drop / (1 + u * by_inverse)
        best = first_best(gain.masked_fill(is_taken, -torch.inf), order)
        is_taken[best] = True
        selected.append(best)

        # Sherman-Morrison formula: A becomes A - s a aᵀ
        s = u[best] / (1 + u[best] * by_inverse[best])
        a = inverse @ x[best]  # (k,)
        b = drop @ x[best]
        middle = s * by_drop[best]  # s aᵀFa
        along_a, along_b = (x @ torch.stack([a, b], 1)).unbind(1)  # (m,) each, in one pass
        by_inverse = by_inverse - s * along_a.square()
        by_drop = by_drop - s * along_a * (2 * along_b - middle * along_a)
        inverse -= s * torch.outer(a, a)
        drop += s * (middle * torch.outer(a, a) - torch.outer(a, b) - torch.outer(b, a))
    return torch.tensor(selected, dtype=torch.int64)


def quadratic(x: Tensor, matrix: Tensor) -> Tensor:
    """Return xᵀBx for each example.  x: (m, k), matrix: (k, k) -> (m,)"""
    values = torch.zeros(len(x), dtype=x.dtype)
    for some in torch.split(torch.arange(len(x)), CHUNK):
        values[some] = ((x[some] @ matrix) * x[some]).sum(1)
    return values
