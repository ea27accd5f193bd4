"""FALE (Tang et al., 2025): leverage sampling over all sites, Algorithms 1 and 2, for regression.

Lines 1-3 of Algorithm 1 are a singular value decomposition of masked rows (FedSVD).  All that they
lead to, the leverage scores, follows from the total of the sites' Gram matrices, and so it is
computed here.  Line 9, the solution at the server, is the training method ``server-solve``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.types import Answer
from fallow.core.view import Picks, View
from fallow.queries.base import Budget, Memo, check_choices, orders
from fallow.queries.parts.clocks import LATEST, Clocks, clocks, edges
from fallow.queries.parts.leverage import (
    BOUND,
    Columns,
    Directions,
    blocks,
    first_pass,
    leverages,
    matrix,
    products,
    scales,
    second_pass,
    spread,
    totals,
)

NARROW, TIED = 1e-8, 1e-15  # how closely the end of the draws is known; clocks that strike at once
STEEP = 1e10  # condition number beyond which the smallest direction is rounding error


@final
@dataclass(frozen=True)
class FALE:
    """Rows drawn with replacement, in proportion to their leverage score, until the budget of
    different rows is met; each weighs as often as it was drawn over how often that was expected.

    With weights the labels stand for all rows of the pool: E[weight] = 1.  Both algorithms of the
    paper are this query under another training method:

    * FALE: ``fale@training=server-solve``.
    * FALE-local: ``fale:weights=none@training=fedavg``; the paper leaves the weights out.

    ``ask.sum`` sees totals over sites of row counts, column totals, products of columns and scores.

    Notes
    -----
    *Masks.*  In the paper the server sees each site's rows times secret rotations, and from them
    each site's Gram matrix up to the common rotation.  Here it sees the total alone, not rotated:
    means and covariances of all sites' features.  Every site can learn the same, as in the paper.
    This is no formal privacy.

    *Weights and masks.*  Algorithm 1 as printed applies the weights to masked rows, which solves
    another problem.  Here weights travel with the labels and nothing masks rows.

    *Draws.*  Each row has its own clock, which strikes at the rate of its score: the strikes of all
    sites in order are draws with replacement.  So sites draw by themselves and no score leaves one.

    *Who buys.*  With ``allot="site"`` each site draws its own budget in proportion to its scores,
    and a weight is for the site.  ``"federation"``, as in the paper: only the total counts and the
    draws say where; some sites then buy more than their budget, for callers that allow it.

    *Labels bought before* are outside the pool: their rows are neither scored nor drawn and weigh
    what they weighed, 1 for first labels.  The paper lets a selection start from nothing for every
    budget: one query a run.

    *Columns* are scaled, and centred where there is an intercept: neither changes a score.
    Constant ones are dropped.  ``ridge`` (not in the paper) is λ for columns of unit variance.
    ``mixture`` (not in the paper) γ draws a share of rows uniformly, which bounds weights.
    """

    allot: Literal["site", "federation"] = "site"
    weights: Literal["importance", "none"] = "importance"
    intercept: bool = True  # a column of ones is scored too, as the linear model has a bias
    ridge: float = 0.0  # λ of ridge leverage scores
    mixture: float = 0.0  # γ
    drop_rows: bool = False  # rows that are not finite come last; else they are refused

    contract: ClassVar[Contract] = Contract(
        title="FALE",
        paper="Efficient Heterogeneity-Aware Federated Active Data Selection",
        year=2025,
        verbs={
            "totals": "totals over sites of rows and of each column",
            "spread": "totals over sites of squares of each column",
            "gram": "totals over sites of products of columns",
            "mass": "totals over sites of leverage scores",
            "arrivals": "totals over sites of rows by when they are first drawn",
            "draws": "totals over sites of draws",
            "select": "number of picks",
            "take": "number of picks",
        },
        local_dp=False,  # totals of features leave without noise
        draws=True,
        regression=True,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        if not 0 <= self.ridge < float("inf"):
            raise ValueError(f"FALE's ridge is {self.ridge}; it must be 0 or more and finite")
        if not 0 <= self.mixture <= 1:
            raise ValueError(f"FALE's mixture is {self.mixture}; it must lie between 0 and 1")

    # -- server half ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        n, columns = sum(budget.values()), self.columns(ask)
        found = self.directions(ask, columns)
        basis = columns.unit[:, None] * found.basis
        common: dict[str, Any] = {"mean": columns.mean, "basis": basis}
        total = ask.sum("mass", **common)
        mass, reachable = float(total["mass"]), int(total["reachable"])
        common |= {"mass": mass, "rows": columns.rows}
        notes: Memo = {"rank": found.rank, "mass": mass, "warnings": doubts(n, found)}
        if self.allot == "site":
            ask.keep("select", to=orders(budget), **common)
        elif n > 0:
            end = self.finish(ask, n, common) if n < reachable else torch.inf
            draws = ask.sum("draws", end=end, **common)["draws"] if n < reachable else reachable
            notes["draws"] = int(draws)
            ask.keep("take", end=end, draws=int(draws), **common)
        return {**memo, "notes": notes}

    def columns(self, ask: Ask) -> Columns:
        """How columns are centred and scaled."""
        total = ask.sum("totals")
        rows = int(total["rows"])
        if rows == 0:
            raise ValueError("no site has a row without a label: there is nothing to choose from")
        mean = total["columns"] / rows * self.intercept
        seen = ask.sum("spread", mean=mean)
        unit = scales(seen["squares"], seen["varies"])
        ones = torch.full((int(self.intercept),), rows**-0.5, dtype=torch.float64)
        return Columns(mean, torch.cat([unit, ones]), rows)

    def directions(self, ask: Ask, columns: Columns) -> Directions:
        """Two passes over the rows: a basis in which they are orthonormal."""
        mean, unit, rows = columns
        k, ridge = len(unit), self.ridge / rows
        total = ask.sum("gram", bound=BOUND, mean=mean, basis=unit.diag())
        basis = first_pass(matrix(total["products"], k), rows, ridge)
        total = ask.sum("gram", bound=BOUND, mean=mean, basis=unit[:, None] * basis)
        found = second_pass(matrix(total["products"], k), basis, ridge)
        if found.rank == 0:
            raise ValueError(
                "all features of all rows are 0: there is no variance to select on; check the "
                "data, or choose random"
            )
        return found

    def finish(self, ask: Ask, n: int, common: dict[str, Any]) -> float:
        """The log of the time when the n-th row is drawn for the first time, from histograms."""
        low, high, below = -LATEST, LATEST, 0
        while True:
            counts = ask.sum("arrivals", low=low, high=high, **common)["arrivals"]
            reached = below + counts.cumsum(0)
            at = int((reached < n).sum())
            below = int(reached[at - 1]) if at else below
            low, high = map(float, edges(low, high)[at : at + 2])
            if high - low < (NARROW if counts[at] == 1 else TIED):
                return high

    # -- site half --------------------------------------------------------------------------

    def totals(self, view: View) -> Answer:
        x, _ = self.features(view)
        return {"rows": float(len(x)), "columns": totals(x)}

    def spread(self, view: View, mean: Tensor) -> Answer:
        squares, varies = spread(self.features(view)[0], mean)
        return {"squares": squares, "varies": varies}

    def gram(self, view: View, mean: Tensor, basis: Tensor) -> Answer:
        return {"products": products(self.features(view)[0], mean, basis)}

    def mass(self, view: View, mean: Tensor, basis: Tensor) -> Answer:
        score = leverages(self.features(view)[0], mean, basis)
        reachable = len(score) if self.mixture > 0 else int((score > 0).sum())
        return {"mass": score.sum(), "reachable": float(reachable)}

    def arrivals(self, view: View, low: float, high: float, **common: Any) -> Answer:
        return {"arrivals": self.clocks(view, **common).histogram(low, high)}

    def draws(self, view: View, end: float, **common: Any) -> Answer:
        return {"draws": self.clocks(view, **common).strikes(end, view.stream("strikes")).sum()}

    def select(self, view: View, n: int, **common: Any) -> Picks:
        """The first ``n`` rows that are drawn at the site."""
        made = self.clocks(view, **common)
        order, chance = made.order[:n], made.rate / made.rate.sum().clamp_min(1e-300)
        if n >= made.reachable:  # all there is: each row stands for itself
            return self.picks(order, torch.ones_like(chance), chance)
        struck = made.strikes(float(made.first[order[-1]].log()), view.stream("strikes"))
        return self.picks(order, struck / (struck.sum() * chance), chance)

    def take(self, view: View, end: float, draws: int, **common: Any) -> Picks:
        """The rows that are drawn by ``end`` (the log of a time), of ``draws`` over all sites."""
        made = self.clocks(view, **common)
        order = made.order[made.drawn(end)[made.order]]
        if end == torch.inf:
            return self.picks(order, torch.ones_like(made.rate), made.rate)
        struck = made.strikes(end, view.stream("strikes"))
        return self.picks(order, struck / (draws * made.rate), made.rate)

    def picks(self, order: Tensor, weight: Tensor, chance: Tensor) -> Picks:
        """Rows in this order, with the weight and the chance in a draw that each row has."""
        weighs = self.weights == "importance"
        return Picks(order, weight[order] if weighs else None, chance[order])

    def clocks(self, view: View, mean: Tensor, basis: Tensor, mass: float, rows: int) -> Clocks:
        x, good = self.features(view)
        share = (1 - self.mixture) * leverages(x, mean, basis) / mass
        rate = torch.full((view.pool,), torch.nan, dtype=torch.float64)
        rate[good] = share + self.mixture / rows
        return clocks(rate, view.stream("clocks"))

    def features(self, view: View) -> tuple[Tensor, Tensor]:
        """The rows of the pool that are finite, and which these are, (m,); raises where one is not
        and may not be left out."""
        x = view.rows()
        good = torch.cat([rows.flatten(1).isfinite().all(1) for rows in blocks(x)])
        if bool(good.all()):
            return x, good
        if self.drop_rows and bool(good.any()):
            return x[good], good
        bad = (~x.flatten(1).isfinite()).sum(0)
        c = int(bad.argmax())
        raise ValueError(
            f"column {c} has {int(bad[c])} values that are NaN or infinite in a pool of {len(x)} "
            "rows; fill them, or leave such rows out with fale:drop_rows=true"
        )


def doubts(n: int, found: Directions) -> list[str]:
    """What a reader of the results should know, in sentences."""
    said = []
    if n < found.rank:
        said.append(
            f"{n} labels for {found.rank} directions: what they do not reach stays at 0 in a least "
            "squares solution; buy more, or use server-solve:ridge=0.001"
        )
    if found.condition > STEEP:
        said.append(
            f"columns are collinear up to 1 in {found.condition:.0e}: scores in that direction are "
            "rounding errors; leave out a column, or use fale:ridge=0.001"
        )
    return said
