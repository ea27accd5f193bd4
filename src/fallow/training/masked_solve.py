"""Least squares on masked rows, line 9 of FALE's Algorithm 1 (Tang et al., 2025), put right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import each_of_all, sum_of_all
from fallow.core.contract import Contract
from fallow.core.terms import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.models.orthogonal import haar, mix
from fallow.training.parts import (
    Scaled,
    check_linear,
    column_means,
    coordinates,
    scale_columns,
)

EPS = torch.finfo(torch.float64).eps


@explain_constructor
@final
@dataclass(frozen=True)
class MaskedSolve:
    """The model of ``server-solve``, found from masked rows as the paper has it: the server solves
    for a model that it cannot read.

    Site i weighs its labeled rows and targets, B_i = √w X_i and t_i = √w y_i, draws a secret P_i
    and sends P_i B_i Q and P_i t_i; the server sends the shortest least squares solution Qᵀθ back,
    and a site multiplies by Q.  ``state["w"]`` is Qᵀθ; `deploy` gives the model at a site.

    ``ask.each`` shows the server each site's masked rows, and so QᵀB_iᵀB_iQ, ‖t_i‖, ‖θ‖ and, as
    the column of ones can be told, the mean of y at each site.  A site with one labeled row shows
    its √w |y|.  This is masking without a formal guarantee; docs/privacy.md says who can take it
    off.  ``server-solve`` shows the server less of the rows, totals, and more of the model, all.

    >>> import fallow as fl
    >>> federation = fl.Federation("diabetes", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.MaskedSolve(), model="linear", cycles=0, rounds=1)
    Run(random on diabetes, seed 0: 1 phases, 36 labels, mse 0...)

    Notes
    -----
    *Order.*  The algorithm as printed weighs rows that are masked.  P_i and weights do not commute,
    so that is another problem, with another solution; here rows are weighed first.

    *Columns* are centered and scaled to unit variance over the labels first, by weighted totals of
    columns and squares that are not rotated: so the shortest solution, where columns depend on one
    another or labels are few, is that of ``server-solve``.

    *Q* is drawn by one site and sealed to the others, fresh in every cycle, as is P_i; there is no
    trusted authority.  Every site must take part in every round, to know Q.

    *Ridge* (0 in the paper) as in ``server-solve``: the site that drew Q adds rows for it before
    it masks.
    """

    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )
    ridge: float = 0.0  # λ
    intercept: bool = True  # False: the model's bias is 0
    weighted: bool = True

    contract: ClassVar[Contract] = Contract(
        title="Least squares on masked rows (FALE)",
        paper="Efficient Heterogeneity-Aware Federated Active Data Selection",
        year=2025,
        authors="Tang and others",
        sum={
            "center": "totals over sites of labeled columns",
            "columns": "totals over sites of labeled columns and their squares",
        },
        each={
            "masked": "the site's labeled rows and numbers times secret rotations: products of "
            "its rotated columns with one another and with the numbers"
        },
        relay={"turn": "nothing; the common rotation goes from one site to the others"},
        secure_sum=False,  # the server reads what each site sends
        waits=("center", "columns", "masked"),
        missing="stops: a site that misses the rotation could not use the model",
        regression=True,
        classes=False,
        linear=True,
        tags=("least-squares",),
    )

    def __post_init__(self) -> None:
        if not 0 <= self.ridge < float("inf"):
            raise ValueError(
                f"MaskedSolve's ridge is {self.ridge}; it must be 0 or more and finite"
            )

    # -- server half ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        if set(ask.cohort) != set(ask.carrier.sites):
            raise ValueError(
                f"masked-solve needs all {len(ask.carrier.sites)} sites in every round and this "
                f"one has {len(ask.cohort)}: the others could not use the model; set "
                "participation=1, or use server-solve"
            )
        total = sum_of_all(ask, "center")
        if float(total["weight"]) > 0:
            scaling = self.scaling(ask, total)
            theta = self.solve_masked(ask, scaling)
            size = len(state["w"])  # 1 more than there are columns where the bias is 0
            w = torch.cat([theta, theta.new_zeros(size)])[:size]
            state = {**state, "w": w, **scaling._asdict()}
        ask.fit(None, "local", None, **state)
        return state

    def scaling(self, ask: Ask, of_columns: Mapping[str, Tensor]) -> Scaled:
        """The common scaling of columns, from a second sum about their means."""
        center = column_means(of_columns, self.intercept)
        total = sum_of_all(ask, "columns", center=center)
        return scale_columns(
            center=center,
            total=total["columns"],
            squares=total["squares"],
            weight=of_columns["weight"],
            intercept=self.intercept,
        )

    def solve_masked(self, ask: Ask, scaling: Scaled) -> Tensor:
        """Qᵀθ, (k,): the first site draws Q for all, and every site sends its masked rows."""
        lead = ask.cohort[0]
        ask.relay("turn", dict.fromkeys(ask.cohort, (lead,)), size=len(scaling.unit))
        answers = each_of_all(ask, "masked", lead=lead, **scaling._asdict()).values()
        rows = torch.cat([torch.as_tensor(answer["rows"]) for answer in answers])  # (M, k)
        targets = torch.cat([torch.as_tensor(answer["targets"]) for answer in answers])
        return shortest_solution(rows, targets)

    # -- site half --------------------------------------------------------------------------

    def center(self, view: View) -> Answer:
        x, _, w = self.labeled_rows(view)
        return {"weight": w.sum(), "columns": w @ x}

    def columns(self, view: View, center: Tensor) -> Answer:
        x, _, w = self.labeled_rows(view)
        return {"columns": w @ (x - center), "squares": w @ (x - center).square()}

    def turn(self, view: View, size: int) -> Answer:
        return {"q": haar(size, view.secret("turn"))}

    def masked(self, view: View, mean: Tensor, unit: Tensor, lead: str) -> Answer:
        x, y, w = self.labeled_rows(view)
        root = w.sqrt()
        k = len(unit)

        weighed = root[:, None] * coordinates(x, mean, unit.diag())  # (n, k)
        penalty = self.penalty(k, adds=view.site == lead)  # (0 or k, k)
        rows = torch.cat([weighed, penalty])  # B_i, (m, k)
        targets = torch.cat([root * y, y.new_zeros(len(penalty))])  # t_i, (m,)

        # both under one mask P_i: they are one system of equations
        both = torch.cat([rows @ rotation(view.memory), targets[:, None]], 1)  # (m, k + 1)
        hidden = mix(both, view.secret("mask of labelled rows"), k)
        return {"rows": hidden[:, :-1].contiguous(), "targets": hidden[:, -1].contiguous()}

    def labeled_rows(self, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """Labeled rows (n, d), numbers (n,) and weights (n,)."""
        x = view.rows("labeled")
        y = view.labels.double()
        check_linear(view, x, "masked-solve", self.intercept)
        w = view.weights.double() if self.weighted else torch.ones_like(y)
        return x.flatten(1).double(), y, w

    def penalty(self, k: int, adds: bool) -> Tensor:
        """Rows that add ridge Σw ‖θ‖² without the intercept: columns of length 1 are √Σw times
        smaller than those of unit variance.  -> (k or 0, k)"""
        if not adds or self.ridge == 0:
            return torch.zeros(0, k, dtype=torch.float64)
        is_slope = torch.ones(k, dtype=torch.float64)
        is_slope[k - int(self.intercept) :] = 0
        return math.sqrt(self.ridge) * is_slope.diag()

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        if "unit" not in state:  # nobody has had a label yet
            return state
        scaling = Scaled(state["mean"], state["unit"])
        stats = state["stats"]
        theta = rotation(memory) @ state["w"][: len(scaling.unit)]
        w = scaling.model(theta, len(state["w"]))
        return {"w": w.to(stats.dtype), "stats": stats}


def rotation(memory: Mapping[str, State]) -> Tensor:
    """Q, (k, k), which some site drew for all."""
    (q,) = (kept["q"] for name, kept in memory.items() if name.startswith("turn/"))
    return q


def shortest_solution(rows: Tensor, targets: Tensor) -> Tensor:
    """The least squares solution of smallest norm.  rows: (m, k), targets: (m,) -> (k,)

    >>> rows = torch.tensor([[1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
    >>> shortest_solution(rows, torch.tensor([2.0, 4.0], dtype=torch.float64))
    tensor([1., 1.], dtype=torch.float64)
    """
    left, values, right = torch.linalg.svd(rows, full_matrices=False)
    keep = values > max(rows.shape) * EPS * values[:1]  # the others are rounding errors
    coefficients = (left[:, keep].T @ targets) / values[keep]
    solution: Tensor = right[keep].T @ coefficients
    return solution
