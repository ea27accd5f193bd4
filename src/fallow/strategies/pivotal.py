"""Pivotal samples of all sites, spread by half leverage, for numbers to predict.

Rows have chances that follow their leverage by half, and neighbors compete for a place in the
sample: the pivotal method of Deville and Tillé (1998) along the leaves of a tree.  No row is drawn
twice, and a label weighs 1 / its chance, so that a weighted fit stands for the whole pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, TypedDict, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.contract import Contract
from fallow.core.types import Answer, SiteId
from fallow.core.view import Picks, View
from fallow.strategies.base import Budget, Memo, check_choices, orders
from fallow.strategies.parts import leverage
from fallow.strategies.parts.median_tree import Split, order_by_neighbors

RIDGE = 1e-6  # λ of leverage scores, for columns of unit variance
CLOSER = 30  # steps towards the factor; six are usual
TINY = 1e-12  # a chance so close to 0 or 1 is rounding
ROOM = 1 + 1e-6  # for rounding, where one site holds all that a bound allows
HUGE = 1e100  # a total of a column beyond it, whose square would not be finite
NEVER = {"site": ("capped", "draw", "left", "take"), "federation": ("select",)}


class Scale(TypedDict):
    """What makes sizes of scores: the total of the scores of all rows, and how many rows there are."""

    mass: float
    rows: int


class Round(NamedTuple):
    """What is decided after a row of meetings: which are taken, which one is not decided (-1: none)
    and its chance."""

    taken: list[bool]
    last: int
    left: float


@final
@dataclass(frozen=True)
class Pivotal:
    """Rows by half leverage, without replacement, of which neighbors compete; each label weighs as
    many rows as it stands for.

    For numbers to predict by a linear model on columns or on features of an encoder, solved for
    with weights: ``pivotal@training=server-solve:ridge=0.0001``.

    >>> import fallow as fl
    >>> pool = [[0.1 * k] for k in range(20)]
    >>> picks = fl.select({"a": fl.Site(pool), "b": fl.Site(pool)}, fl.Pivotal(), n=5)
    >>> len(picks["a"]) + len(picks["b"])
    10

    Notes
    -----
    1. h = leverage of a row among the rows of all sites, with an intercept and a ridge of 1e-6, by
       the total of products of columns; q = N h / 2 Σh + 1/2, which is 1 in the mean.
    2. π = min(1, c q), Σπ = the budget.  The server finds c by Newton's steps from totals of the
       rows that are certain (π = 1) and of q of the others.
    3. Each site puts its rows in an order of neighbors: they are split at the median of the
       direction in which they vary most, again and again, until 8 rows are left.  Along that order
       two rows with chances a and b in (0, 1) meet.  If a + b < 1 one has a + b from then on, the
       other 0; else one is taken and the other has a + b - 1.  So π is kept, and who has won near
       by makes it less likely for neighbors.
    4. What is left at a site is one undecided row.  These meet in an order, and by numbers, that
       the sites have drawn.

    *Who buys.*  With ``allot="federation"`` only the total counts, and a site buys by how much its
    rows tell; some then buy more than their budget, for callers that allow it.  With ``"site"`` each
    site spends its own budget: c is the site's, and no row is left.

    *Labels bought before* are outside the pool and weigh what they weighed; first labels weigh 1.
    So each budget is a selection of its own (``protocol=one_pass``) where nothing else is said.
    Rows that are not finite are never drawn; with ``"site"`` they come last.

    *The tree.*  A site of 30 labels splits some five times before every part has one, so it matters
    where.  ``split="column"`` takes the widest column, as k-d trees do; ``tree=False`` leaves the
    order to chance.  Both are there for comparison (studies/pivotal.md).
    """

    allot: Literal["site", "federation"] = "federation"
    tree: bool = True  # False: rows meet in a random order
    split: Split = "direction"  # what a part of the tree is split along

    contract: ClassVar[Contract] = Contract(
        title="Half leverage, pivotal sample",
        short="Pivotal",
        sum={
            "totals": "totals over sites of rows and of each column",
            "spread": "totals over sites of squares of each column",
            "gram": "totals over sites of products of columns",
            "mass": "totals over sites of leverage scores",
            "capped": "totals over sites of rows that are certain and of scores of the others",
            "left": "of each site, by a seat that it is given: the part of a label that is left over, "
            "and two random numbers",
        },
        keep={
            "score": "number of tensors kept",
            "draw": "number of tensors kept",
            "take": "number of picks",
            "select": "number of picks",
        },
        local_dp=False,  # totals of features leave without noise
        missing="stops: scores are those of the rows of all sites; a resumed run asks again",
        one_pass=True,
        often={"capped": CLOSER},
        draws=True,
        regression=True,
    )

    def __post_init__(self) -> None:
        check_choices(self)
        contract = replace(
            Pivotal.contract.without(*NEVER[self.allot]), budget_of=self.allot
        )
        object.__setattr__(self, "contract", contract)

    # -- server half ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        columns = self.find_columns(ask)
        basis = self.find_basis(ask, columns)
        ask.keep("score", mean=columns.mean, unit=columns.unit, basis=basis)
        k = len(columns.unit)
        mass = float(sum_of_all(ask, "mass", k * ROOM)["mass"])
        scale: Scale = {"mass": mass, "rows": columns.rows}
        notes: Memo = {"mass": mass}
        n = min(sum(budget.values()), columns.rows)
        if self.allot == "site":
            ask.keep("select", to=orders(budget), **scale)
        elif n > 0:
            notes["factor"] = self.take_anywhere(ask, n, scale)
        return {**memo, "notes": notes}

    def find_columns(self, ask: Ask) -> leverage.Columns:
        """How columns are centered and scaled, with one of ones behind them."""
        most: float | None = HUGE
        if ask.masking is not None:  # else 40 bits would be of a part of HUGE
            most = None
        return leverage.find_columns(ask, intercept=True, most=most)

    def find_basis(self, ask: Ask, columns: leverage.Columns) -> Tensor:
        """Coordinates in which the rows of all sites are orthonormal, but for the ridge.  (k, k)"""
        k = len(columns.unit)
        error = 0.0
        if ask.masking is not None:
            error = leverage.rounding(leverage.BOUND, len(ask.cohort), k)
        total = sum_of_all(
            ask, "gram", leverage.BOUND, mean=columns.mean, unit=columns.unit
        )
        gram = leverage.matrix(total["products"], k)
        return leverage.first_pass(gram, columns.rows, RIDGE, error)

    def take_anywhere(self, ask: Ask, n: int, scale: Scale) -> float:
        """Steps 2 to 4: ``n`` rows wherever they are.  Returns c."""
        rows = scale["rows"]

        def count_capped(factor: float) -> tuple[float, float]:
            total = sum_of_all(ask, "capped", rows * ROOM, factor=factor, **scale)
            return float(total["rows"].round()), float(total["mass"])

        factor = find_factor(n, rows, count_capped)

        seats: dict[SiteId, Answer] = {}
        for seat, site in enumerate(ask.cohort):
            seats[site] = {"seat": seat, "seats": len(ask.cohort)}
        ask.keep("draw", to=seats, factor=factor, **scale)
        total = sum_of_all(ask, "left", 1.0)
        order = total["places"].argsort()  # (sites,)
        met = meet(total["left"][order].tolist(), total["numbers"][order].tolist())
        is_taken = torch.tensor(met.taken)
        if met.last >= 0:  # all sites together have a whole number, but for rounding
            is_taken[met.last] = met.left > 0.5
        takes = torch.empty_like(is_taken).scatter(0, order, is_taken)
        decided: dict[SiteId, Answer] = {}
        for site, take in zip(ask.cohort, takes.tolist(), strict=True):
            decided[site] = {"last": take}
        ask.keep("take", to=decided)
        return factor

    # -- site half --------------------------------------------------------------------------

    def totals(self, view: View) -> Answer:
        x, _ = features(view)
        return {"rows": float(len(x)), "columns": leverage.totals(x)}

    def spread(self, view: View, mean: Tensor) -> Answer:
        squares, varies = leverage.spread(features(view)[0], mean)
        return {"squares": squares, "varies": varies}

    def gram(self, view: View, mean: Tensor, unit: Tensor) -> Answer:
        return {"products": leverage.products(features(view)[0], mean, unit.diag())}

    def score(self, view: View, mean: Tensor, unit: Tensor, basis: Tensor) -> Answer:
        """Leverage of each row, (m,), NaN for one that is not finite, and the order in which rows
        meet, (r,) positions of finite rows."""
        x, good = features(view)
        values = leverage.leverages(x, mean, unit[:, None] * basis)
        score = torch.full((len(good),), torch.nan, dtype=values.dtype)
        score[good] = values
        order = torch.randperm(len(x), generator=view.stream("order"))
        if self.tree:
            order = order_by_neighbors(x.flatten(1), unit[: len(mean)], self.split)
        return {"score": score, "order": good.nonzero().squeeze(1)[order]}

    def mass(self, view: View) -> Answer:
        return {"mass": view.memory["score"]["score"].nansum()}

    def capped(self, view: View, factor: float, mass: float, rows: int) -> Answer:
        certain, rest = count_capped(sizes(view, mass, rows), factor)
        return {"rows": certain, "mass": rest}

    def draw(
        self, view: View, factor: float, mass: float, rows: int, seat: int, seats: int
    ) -> Answer:
        """Step 3.  Each row's chance, (m,); the rows that are taken, (t,), the one that is not decided,
        (0,) or (1,), and what is left for it, by the seat of the site, (seats,)."""
        chance = (factor * sizes(view, mass, rows)).clamp(max=1.0)
        met, order = self.meet_neighbors(view, chance)
        is_last = torch.zeros(len(order), dtype=torch.bool)
        left = torch.zeros(seats, dtype=torch.float64)
        if met.last >= 0:
            is_last[met.last] = True
            left[seat] = met.left
        return {
            "chance": chance,
            "rows": order[torch.tensor(met.taken, dtype=torch.bool)],
            "last": order[is_last],
            "left": left,
            "seat": torch.tensor(seat),
        }

    def left(self, view: View) -> Answer:
        kept = view.memory["draw"]
        seat = int(kept["seat"])
        drawn = torch.rand(2, generator=view.stream("seats"), dtype=torch.float64)
        places = torch.zeros_like(kept["left"])
        numbers = torch.zeros_like(kept["left"])
        places[seat] = drawn[0]
        numbers[seat] = drawn[1]
        return {"left": kept["left"], "places": places, "numbers": numbers}

    def take(self, view: View, last: bool) -> Picks:
        kept = view.memory["draw"]
        rows = kept["rows"]
        if last:
            rows = torch.cat([rows, kept["last"]])
        chance = kept["chance"][rows]
        return Picks(rows, 1 / chance, chance)

    def select(self, view: View, n: int, mass: float, rows: int) -> Picks:
        """Steps 2 and 3 at one site, whose budget is whole."""
        size = sizes(view, mass, rows)
        finite = int((size > 0).sum())

        def capped(factor: float) -> tuple[float, float]:
            return count_capped(size, factor)

        factor = find_factor(min(n, finite), float(size.sum()), capped)
        chance = (factor * size).clamp(max=1.0)
        met, order = self.meet_neighbors(view, chance)
        taken = torch.tensor(met.taken, dtype=torch.bool)
        if met.last >= 0:  # 0 or 1 but for rounding
            taken[met.last] = met.left > 0.5
        damaged = (size == 0).nonzero().squeeze(1)
        picks = torch.cat([order[taken], damaged])[:n]
        chance = torch.where(size > 0, chance, 1.0)[picks]
        return Picks(picks, 1 / chance, chance)

    def meet_neighbors(self, view: View, chance: Tensor) -> tuple[Round, Tensor]:
        """What is decided of the rows in their order, and that order, (r,)."""
        order = view.memory["score"]["order"]
        numbers = torch.rand(
            len(order), generator=view.stream("meetings"), dtype=torch.float64
        )
        return meet(chance[order].tolist(), numbers.tolist()), order


def features(view: View) -> tuple[Tensor, Tensor]:
    """The rows of the pool that are finite, and which these are, (m,)."""
    x = view.rows()
    good = leverage.finite(x, may_drop=True)
    if not bool(good.all()):  # else no second copy of the rows is made
        x = x[good]
    return x, good


def sizes(view: View, mass: float, rows: int) -> Tensor:
    """Step 1: q of each row of the pool, (m,), half of it by leverage and half the same for all; 0 for
    a row that is not finite."""
    score = view.memory["score"]["score"]
    return (rows * score / (2 * mass) + 0.5).nan_to_num(0.0)


def count_capped(size: Tensor, factor: float) -> tuple[float, float]:
    """How many rows have ``factor`` q >= 1, and Σq of the others.  size: (m,)"""
    is_certain = factor * size >= 1
    return float(is_certain.sum()), float(size[~is_certain].sum())


def find_factor(
    n: int, total: float, count_capped: Callable[[float], tuple[float, float]]
) -> float:
    """The c with which Σ min(1, c q) is n, for q whose sum is ``total``.

    The sum is concave in c, so Newton's steps come from below, and the distance times the slope falls
    to a quarter or less in each: 30 steps are more than float64 can tell.  2 takes every row, because
    q is 1/2 or more.

    >>> q = torch.tensor([0.5, 0.5, 0.5, 2.5])
    >>> c = find_factor(2, 4.0, lambda factor: count_capped(q, factor))
    >>> (c * q).clamp(max=1.0)
    tensor([0.3333, 0.3333, 0.3333, 1.0000])
    """
    if total <= 0:
        return 0.0
    factor = n / total
    for _ in range(CLOSER):
        certain, rest = count_capped(factor)
        if rest <= 0 or certain >= n:
            return min(factor, 2.0)
        closer = (n - certain) / rest
        if closer <= factor * (1 + TINY):
            return min(factor, 2.0)
        factor = closer
    return min(factor, 2.0)


def meet(chances: Sequence[float], numbers: Sequence[float]) -> Round:
    """The pivotal method: each chance in turn meets the one that is not decided yet.

    numbers: one in [0, 1) for each, which decides its meeting.

    >>> meet([0.5, 0.25, 0.75, 0.5], [0.0, 0.2, 0.9, 0.0])
    Round(taken=[False, True, False, True], last=-1, left=0.0)
    """
    taken = [False] * len(chances)
    last = -1
    a = 0.0
    for at, b in enumerate(chances):
        if b >= 1 - TINY:
            taken[at] = True
            continue
        if b <= TINY:
            continue
        if last < 0:
            last = at
            a = b
            continue
        both = a + b
        if both < 1:  # one of them is out
            if numbers[at] * both < b:
                last = at
            a = both
        else:  # one of them is in
            if numbers[at] * (2 - both) < 1 - a:
                taken[at] = True
            else:
                taken[last] = True
                last = at
            a = both - 1
        if a >= 1 - TINY:
            taken[last] = True
        if not TINY < a < 1 - TINY:
            last = -1
    if last < 0:
        a = 0.0
    return Round(taken, last, a)
