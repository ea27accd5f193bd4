"""One closed-form linear model per site, with larger weights for its own examples.

The model of a site solves (A + κ A_k + λ (n + κ n_k)) W = B + κ B_k, where A, B and n are
aggregates over all sites and A_k, B_k, n_k those of the site.  This corresponds to κ additional
copies of each of its examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Products
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, FitDeclaration
from fallow.core.limits import PositiveFinite, check_fields
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import Kind, NonNegative, Real
from fallow.core.view import View
from fallow.training.parts.closed_form import (
    AT_SERVER,
    FEW,
    LEFT_OUT,
    LOSSES,
    MISSING,
    PARTS_SHOW,
    PATH_SHOWS,
    SETTINGS,
    TOTALS,
    Labeled,
    check_linear_model,
    choose_left_out,
    flatten_head,
    labeled_rows,
    losses_of,
    note_choice,
    path_kinds,
    penalties_of,
    read_totals,
    totals_of,
)
from fallow.training.parts.ridge import (
    Path,
    RidgeSolution,
    Totals,
    add_up,
    centered,
    decompose,
    head_of,
    mixed,
    solve_one,
)

COPIES = (0.0, 1.0, 4.0, 16.0, 64.0, 256.0)  # κ


TOTALS_KINDS: dict[str, Kind] = {
    "mass": NonNegative(),
    "z": Real("features"),
    "y": Real("outputs"),
    "a": Real(("features", "features")),
    "b": Real(("features", "outputs")),
}
"""Arguments with `Totals`."""


@explain_constructor
@final
@dataclass(frozen=True)
class ClosedFormHeads:
    """Solve for one closed-form model per site, by weighting its own examples.

    The algorithm extends `ClosedForm`.  Each site selects the number κ of additional copies of its
    own examples from 0, 1, 4, 16, 64 and 256, by leave-one-out.  κ = 0 is the global model.  λ and
    T are selected for the global model over all sites.  No site sends more than for the global
    model; sites receive the aggregates.

    Parameters
    ----------
    penalty : float, optional
        Ridge penalty λ.  None: selected from 1e-6 to 1.
    weighted : bool
        Apply the weights that the query strategy assigns to examples.
    shown : {"totals", "parts"}
        Information that the coordinator may see, as in `ClosedForm`.

    Notes
    -----
    An example is left out with all its copies, so sites with few examples do not overfit.  A site
    with fewer than two examples uses the global model.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=4)
    >>> few = {"encoder": "convolution:filters=16", "cycles": 1}
    >>> run = fl.run(
    ...     federation, fl.Margin(), training=fl.ClosedFormHeads(), test="own", **few
    ... )
    >>> run.model.keys() == {"site-0", "site-1", "site-2", "site-3"}
    True
    """

    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )
    penalty: PositiveFinite | None = None  # λ
    weighted: bool = True
    shown: Literal["totals", "parts"] = "totals"

    contract: ClassVar[Contract] = Contract(
        title="Closed-form classifiers, one per site",
        paper="-",
        year=0,
        short="Closed-form heads",
        missing=MISSING,
        regression=True,
        model="linear",
        local_dp=False,
        settings=SETTINGS,
        fit=FitDeclaration({"local": STORED}, server=AT_SERVER),
        sites_see=PATH_SHOWS,
        tags=("least-squares",),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        contract = ClosedFormHeads.contract.narrowed(self, weighs=self.weighted)
        object.__setattr__(self, "contract", contract)

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        total = read_totals(sum_of_all(ask, self.totals))
        if float(total.totals.mass) == 0:
            ask.fit(None, "local", None, w=state["w"], stats=state["stats"])
            return state

        path = decompose(total.totals)
        choice = choose_left_out(ask, self.left_out, path, total, self.penalty)
        head = head_of(path, choice.penalty)
        w = flatten_head(head, choice.temperature).to(state["w"].dtype)
        state = {**state, "w": w, **note_choice(choice)}
        ask.fit(None, "local", None, w=state["w"], stats=state["stats"])
        ask.keep(
            self.head,
            **total.totals._asdict(),
            penalty=choice.penalty,
            temperature=choice.temperature,
        )
        return state

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        TOTALS,
        returns=lambda self: Products(is_weighted=self.weighted),
        reveals_parts=PARTS_SHOW,
    )
    def totals(self, view: View) -> Values:
        return totals_of(self.labeled(view))

    @client.sum(LEFT_OUT, returns=LOSSES, takes=path_kinds())
    def left_out(self, view: View, **path: Tensor) -> Values:
        """Return the leave-one-out losses of the solutions of the ``path``."""
        rows = self.labeled(view)
        penalties = penalties_of(self.penalty)
        return losses_of(rows, Path(**path), penalties, is_class=view.classes > 0)

    @client.keep(
        "nothing",
        takes={"penalty": NonNegative(), "temperature": NonNegative()} | TOTALS_KINDS,
    )
    def head(
        self, view: View, penalty: float, temperature: float, **totals: Tensor
    ) -> Values:
        """Return the model of the site, with the κ of the smallest leave-one-out loss."""
        rows = self.labeled(view)
        all_sites = Totals(**totals)
        own = centered(add_up(rows.z, rows.y, rows.s))

        candidates = [all_sites]
        if len(rows.y) >= FEW:
            candidates += [mixed(all_sites, own, copies) for copies in COPIES[1:]]
        solved = [solve_one(total, penalty) for total in candidates]
        lost = [
            squared_loss(result, rows, copies)
            for result, copies in zip(solved, COPIES, strict=False)
        ]
        best = lost.index(min(lost))
        return {
            "w": flatten_head(solved[best].head(), temperature).to(rows.z.dtype),
            "stats": rows.z.new_zeros(0),
            "copies": COPIES[best],
        }

    def labeled(self, view: View) -> Labeled:
        check_linear_model(view)
        z = view.rows("labeled").flatten(1)
        return labeled_rows(view, z, None, is_weighted=self.weighted)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        own = memory.get("head", state)
        return {name: own[name] for name in ("w", "stats")}


def squared_loss(solved: RidgeSolution, rows: Labeled, copies: float) -> float:
    """Return Σ s |y - left out|² over examples that the aggregates contain 1 + κ times.

    Groups are left out whole.
    """
    lost = 0.0
    s = rows.s * (1 + copies)
    for at, outputs, _ in solved.leave_one_out(rows.z, rows.y, s, rows.groups):
        away = rows.y[at] - outputs
        lost += float(rows.s[at] @ away.square().sum(1))
    return lost
