"""FALE (Tang et al., 2025): leverage-score sampling over all sites, Algorithms 1 and 2.

The strategy is for regression.  Line 17 of Algorithm 1, the solution on the server side, is a
training algorithm: ``masked-solve`` as in the paper, or ``server-solve`` from aggregates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypedDict, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, each_of_all, sum_of_all
from fallow.core.contract import Contract
from fallow.core.limits import Fraction, NonNegativeFinite
from fallow.core.suggestions import explain_constructor
from fallow.core.types import Values
from fallow.core.values import (
    SITE_NAME,
    Count,
    Features,
    LabelCount,
    NonNegative,
    Optional,
    Real,
    Time,
    Triangle,
    Whole,
)
from fallow.core.view import SelectedExamples, View
from fallow.models.orthogonal import haar, mix, unmix
from fallow.strategies.base import Budget, Memo, check_fields, label_counts
from fallow.strategies.parts import leverage
from fallow.strategies.parts.leverage import BOUND, Columns, Directions

BINS = 4096  # number of bins of a histogram of first strikes
LATEST = 60.0  # the log of the time of a first strike lies between -60 and 60


class Clocks(NamedTuple):
    """One clock per example, (m,): its rate and the time of the first strike, infinite at rate 0."""

    rate: Tensor
    first: Tensor

    @property
    def reachable(self) -> int:
        """Number of examples that can be drawn."""
        return int((self.rate > 0).sum())

    @property
    def order(self) -> Tensor:
        """Return examples in the order of their first draw; then those never drawn."""
        return self.first.argsort(stable=True)

    def is_drawn(self, end: float) -> Tensor:
        """Return a mask of examples drawn by the time exp(``end``), (m,)."""
        return (self.first.log() <= end) & (self.rate > 0)

    def strikes(self, end: float, generator: torch.Generator) -> Tensor:
        """Return the number of draws of each example by then, (m,).

        After its first strike, a clock restarts: the number of further strikes is Poisson.
        """
        u = torch.rand(self.rate.shape, generator=generator, dtype=torch.float64)
        is_drawn = self.is_drawn(end)
        time_left = (math.exp(end) - self.first[is_drawn]).clamp_min(0)
        times = torch.zeros_like(self.rate)
        times[is_drawn] = 1 + poisson(self.rate[is_drawn] * time_left, u[is_drawn])
        return times

    def histogram(self, low: float, high: float) -> Tensor:
        """Count examples by the log of their first strike, in bins (low, ...] to (..., high].  ->
        (BINS,)"""
        log = self.first.log()
        inside = log[(log > low) & (log <= high)]
        at = torch.bucketize(inside, edges(low, high)) - 1
        return torch.bincount(at, minlength=BINS).double()


def start_clocks(rate: Tensor, generator: torch.Generator) -> Clocks:
    """Start clocks with these rates, (m,) float64; equal generators give equal clocks."""
    wait = torch.empty_like(rate).exponential_(generator=generator).clamp_min(1e-20)
    return Clocks(rate, wait / rate)


def poisson(mean: Tensor, u: Tensor) -> Tensor:
    """Return Poisson numbers from one uniform number each: the smallest k with P(N <= k) >= u.

    A mean that differs in its last bits gives the same number, and does not affect later numbers,
    which torch does not guarantee.

    >>> poisson(torch.tensor([0.0, 2.0, 2.0]), torch.tensor([0.99, 0.13, 0.14]))
    tensor([0., 0., 1.])
    """
    low = torch.full_like(mean, -1.0)
    high = (mean + 40 * (mean + 1).sqrt()).ceil()
    widest = max(high.tolist(), default=1.0)
    for _ in range(math.ceil(math.log2(widest)) + 1):  # bisection
        middle = ((low + high) / 2).floor()
        is_enough = torch.special.gammaincc(middle + 1, mean) >= u
        low = torch.where(is_enough, low, middle)
        high = torch.where(is_enough, middle, high)
    return high.clamp_min(0)


DEVIATIONS = 12.0  # of a Poisson number from its mean, in standard deviations


def limit_draws(end: float) -> tuple[float, float]:
    """Return the smallest and the largest number of draws of all sites by the time exp(``end``).

    The rates of all examples sum to 1, so the number is Poisson with mean exp(end).  A site that
    claims another number would change the weights of the examples of all sites.

    >>> [round(limit) for limit in limit_draws(math.log(100))]
    [1, 221]
    """
    mean = math.exp(end)
    width = DEVIATIONS * math.sqrt(mean + 1)
    return max(mean - width, 1.0), mean + width


def find_bin(reached: Tensor, n: int) -> int:
    """Return the bin in which the n-th example is drawn.

    reached: (bins,) examples drawn by the end of each bin.  Raises ValueError if there are fewer.

    >>> find_bin(torch.tensor([0.0, 2.0, 5.0]), 3)
    2
    """
    at = int((reached < n).sum())
    if at == len(reached):
        raise ValueError(
            f"FALE selects {n} examples, and the histograms of all sites together contain "
            f"{int(reached[-1])}: a site counted its examples wrongly; begin a new run without it "
            "(fallow coordinate start --new-run), or use another query strategy"
        )
    return at


def edges(low: float, high: float) -> Tensor:
    """Return the bounds of the bins, (BINS + 1,)."""
    return torch.linspace(low, high, BINS + 1, dtype=torch.float64)


NARROW = 1e-8  # precision of the end of the draws, as the log of a time
TIED = 1e-14  # tolerance within which two clocks strike at the same time
AT = {"mean": Real("inputs"), "unit": NonNegative("columns"), "lead": SITE_NAME}
"""Arguments with `Coordinates`."""
DRAW = {"mass": NonNegative(), "rows": Whole()}
"""Arguments with a `Draw`."""


class Coordinates(TypedDict):
    """Coordinates of the columns: mean (d,), unit (k,) and the site that drew the rotation.

    The name of the site is "" without a rotation.
    """

    mean: Tensor
    unit: Tensor
    lead: str


class Draw(TypedDict):
    """Aggregates that a site needs to draw its own examples: total score and number of examples."""

    mass: float
    rows: int


@explain_constructor
@final
@dataclass(frozen=True)
class FALE:
    """Draw examples by leverage score, and weight each by its number of draws.

    Examples are drawn with replacement until the label budget of distinct examples is reached.  The
    weight of an example is the number of its draws divided by the expected number.  Weighted labels
    represent the whole pool: E[weight] = 1.  Both algorithms of the paper are this query strategy
    with different training algorithms:

    * FALE: ``fale:mode=fedsvd@training=masked-solve``, or faster ``fale@training=server-solve``.
    * FALE-local: ``fale:weights=none@training=fedavg``; the paper leaves the weights out.

    Parameters
    ----------
    mode : {"gram", "fedsvd", "tsqr"}
        Computation of the singular value decomposition X = U Σ Vᵀ of the examples of all sites,
        which no party holds.  All modes give the same scores.  "gram" uses aggregates over sites of
        products of columns; the coordinator sees QᵀXᵀXQ.  "fedsvd" (Algorithm 1, lines 2-3) uses
        masked examples P_i X_i Q, which ``ask.each`` shows to the coordinator site by site, and
        therefore each QᵀX_iᵀX_iQ.  "tsqr" uses the triangle R_i of X_i Q = H_i R_i; it discloses as
        much as "fedsvd" and sends less.
    allot : {"federation", "site"}
        "federation": the label budget applies to all sites together, as in the paper, and some
        sites label more than their own budget, if the caller allows it.  "site": each site spends
        its own label budget, and weights are relative to the site.
    weights : {"importance", "none"}
        Whether selected examples have importance weights.
    rotate : bool
        Apply a secret rotation Q to the columns.
    intercept : bool
        Score a column of ones as well, because the linear model has a bias.
    ridge : float
        λ of ridge leverage scores, for columns of unit variance.  Not in the paper.
    mixture : float
        Share of examples that are drawn uniformly (γ), which bounds weights.  Not in the paper.

    Notes
    -----
    *Masks* obscure data and give no formal guarantee; docs/privacy.md describes what they disclose
    and to whom.  Q is drawn by one site, encrypted for the others (``rotate``) and new in every
    query.  P_i never leaves its site.  The trusted authority of the paper is not needed.

    *Order of weights and masks.*  Algorithm 1 as printed applies the weights to masked examples,
    which solves a different problem.  Here weights are sent with the labels and applied before
    examples are masked.

    *Draws.*  Each example has an exponential clock with a rate equal to its score.  The strikes of
    all clocks in order are draws with replacement, so sites draw independently and no score leaves
    a site.

    *Earlier labels* are not in the pool.  Their examples are neither scored nor drawn, and keep
    their weights; initial labels have weight 1 and represent themselves.  In the paper, the
    selection starts from scratch for each label budget, which corresponds to one query per run.

    *Columns* are scaled, and centered if there is an intercept, by aggregates that are not rotated;
    neither changes a score.  Constant columns are dropped.  A score below 1e-12 is a rounding
    error and counts as 0, so that such an example is never drawn.

    References
    ----------
    Tang, Ren, Tang, Huang, Cui, Yu. Efficient Heterogeneity-Aware Federated Active Data Selection.
    2025.

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[1.0, 0.0], [1.0, 0.1], [0.9, 0.0], [0.0, 50.0]]
    >>> labeled = ([[0.0, 1.0]], [2.0])
    >>> fl.select(pool, fl.FALE(allot="site"), labeled=labeled, n=1)
    array([3])
    """

    mode: Literal["gram", "fedsvd", "tsqr"] = "gram"
    allot: Literal["site", "federation"] = "federation"
    weights: Literal["importance", "none"] = "importance"
    rotate: bool = True  # False: Q is the identity
    intercept: bool = (
        True  # score a column of ones too, because the linear model has a bias
    )
    ridge: NonNegativeFinite = 0.0  # λ of ridge leverage scores
    mixture: Fraction = 0.0  # γ

    contract: ClassVar[Contract] = Contract(
        title="FALE",
        paper="Efficient Heterogeneity-Aware Federated Active Data Selection",
        year=2025,
        authors="Tang, Ying-Peng and Ren, Chao and Tang, Xiaoli and Huang, Sheng-Jun and "
        "Cui, Lizhen and Yu, Han",
        local_dp=False,  # aggregates of features are sent without noise
        missing="stops: scores are those of the examples of all sites; a resumed run asks "
        "again",
        one_pass=True,
        draws=True,
        regression=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        needs_totals_alone = self.mode == "gram"  # other modes need the reply of each site
        contract = FALE.contract.narrowed(
            self, secure_sum=needs_totals_alone, budget_of=self.allot
        )
        object.__setattr__(self, "contract", contract)

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:  # from line 4
        n = sum(budget.values())
        columns = leverage.find_columns(
            ask, self.totals, self.spread, intercept=self.intercept
        )
        result, warnings = self.score_rows(ask, columns)
        total = sum_of_all(ask, self.mass)
        mass = float(total["mass"])
        reachable = int(total["reachable"])  # examples with a positive rate
        if mass == 0:
            raise ValueError(
                "no example has a score above 0: all features are 0, or "
                f"ridge={self.ridge:g} is too large, so there is no variance to select "
                "on; check the data, or use random sampling"
            )
        common: Draw = {"mass": mass, "rows": columns.rows}
        warnings += leverage.describe_doubts(n, result)
        notes: Memo = {"rank": result.rank, "mass": mass, "warnings": warnings}
        if self.allot == "site":
            ask.keep(self.select, to=label_counts(budget), **common)
        elif n > 0:
            end = torch.inf  # all of them are selected: each has weight 1
            draws = reachable
            if n < reachable:
                end = self.find_end(ask, n, common)
                least, largest = limit_draws(end)
                total = sum_of_all(ask, self.draws, largest, end=end, **common)
                draws = round(min(max(float(total["draws"]), least), largest))
            notes["draws"] = draws
            ask.keep(self.take, end=end, draws=draws, **common)
        return {**memo, "notes": notes}

    def score_rows(self, ask: Ask, columns: Columns) -> tuple[Directions, list[str]]:
        """Compute scores, which stay at the sites (lines 2-3).

        Returns the directions in which examples differ, and notes for the report, as sentences.
        """
        k = len(columns.unit)
        at: Coordinates = {"mean": columns.mean, "unit": columns.unit, "lead": ""}
        if self.rotate:
            at["lead"] = ask.cohort[0]
            ask.relay(self.rotation, dict.fromkeys(ask.cohort, ask.cohort[:1]), size=k)
        if self.mode == "gram":
            totals = self.from_totals(ask, columns, at)
            ask.keep(self.score, basis=totals.basis, **at)
            return totals, []

        function = self.triangle
        if self.mode == "fedsvd":
            function = self.masked
        sent = each_of_all(ask, function, **at)
        rows = {site: torch.as_tensor(reply["rows"]) for site, reply in sent.items()}
        stack = torch.cat(list(rows.values()))  # (m, k), sites stacked
        left, totals = leverage.decompose(stack, columns.rows, self.ridge / columns.rows)
        warnings = []
        for site, x in rows.items():
            if len(x) == 1:
                warnings.append(leverage.ALONE.format(site))
        if self.mode == "tsqr":
            ask.keep(self.score, basis=totals.basis, **at)
            return totals, warnings

        sizes = [len(x) for x in rows.values()]
        parts = zip(rows, torch.split(left, sizes), strict=True)
        ask.keep(self.unmask, to={site: {"left": part} for site, part in parts}, width=k)
        return totals, warnings

    def from_totals(self, ask: Ask, columns: Columns, at: Coordinates) -> Directions:
        """Compute a basis in which the examples are orthonormal, in two passes."""
        k = len(columns.unit)
        ridge = self.ridge / columns.rows
        is_rotated = bool(at["lead"])
        is_masked = ask.masking is not None

        first_bound: float | None = BOUND  # on a contribution to the first aggregate
        second_bound: float | None = BOUND
        first_error = 0.0  # error of an aggregate, as a spectral norm
        second_error = 0.0
        if is_rotated and not is_masked:  # rotated columns exceed BOUND
            first_bound = None
            second_bound = None
        if is_masked:  # rounding grows with the bound on a contribution
            sites = len(ask.cohort)
            first_bound = BOUND
            if is_rotated:
                first_bound = leverage.bound_rotated(columns.unit)
            second_bound = BOUND
            first_error = leverage.rounding(first_bound, sites, k)
            second_error = leverage.rounding(second_bound, sites, k)
        total = sum_of_all(ask, self.gram, first_bound, **at)
        gram = leverage.matrix(total["products"], k)
        basis = leverage.first_pass(gram, columns.rows, ridge, first_error)
        total = sum_of_all(ask, self.gram, second_bound, basis=basis, **at)
        gram = leverage.matrix(total["products"], k)
        return leverage.second_pass(gram, basis, ridge, second_error)

    def find_end(self, ask: Ask, n: int, common: Draw) -> float:
        """Return the log of the time of the n-th first draw, from histograms.

        Each histogram divides the bin of the previous one in which that time lies.
        """
        low = -LATEST
        high = LATEST
        below = 0  # examples drawn before ``low``
        while True:
            counts = sum_of_all(ask, self.arrivals, low=low, high=high, **common)[
                "arrivals"
            ]
            # (BINS,) examples drawn by the end of each bin
            reached = below + counts.cumsum(0)
            at = find_bin(reached, n)
            if at > 0:
                below = int(reached[at - 1])
            bounds = edges(low, high)
            low = float(bounds[at])
            high = float(bounds[at + 1])
            width = TIED
            if bool(counts[at] == 1):  # one example
                width = NARROW
            if high - low < width:
                return high

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples and of each column",
        returns={"rows": Count(of="rows"), "columns": Real("inputs", is_wide=True)},
        over="pool",
    )
    def totals(self, view: View) -> Values:
        x = view.rows()
        return {"rows": float(len(x)), "columns": leverage.totals(x)}

    @client.sum(
        "aggregates of squares of each column",
        returns={
            "squares": NonNegative("inputs", is_wide=True),
            "varies": Count("inputs", of="rows"),
        },
        takes={"mean": Real("inputs")},
        over="pool",
    )
    def spread(self, view: View, mean: Tensor) -> Values:
        squares, varies = leverage.spread(view.rows(), mean)
        return {"squares": squares, "varies": varies}

    @client.relay(
        "the common rotation, sent from one site to the others",
        returns={"q": Real(("columns", "columns"))},
        takes={"size": Whole(upto=("inputs", 1))},
        when=lambda self: self.rotate,
    )
    def rotation(self, view: View, size: int) -> Values:
        return {"q": haar(size, view.secret("rotation"))}

    @client.sum(
        "aggregates of products of columns",
        returns={"products": Real(Triangle("directions"))},
        takes=AT | {"basis": Optional(Real(("columns", "directions")))},
        when=lambda self: self.mode == "gram",
        times=2,
    )
    def gram(
        self,
        view: View,
        mean: Tensor,
        unit: Tensor,
        lead: str,
        basis: Tensor | None = None,
    ) -> Values:
        rotation = rotate_columns(view, unit, lead, basis)
        return {"products": leverage.products(view.rows(), mean, rotation)}

    @client.each(
        "the site's examples times secret rotations: products of its rotated columns",
        returns={"rows": Features(("examples", "columns"))},
        takes=AT,
        when=lambda self: self.mode == "fedsvd",
    )
    def masked(self, view: View, mean: Tensor, unit: Tensor, lead: str) -> Values:
        rotation = rotate_columns(view, unit, lead)
        blocks = leverage.project_rows(view.rows(), mean, rotation)
        z = torch.cat(list(blocks))  # (m, k)
        return {"rows": mix(z, view.secret("mask"), z.shape[1])}

    @client.each(
        "products of the site's rotated columns",
        returns={"rows": Features(("examples", "columns"))},
        takes=AT,
        when=lambda self: self.mode == "tsqr",
    )
    def triangle(self, view: View, mean: Tensor, unit: Tensor, lead: str) -> Values:
        rotation = rotate_columns(view, unit, lead)
        return {"rows": leverage.triangle(view.rows(), mean, rotation)}

    @client.keep(
        "number of stored tensors",
        takes=AT | {"basis": Real(("columns", "directions"))},
        when=lambda self: self.mode != "fedsvd",
    )
    def score(
        self, view: View, mean: Tensor, unit: Tensor, lead: str, basis: Tensor
    ) -> Values:
        rotation = rotate_columns(view, unit, lead, basis)
        tau = leverage.leverages(view.rows(), mean, rotation)
        return {"tau": tau, "pool": self.find_first_pool(view)}

    @client.keep(
        "number of stored tensors",
        takes={
            "left": Features(("examples", "columns")),
            "width": Whole(upto=("inputs", 1)),
        },
        when=lambda self: self.mode == "fedsvd",
    )
    def unmask(self, view: View, left: Tensor, width: int) -> Values:
        pool = self.find_first_pool(view)
        if len(left) == view.pool:  # masked just now, also if the query has begun again
            pool = view.positions
        if len(left) != len(pool):
            raise ValueError(
                f"{len(pool)} examples are in the pool and {len(left)} were returned: if an example "
                "has left since they were masked, 'fallow coordinate advance' queries without this "
                "site in this cycle"
            )
        u = unmix(left, view.secret("mask"), width)
        is_in = torch.isin(pool, view.positions)
        return {"tau": leverage.scores(u)[is_in], "pool": pool}

    @client.sum(
        "aggregates of leverage scores",
        returns={"mass": NonNegative(of="rows"), "reachable": Count(of="rows")},
    )
    def mass(self, view: View) -> Values:
        tau = self.tau(view)
        reachable = len(tau)
        if self.mixture == 0:  # otherwise an example without a score can be drawn too
            reachable = int((tau > 0).sum())
        return {"mass": tau.sum(), "reachable": float(reachable)}

    @client.sum(
        "aggregates of numbers of examples, by time of the first draw",
        returns={"arrivals": Count(BINS, of="rows", is_together=True)},
        takes={"low": Time(), "high": Time()} | DRAW,
        when=lambda self: self.allot == "federation",
        times=12,  # each histogram narrows the interval by a factor of 4096
    )
    def arrivals(
        self, view: View, low: float, high: float, mass: float, rows: int
    ) -> Values:
        return {"arrivals": self.clocks(view, mass, rows).histogram(low, high)}

    @client.sum(
        "aggregates of numbers of draws",
        returns={"draws": Count()},
        takes={"end": Time()} | DRAW,
        when=lambda self: self.allot == "federation",
    )
    def draws(self, view: View, end: float, mass: float, rows: int) -> Values:
        times = self.clocks(view, mass, rows).strikes(end, view.stream("strikes"))
        return {"draws": times.sum()}

    @client.keep(
        "number of selected examples",
        takes={"n": LabelCount()} | DRAW,
        when=lambda self: self.allot == "site",
    )
    def select(self, view: View, n: int, mass: float, rows: int) -> SelectedExamples:
        """Return the first ``n`` examples that are drawn at the site."""
        clocks = self.clocks(view, mass, rows)
        order = clocks.order[:n]
        chance = clocks.rate / clocks.rate.sum().clamp_min(1e-300)  # (m,) in one draw
        if n >= clocks.reachable:  # all of them: each has weight 1
            return self.selected(order, torch.ones_like(chance), chance)
        end = float(clocks.first[order[-1]].log())
        times = clocks.strikes(end, view.stream("strikes"))  # (m,) number of draws
        expected = times.sum() * chance
        return self.selected(order, times / expected, chance)

    @client.keep(
        "number of selected examples",
        takes={"end": Time(), "draws": Whole()} | DRAW,
        when=lambda self: self.allot == "federation",
    )
    def take(
        self, view: View, end: float, draws: int, mass: float, rows: int
    ) -> SelectedExamples:
        """Return the examples drawn by ``end`` (the log of a time), of ``draws`` over all sites."""
        clocks = self.clocks(view, mass, rows)
        is_drawn = clocks.is_drawn(end)  # (m,)
        order = clocks.order[is_drawn[clocks.order]]
        if end == torch.inf:
            return self.selected(order, torch.ones_like(clocks.rate), clocks.rate)
        times = clocks.strikes(end, view.stream("strikes"))  # (m,) number of draws
        expected = draws * clocks.rate
        return self.selected(order, times / expected, clocks.rate)

    def selected(self, order: Tensor, weight: Tensor, chance: Tensor) -> SelectedExamples:
        """Return examples in this order, with the weight and the probability of each in a draw."""
        if self.weights == "none":
            return SelectedExamples(order, None, chance[order])
        return SelectedExamples(order, weight[order], chance[order])

    def clocks(self, view: View, mass: float, rows: int) -> Clocks:
        rate = (1 - self.mixture) * self.tau(view) / mass + self.mixture / rows
        is_in = torch.isin(self.find_first_pool(view), view.positions)
        of_first = torch.zeros(len(is_in), dtype=rate.dtype)
        of_first[is_in] = rate
        clocks = start_clocks(of_first, view.stream("clocks"))
        return Clocks(rate, clocks.first[is_in])

    def tau(self, view: View) -> Tensor:
        """Return the score of each example of the pool, (m,)."""
        return view.memory[self._scored_by]["tau"]

    def find_first_pool(self, view: View) -> Tensor:
        """Return the positions of the pool when it was first scored in this cycle, (n,).

        An example that leaves later in the query must not change the draws of the others.
        """
        before = view.memory.get(self._scored_by)
        if before is None:
            return view.positions
        return before["pool"]

    @property
    def _scored_by(self) -> str:
        """Client function that stores the scores of a site."""
        return "unmask" if self.mode == "fedsvd" else "score"


def rotate_columns(
    view: View, unit: Tensor, lead: str, basis: Tensor | None = None
) -> Tensor:
    """Combine scaling, the rotation drawn by site ``lead``, if any, and ``basis``.

    -> one matrix, (k, k) or (k, r).
    """
    rotation = torch.eye(len(unit)).to(unit)  # (k, k)
    if lead:
        rotation = view.memory[f"rotation/{lead}"]["q"]
    if basis is not None:
        rotation = rotation @ basis  # (k, r)
    return unit[:, None] * rotation
