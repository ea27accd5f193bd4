"""FALE (Tang et al., 2025): leverage sampling over all sites, Algorithms 1 and 2, for regression.

Line 9 of Algorithm 1, the solution at the server, is a training method: ``masked-solve`` as in the
paper, ``server-solve`` from totals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypedDict, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import each_of_all, sum_of_all
from fallow.core.contract import Contract
from fallow.core.types import Answer
from fallow.core.view import Picks, View
from fallow.models.orthogonal import haar, mix, unmix
from fallow.strategies.base import Budget, Memo, check_choices, orders
from fallow.strategies.parts import leverage
from fallow.strategies.parts.clocks import LATEST, Clocks, edges, start_clocks
from fallow.strategies.parts.leverage import BOUND, Columns, Directions

NARROW = 1e-8  # how closely the end of the draws is known, as the log of a time
TIED = 1e-14  # clocks that are as close as that strike at once
NEVER = {  # what a setting never asks
    "gram": ("masked", "triangle", "unmask"),
    "fedsvd": ("gram", "triangle", "score"),
    "tsqr": ("gram", "masked", "unmask"),
    "site": ("arrivals", "draws", "take"),
    "federation": ("select",),
}


class Coordinates(TypedDict):
    """How sites see their columns: mean (d,), unit (k,), and the site that drew the rotation (""
    where there is none)."""

    mean: Tensor
    unit: Tensor
    lead: str


class Draw(TypedDict):
    """What a site needs to know of all rows to draw its own: their score, and how many they are."""

    mass: float
    rows: int


@final
@dataclass(frozen=True)
class FALE:
    """Rows drawn with replacement, in proportion to their leverage score, until the budget of
    different rows is met; each weighs as often as it was drawn over how often that was expected.

    With weights the labels stand for all rows of the pool: E[weight] = 1.  Both algorithms of the
    paper are this query under another training method:

    * FALE: ``fale:mode=fedsvd@training=masked-solve``, or faster ``fale@training=server-solve``.
    * FALE-local: ``fale:weights=none@training=fedavg``; the paper leaves the weights out.

    Scores are those of one singular value decomposition X = U Σ Vᵀ of the rows of all sites, which
    nobody holds.  All modes find the same ones:

    * ``gram``: from totals over sites of products of columns.  The server sees QᵀXᵀXQ.
    * ``fedsvd`` (Algorithm 1, lines 1-3): from masked rows P_i X_i Q, which ``ask.each`` shows the
      server site by site, and so each QᵀX_iᵀX_iQ.
    * ``tsqr``: from the triangle R_i of X_i Q = H_i R_i; as exact and as open, but small.

    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.0, 0.1], [0.9, 0.0], [0.0, 50.0]]
    >>> labeled = ([[0.0, 1.0]], [2.0])
    >>> fl.select(pool, fl.FALE(allot="site"), labeled=labeled, n=1)
    array([3])

    Notes
    -----
    *Masks* obscure and give no formal guarantee: what they let through, and to whom, stands in
    docs/privacy.md.  Q is drawn by one site, sealed to the others (``rotate``), fresh in every
    query; P_i never leaves its site.  The paper's trusted authority is not needed.

    *Weights and masks.*  Algorithm 1 as printed applies the weights to masked rows, which solves
    another problem.  Here weights travel with the labels and are applied before rows are masked.

    *Draws.*  Each row has its own clock, which strikes at the rate of its score: the strikes of all
    sites in order are draws with replacement.  So sites draw by themselves and no score leaves one.

    *Who buys.*  With ``allot="federation"``, as in the paper, only the total counts and the draws
    say where; some sites then buy more than their budget, for callers that allow it.  With
    ``"site"`` each site draws its own budget in proportion to its scores, and a weight is for the
    site.

    *Labels bought before* are outside the pool: their rows are neither scored nor drawn and weigh
    what they weighed, 1 for first labels: these stand for themselves, what is drawn for all others,
    and no label is lost.  The paper lets a selection start from nothing for every budget: one query
    a run.

    *Columns* are scaled, and centered where there is an intercept, by totals that are not rotated:
    neither changes a score.  Constant ones are dropped.  ``ridge`` (not in the paper) is λ for
    columns of unit variance.  ``mixture`` (not in the paper) γ draws a share of rows uniformly,
    which bounds weights.
    """

    mode: Literal["gram", "fedsvd", "tsqr"] = "gram"
    allot: Literal["site", "federation"] = "federation"
    weights: Literal["importance", "none"] = "importance"
    rotate: bool = True  # False: Q is the identity
    intercept: bool = True  # a column of ones is scored too, as the linear model has a bias
    ridge: float = 0.0  # λ of ridge leverage scores
    mixture: float = 0.0  # γ
    drop_rows: bool = False  # rows that are not finite come last; else they are refused

    contract: ClassVar[Contract] = Contract(
        title="FALE",
        paper="Efficient Heterogeneity-Aware Federated Active Data Selection",
        year=2025,
        authors="Tang and others",
        sum={
            "totals": "totals over sites of rows and of each column",
            "spread": "totals over sites of squares of each column",
            "gram": "totals over sites of products of columns",
            "mass": "totals over sites of leverage scores",
            "arrivals": "totals over sites of rows by when they are first drawn",
            "draws": "totals over sites of draws",
        },
        each={
            "masked": "the site's rows times secret rotations: products of its rotated columns",
            "triangle": "products of the site's rotated columns",
        },
        keep={
            "score": "number of tensors kept",
            "unmask": "number of tensors kept",
            "select": "number of picks",
            "take": "number of picks",
        },
        relay={"rotation": "nothing; the common rotation goes from one site to the others"},
        local_dp=False,  # totals of features leave without noise
        missing="stops: scores are those of the rows of all sites; a resumed run asks again",
        one_pass=True,
        often={"gram": 2, "arrivals": 12},  # each histogram narrows the time 4096 times
        draws=True,
        regression=True,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.ridge < float("inf"):
            raise ValueError(
                f"FALE's ridge is {self.ridge}; it must be 0 or more and finite"
            )
        if not 0 <= self.mixture <= 1:
            raise ValueError(
                f"FALE's mixture is {self.mixture}; it must lie between 0 and 1"
            )
        never = [*NEVER[self.mode], *NEVER[self.allot]]
        if not self.rotate:
            never.append("rotation")
        needs_totals_alone = self.mode == "gram"  # other modes need each site's answer
        asked = FALE.contract.without(*never)
        contract = replace(asked, secure_sum=needs_totals_alone, budget_of=self.allot)
        object.__setattr__(self, "contract", contract)

    # -- server half ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:  # line 4 on
        n = sum(budget.values())
        columns = leverage.find_columns(ask, intercept=self.intercept)
        result, warnings = self.score_rows(ask, columns)
        total = sum_of_all(ask, "mass")
        mass = float(total["mass"])
        reachable = int(total["reachable"])  # rows that can be drawn at all
        if mass == 0:
            raise ValueError(
                f"no row has a score above 0: all features are 0, or ridge={self.ridge:g} is too "
                "large, so there is no variance to select on; check the data, or choose random"
            )
        common: Draw = {"mass": mass, "rows": columns.rows}
        warnings += leverage.describe_doubts(n, result)
        notes: Memo = {"rank": result.rank, "mass": mass, "warnings": warnings}
        if self.allot == "site":
            ask.keep("select", to=orders(budget), **common)
        elif n > 0:
            end = torch.inf  # all that can be drawn is bought: each row stands for itself
            draws = reachable
            if n < reachable:
                end = self.find_end(ask, n, common)
                draws = int(sum_of_all(ask, "draws", end=end, **common)["draws"])
            notes["draws"] = draws
            ask.keep("take", end=end, draws=draws, **common)
        return {**memo, "notes": notes}

    def score_rows(self, ask: Ask, columns: Columns) -> tuple[Directions, list[str]]:
        """Lines 1-3: every site keeps the scores of its rows.  Returns the directions in which rows
        differ, and what a reader should know, in sentences."""
        k = len(columns.unit)
        at: Coordinates = {"mean": columns.mean, "unit": columns.unit, "lead": ""}
        if self.rotate:
            at["lead"] = ask.cohort[0]
            ask.relay("rotation", dict.fromkeys(ask.cohort, ask.cohort[:1]), size=k)
        if self.mode == "gram":
            totals = self.from_totals(ask, columns, at)
            ask.keep("score", basis=totals.basis, **at)
            return totals, []

        function = "triangle"
        if self.mode == "fedsvd":
            function = "masked"
        sent = each_of_all(ask, function, **at)
        rows = {site: torch.as_tensor(answer["rows"]) for site, answer in sent.items()}
        stack = torch.cat(list(rows.values()))  # (m, k), site below site
        left, totals = leverage.decompose(stack, columns.rows, self.ridge / columns.rows)
        warnings = []
        for site, x in rows.items():
            if len(x) == 1:
                warnings.append(leverage.ALONE.format(site))
        if self.mode == "tsqr":
            ask.keep("score", basis=totals.basis, **at)
            return totals, warnings

        sizes = [len(x) for x in rows.values()]
        parts = zip(rows, torch.split(left, sizes), strict=True)
        ask.keep("unmask", to={site: {"left": part} for site, part in parts}, width=k)
        return totals, warnings

    def from_totals(self, ask: Ask, columns: Columns, at: Coordinates) -> Directions:
        """Two passes over the rows: a basis in which they are orthonormal."""
        k = len(columns.unit)
        ridge = self.ridge / columns.rows
        is_rotated = bool(at["lead"])
        is_masked = ask.masking is not None

        first_bound: float | None = BOUND  # of an addend of the first sum
        second_bound: float | None = BOUND
        first_error = 0.0  # how far a sum is off, as a spectral norm
        second_error = 0.0
        if is_rotated and not is_masked:  # rotated columns are longer than BOUND allows
            first_bound = None
            second_bound = None
        if is_masked:  # sums are rounded, the more the larger an addend may be
            sites = len(ask.cohort)
            first_bound = BOUND
            if is_rotated:
                first_bound = leverage.bound_rotated(columns.unit)
            second_bound = BOUND
            first_error = leverage.rounding(first_bound, sites, k)
            second_error = leverage.rounding(second_bound, sites, k)
        total = sum_of_all(ask, "gram", first_bound, **at)
        gram = leverage.matrix(total["products"], k)
        basis = leverage.first_pass(gram, columns.rows, ridge, first_error)
        total = sum_of_all(ask, "gram", second_bound, basis=basis, **at)
        gram = leverage.matrix(total["products"], k)
        return leverage.second_pass(gram, basis, ridge, second_error)

    def find_end(self, ask: Ask, n: int, common: Draw) -> float:
        """The log of the time when the n-th row is drawn for the first time, from histograms: each
        is of the bin of the last one in which that time lies."""
        low = -LATEST
        high = LATEST
        below = 0  # rows that are drawn before ``low``
        while True:
            counts = sum_of_all(ask, "arrivals", low=low, high=high, **common)["arrivals"]
            reached = below + counts.cumsum(0)  # (BINS,) rows drawn by the end of each bin
            at = int((reached < n).sum())
            if at > 0:
                below = int(reached[at - 1])
            bounds = edges(low, high)
            low = float(bounds[at])
            high = float(bounds[at + 1])
            width = TIED
            if bool(counts[at] == 1):  # one row
                width = NARROW
            if high - low < width:
                return high

    # -- site half --------------------------------------------------------------------------

    def totals(self, view: View) -> Answer:
        x, _ = self.features(view)
        return {"rows": float(len(x)), "columns": leverage.totals(x)}

    def spread(self, view: View, mean: Tensor) -> Answer:
        x, _ = self.features(view)
        squares, varies = leverage.spread(x, mean)
        return {"squares": squares, "varies": varies}

    def rotation(self, view: View, size: int) -> Answer:
        return {"q": haar(size, view.secret("rotation"))}

    def gram(
        self,
        view: View,
        mean: Tensor,
        unit: Tensor,
        lead: str,
        basis: Tensor | None = None,
    ) -> Answer:
        x, _ = self.features(view)
        rotation = rotate_columns(view, unit, lead, basis)
        return {"products": leverage.products(x, mean, rotation)}

    def masked(self, view: View, mean: Tensor, unit: Tensor, lead: str) -> Answer:
        x, _ = self.features(view)
        blocks = leverage.project_rows(x, mean, rotate_columns(view, unit, lead))
        z = torch.cat(list(blocks))  # (m, k)
        return {"rows": mix(z, view.secret("mask"), z.shape[1])}

    def triangle(self, view: View, mean: Tensor, unit: Tensor, lead: str) -> Answer:
        x, _ = self.features(view)
        return {"rows": leverage.triangle(x, mean, rotate_columns(view, unit, lead))}

    def score(
        self, view: View, mean: Tensor, unit: Tensor, lead: str, basis: Tensor
    ) -> Answer:
        x, good = self.features(view)
        tau = leverage.leverages(x, mean, rotate_columns(view, unit, lead, basis))
        return {"tau": scatter_scores(tau, good)}

    def unmask(self, view: View, left: Tensor, width: int) -> Answer:
        x, good = self.features(view)
        if len(left) != len(x):
            raise ValueError(f"{len(x)} rows were masked and {len(left)} came back")
        u = unmix(left, view.secret("mask"), width)
        return {"tau": scatter_scores(leverage.scores(u), good)}

    def mass(self, view: View) -> Answer:
        tau = self.tau(view)
        reachable = tau > 0
        if self.mixture > 0:  # then a row without a score can be drawn too
            reachable = ~tau.isnan()
        return {"mass": tau.nansum(), "reachable": float(reachable.sum())}

    def arrivals(
        self, view: View, low: float, high: float, mass: float, rows: int
    ) -> Answer:
        return {"arrivals": self.clocks(view, mass, rows).histogram(low, high)}

    def draws(self, view: View, end: float, mass: float, rows: int) -> Answer:
        times = self.clocks(view, mass, rows).strikes(end, view.stream("strikes"))
        return {"draws": times.sum()}

    def select(self, view: View, n: int, mass: float, rows: int) -> Picks:
        """The first ``n`` rows that are drawn at the site."""
        clocks = self.clocks(view, mass, rows)
        order = clocks.order[:n]
        chance = clocks.rate / clocks.rate.sum().clamp_min(1e-300)  # (m,) in one draw
        if n >= clocks.reachable:  # all there is: each row stands for itself
            return self.picks(order, torch.ones_like(chance), chance)
        end = float(clocks.first[order[-1]].log())
        times = clocks.strikes(end, view.stream("strikes"))  # (m,) how often each is drawn
        expected = times.sum() * chance
        return self.picks(order, times / expected, chance)

    def take(self, view: View, end: float, draws: int, mass: float, rows: int) -> Picks:
        """The rows that are drawn by ``end`` (the log of a time), of ``draws`` over all sites."""
        clocks = self.clocks(view, mass, rows)
        is_drawn = clocks.is_drawn(end)  # (m,)
        order = clocks.order[is_drawn[clocks.order]]
        if end == torch.inf:
            return self.picks(order, torch.ones_like(clocks.rate), clocks.rate)
        times = clocks.strikes(end, view.stream("strikes"))  # (m,) how often each is drawn
        expected = draws * clocks.rate
        return self.picks(order, times / expected, clocks.rate)

    def picks(self, order: Tensor, weight: Tensor, chance: Tensor) -> Picks:
        """Rows in this order, with the weight and the chance in a draw that each row has."""
        if self.weights == "none":
            return Picks(order, None, chance[order])
        return Picks(order, weight[order], chance[order])

    def clocks(self, view: View, mass: float, rows: int) -> Clocks:
        rate = (1 - self.mixture) * self.tau(view) / mass + self.mixture / rows
        return start_clocks(rate, view.stream("clocks"))

    def tau(self, view: View) -> Tensor:
        """The score of each row of the pool, (m,); NaN for rows that are not finite."""
        if self.mode == "fedsvd":
            return view.memory["unmask"]["tau"]
        return view.memory["score"]["tau"]

    def features(self, view: View) -> tuple[Tensor, Tensor]:
        """The rows of the pool that are finite, and which these are, (m,); raises where one is not
        and may not be left out."""
        x = view.rows()
        good = leverage.finite(x, self.drop_rows)
        if not bool(good.all()):  # else no second copy of the rows is made
            x = x[good]
        return x, good


def rotate_columns(
    view: View, unit: Tensor, lead: str, basis: Tensor | None = None
) -> Tensor:
    """Scaling, the rotation that site ``lead`` drew, if any, and a basis found so far: one matrix,
    (k, k) or (k, r)."""
    rotation = torch.eye(len(unit)).to(unit)  # (k, k)
    if lead:
        rotation = view.memory[f"rotation/{lead}"]["q"]
    if basis is not None:
        rotation = rotation @ basis  # (k, r)
    return unit[:, None] * rotation


def scatter_scores(score: Tensor, good: Tensor) -> Tensor:
    """Scores of the rows that are ``good`` (m,) at their places; NaN at the others.  -> (m,)"""
    return torch.full(good.shape, torch.nan, dtype=score.dtype).masked_scatter(good, score)
