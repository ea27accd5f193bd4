"""Least squares on masked examples, line 9 of FALE's Algorithm 1 (Tang et al., 2025), corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, each_of_all, sum_of_all
from fallow.core.contract import Contract
from fallow.core.fit_declarations import MODEL, STORED, FitDeclaration
from fallow.core.limits import NonNegativeFinite
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import SITE_NAME, SUM_OF_WEIGHTS, Features, NonNegative, Real, Whole
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
    """Solve least squares from masked examples, without disclosing the model.

    The solution is that of `ServerSolve`, computed from masked examples as in the paper.  The
    coordinator obtains a model that it cannot read.

    Site i weights its labeled examples and targets, B_i = √w X_i and t_i = √w y_i, draws a secret
    P_i and sends P_i B_i Q and P_i t_i.  The coordinator sends the least squares solution of
    minimum norm, Qᵀθ, and each site multiplies it by Q.  ``state["w"]`` is Qᵀθ; `deploy` returns
    the model at a site.

    Parameters
    ----------
    ridge : float
        Ridge penalty λ.
    intercept : bool
        Fit a bias.
    weighted : bool
        Apply the weights that the query strategy assigns to examples.

    Notes
    -----
    *Disclosure.*  ``ask.each`` shows the coordinator the masked examples of each site.  It
    therefore sees QᵀB_iᵀB_iQ, ‖t_i‖, ‖θ‖ and, because the column of ones can be identified, the
    mean of y at each site.  A site with one labeled example discloses √w |y|.  Masking has no
    formal guarantee; docs/privacy.md describes who can remove it.  With `ServerSolve` the
    coordinator sees less of the examples (aggregates only) and more of the model (all of it).

    *Order of weights and masks.*  The algorithm as printed applies weights to masked examples.  P_i
    and weights do not commute, so this is a different problem with another solution.  Here weights
    are applied first.

    *Columns* are first centered and scaled to unit variance over the labels, by weighted aggregates
    that are not rotated.  The solution of minimum norm therefore equals that of `ServerSolve` even
    with collinear columns or few labels.

    *Rotation.*  One site draws Q, encrypts it for the others and renews it in every cycle, as each
    site does with P_i.  There is no trusted authority.  Every site must participate in every round,
    because it needs Q.

    *Ridge* (0 in the paper) is applied as in `ServerSolve`: the site that drew Q adds examples for
    it before masking.

    References
    ----------
    Tang, Ren, Tang, Huang, Cui, Yu. Efficient Heterogeneity-Aware Federated Active Data Selection.
    2025.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("diabetes", fl.IID(), sites=3)
    >>> fl.run(federation, training=fl.MaskedSolve(), model="linear", cycles=0, rounds=1)
    Run(random on diabetes, seed 0: 1 phases, 36 labels, mse 0...)
    """

    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )
    ridge: NonNegativeFinite = 0.0  # λ
    intercept: bool = True  # False: the model's bias is 0
    weighted: bool = True

    contract: ClassVar[Contract] = Contract(
        title="Least squares on masked examples (FALE)",
        paper="Efficient Heterogeneity-Aware Federated Active Data Selection",
        year=2025,
        authors="Tang, Ying-Peng and Ren, Chao and Tang, Xiaoli and Huang, Sheng-Jun and "
        "Cui, Lizhen and Yu, Han",
        secure_sum=False,  # the server side reads the reply of each site
        missing="stops: a site that misses the rotation could not use the model",
        regression=True,
        classes=False,
        model="linear",
        local_dp=False,  # aggregates of labeled examples are sent without noise
        tags=("least-squares",),
        fit=FitDeclaration(
            {"local": STORED},
            sent={**MODEL, "mean": Real("inputs"), "unit": Real("columns")},
        ),
    )

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        if set(ask.cohort) != set(ask.channel.sites):
            raise ValueError(
                f"masked-solve needs all {len(ask.channel.sites)} sites in every round, "
                f"and this round has {len(ask.cohort)}: the others could not use the "
                "model; set participation=1, or use server-solve"
            )
        total = sum_of_all(ask, self.center)
        if float(total["weight"]) > 0:
            scaling = self.scaling(ask, total)
            theta = self.solve_masked(ask, scaling)
            size = len(state["w"])  # the number of columns + 1 if the bias is 0
            w = torch.cat([theta, theta.new_zeros(size)])[:size]
            state = {**state, "w": w, **scaling._asdict()}
        ask.fit(None, "local", None, **state)
        return state

    def scaling(self, ask: Ask, of_columns: Mapping[str, Tensor]) -> Scaled:
        """Return the common scaling of columns, from a second aggregate about their means."""
        center = column_means(of_columns, self.intercept)
        total = sum_of_all(ask, self.columns, center=center)
        return scale_columns(
            center=center,
            total=total["columns"],
            squares=total["squares"],
            weight=of_columns["weight"],
            intercept=self.intercept,
        )

    def solve_masked(self, ask: Ask, scaling: Scaled) -> Tensor:
        """Return Qᵀθ, (k,): the first site draws Q, and every site sends its masked examples."""
        lead = ask.cohort[0]
        ask.relay(self.turn, dict.fromkeys(ask.cohort, (lead,)), size=len(scaling.unit))
        replies = each_of_all(ask, self.masked, lead=lead, **scaling._asdict()).values()
        rows = torch.cat([torch.as_tensor(reply["rows"]) for reply in replies])  # (M, k)
        targets = torch.cat([torch.as_tensor(reply["targets"]) for reply in replies])
        return shortest_solution(rows, targets)

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of labeled columns",
        returns={"weight": SUM_OF_WEIGHTS, "columns": Real("inputs")},
        weighted_by="labels",
    )
    def center(self, view: View) -> Values:
        x, _, w = self.labeled_rows(view)
        return {"weight": w.sum(), "columns": w @ x}

    @client.sum(
        "aggregates of labeled columns and their squares",
        returns={"columns": Real("inputs"), "squares": NonNegative("inputs")},
        takes={"center": Real("inputs")},
        weighted_by="labels",
    )
    def columns(self, view: View, center: Tensor) -> Values:
        x, _, w = self.labeled_rows(view)
        return {"columns": w @ (x - center), "squares": w @ (x - center).square()}

    @client.relay(
        "the common rotation, sent from one site to the others",
        returns={"q": Real(("columns", "columns"))},
        takes={"size": Whole(upto=("inputs", 1))},
    )
    def turn(self, view: View, size: int) -> Values:
        return {"q": haar(size, view.secret("turn"))}

    @client.each(
        "the site's labeled examples and targets times secret rotations: products of its "
        "rotated columns with one another and with the targets",
        returns={
            "rows": Features(("examples", "columns")),
            "targets": Real("examples"),
        },
        takes={"mean": Real("inputs"), "unit": NonNegative("columns"), "lead": SITE_NAME},
    )
    def masked(self, view: View, mean: Tensor, unit: Tensor, lead: str) -> Values:
        x, y, w = self.labeled_rows(view)
        root = w.sqrt()
        k = len(unit)

        weighed = root[:, None] * coordinates(x, mean, unit.diag())  # (n, k)
        penalty = self.penalty(k, adds=view.site == lead)  # (0 or k, k)
        rows = torch.cat([weighed, penalty])  # B_i, (m, k)
        targets = torch.cat([root * y, y.new_zeros(len(penalty))])  # t_i, (m,)

        # both under the same mask P_i: they form one system of equations
        both = torch.cat([rows @ rotation(view.memory), targets[:, None]], 1)  # (m, k + 1)
        hidden = mix(both, view.secret("mask of labeled examples"), k)
        return {"rows": hidden[:, :-1].contiguous(), "targets": hidden[:, -1].contiguous()}

    def labeled_rows(self, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """Return labeled examples (n, d), regression targets (n,) and weights (n,)."""
        x = view.rows("labeled")
        y = view.labels.double()
        check_linear(view, x, "masked-solve", self.intercept)
        w = view.weights.double() if self.weighted else torch.ones_like(y)
        return x.flatten(1).double(), y, w

    def penalty(self, k: int, adds: bool) -> Tensor:
        """Return examples that add ridge Σw ‖θ‖², without the intercept.  -> (k or 0, k)

        Columns of length 1 are √Σw times smaller than those of unit variance.
        """
        if not adds or self.ridge == 0:
            return torch.zeros(0, k, dtype=torch.float64)
        is_slope = torch.ones(k, dtype=torch.float64)
        is_slope[k - int(self.intercept) :] = 0
        return math.sqrt(self.ridge) * is_slope.diag()

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        if "unit" not in state:  # no site has a label yet
            return state
        scaling = Scaled(state["mean"], state["unit"])
        stats = state["stats"]
        theta = rotation(memory) @ state["w"][: len(scaling.unit)]
        w = scaling.model(theta, len(state["w"]))
        return {"w": w.to(stats.dtype), "stats": stats}


def rotation(memory: Mapping[str, State]) -> Tensor:
    """Return Q, (k, k), which one site drew for all."""
    (q,) = (kept["q"] for name, kept in memory.items() if name.startswith("turn/"))
    return q


def shortest_solution(rows: Tensor, targets: Tensor) -> Tensor:
    """Return the least squares solution of minimum norm.  rows: (m, k), targets: (m,) -> (k,)

    >>> rows = torch.tensor([[1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
    >>> shortest_solution(rows, torch.tensor([2.0, 4.0], dtype=torch.float64))
    tensor([1., 1.], dtype=torch.float64)
    """
    left, values, right = torch.linalg.svd(rows, full_matrices=False)
    keep = values > max(rows.shape) * EPS * values[:1]  # the others are rounding errors
    coefficients = (left[:, keep].T @ targets) / values[keep]
    solution: Tensor = right[keep].T @ coefficients
    return solution
