"""Pivotal sampling over all sites, spread by half leverage, for regression.

Selection probabilities follow half the leverage of an example, and neighbors compete for a place in
the sample: the pivotal method of Deville and Tillé (1998) along the leaves of a tree.  No example
is drawn twice.  The weight of a label is 1 / its selection probability, so a weighted fit
represents the whole pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple, TypedDict, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.contract import Contract
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.types import SiteId, Values
from fallow.core.values import (
    Count,
    Flag,
    LabelCount,
    NonNegative,
    Real,
    Share,
    Triangle,
    Whole,
)
from fallow.core.view import SelectedExamples, View
from fallow.strategies.base import (
    Budget,
    Memo,
    check_fields,
    label_counts,
    stores,
)
from fallow.strategies.parts import leverage

Split = Literal["direction", "column"]
"""Direction of splits: the direction of the largest variance, or the widest column."""

LEAF = 8  # maximum number of examples of a leaf
SAMPLE = 512  # number of examples that determine a direction
STEPS = 8  # power iterations; the direction need not be exact
WIDE = 64  # columns; beyond it, this number of principal directions is used
SKETCH = 4096  # number of examples that determine these
STEADY = 2.0**30  # positions closer than 1 / STEADY of the range are equal
SHORTEST = torch.finfo(torch.float64).tiny
AT_ONCE = 2**22  # numbers per block of nodes

Places = Callable[[Tensor, Tensor], Tensor]
"""Examples of nodes, (parts, most, d), and a mask of them, (parts, most) -> their positions."""


def order_by_neighbors(x: Tensor, unit: Tensor, split: Split = "direction") -> Tensor:
    """Return examples along the leaves of a tree with median splits: (n,) positions.

    x: (n, d).  unit: (d,) factors of the columns for comparison.  Equal examples keep their order.

    >>> order_by_neighbors(torch.tensor([[5.0], [0.0], [6.0]]), torch.ones(1))
    tensor([0, 1, 2])
    >>> order_by_neighbors(torch.arange(10.0).flip(0)[:, None], torch.ones(1))
    tensor([9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    """
    if split == "direction" and x.shape[1] > WIDE:
        x = narrow(x, unit)
        unit = torch.ones(WIDE)
    find_places = {"direction": places_along_direction, "column": places_along_column}
    # (parts, most): rows, and -1 behind a part with one less
    parts = torch.arange(len(x))[None]
    while parts.shape[1] > LEAF:
        places = places_of(x, parts, partial(find_places[split], unit=unit))
        parts = parts.gather(1, places.argsort(dim=1, stable=True))
        parts = halve(parts)
    return parts[parts >= 0]


def narrow(x: Tensor, unit: Tensor) -> Tensor:
    """Project examples on the first principal directions of at most ``SKETCH``, (n, WIDE)."""
    step = -(-len(x) // SKETCH)
    near = x[::step] * unit.double()
    near -= near.mean(dim=0)
    directions = torch.linalg.eigh(near.T @ near).eigenvectors[:, -WIDE:]
    largest = directions.abs().argmax(dim=0)  # which decides where they point to
    directions = directions * directions.gather(0, largest[None]).sign()
    narrowed: Tensor = x @ (unit[:, None] * directions).to(x.dtype)
    return narrowed


def places_of(x: Tensor, parts: Tensor, find: Places) -> Tensor:
    """Return the positions of the examples within each node, (parts, most).

    Padding comes last, and the examples of a leaf have equal positions.
    """
    is_row = parts >= 0
    at_once = max(1, AT_ONCE // (parts.shape[1] * x.shape[1]))
    result = []
    chunks = zip(torch.split(parts, at_once), torch.split(is_row, at_once), strict=True)
    for some, are_rows in chunks:
        result.append(find(x[some.clamp(min=0)], are_rows))
    places = torch.cat(result).double()
    places[is_row.sum(dim=1) <= LEAF] = 0.0
    return places.masked_fill(~is_row, torch.inf)


def halve(parts: Tensor) -> Tensor:
    """Divide each node in two, the lower half of its examples first.

    >>> halve(torch.tensor([[4, 2, 0, 1, 3], [5, 6, 7, 8, -1]])).tolist()
    [[4, 2, -1], [0, 1, 3], [5, 6, -1], [7, 8, -1]]
    """
    n_nodes, width = parts.shape
    rows = (parts >= 0).sum(dim=1, keepdim=True)
    lower = rows // 2
    position = torch.arange(-(-width // 2))[None]
    first = parts[:, : position.shape[1]].masked_fill(position >= lower, -1)
    behind = (lower + position).clamp(max=width - 1)
    second = parts.gather(1, behind).masked_fill(lower + position >= rows, -1)
    return torch.stack([first, second], dim=1).reshape(2 * n_nodes, -1)


def places_along_column(x: Tensor, is_row: Tensor, *, unit: Tensor) -> Tensor:
    """Return the widest column of each node, (parts, most).  x: (parts, most, d)"""
    low = x.masked_fill(~is_row[..., None], torch.inf).amin(dim=1)
    high = x.masked_fill(~is_row[..., None], -torch.inf).amax(dim=1)
    widest = ((high - low) * unit).argmax(dim=1)
    return x[torch.arange(len(x)), :, widest]


def places_along_direction(x: Tensor, is_row: Tensor, *, unit: Tensor) -> Tensor:
    """Return positions along the direction of the largest variance of each node, (parts, most).

    The direction is the first principal one of at most ``SAMPLE`` examples, by power iterations
    from their widest column, oriented along it.  Positions are rounded, so rounding errors do not
    change the order.  x: (parts, most, d)

    >>> x = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [1.5, 2.0]]])
    >>> is_row = torch.ones(1, 3, dtype=torch.bool)
    >>> places_along_direction(x, is_row, unit=torch.ones(2)) / STEADY
    tensor([[0.0000, 1.0000, 0.5000]], dtype=torch.float64)
    """
    step = -(-x.shape[1] // SAMPLE)
    near = x[:, ::step] * unit.double()
    counts = is_row[:, ::step, None].double()
    near -= (counts.mT @ near) / counts.sum(dim=1, keepdim=True)
    if not bool(is_row.all()):
        near *= counts
    direction = first_direction(near)

    if step == 1:
        places = (near @ direction).squeeze(2)
    else:
        places = (x @ (direction * unit[:, None]).to(x.dtype)).squeeze(2).double()
    lowest = places.masked_fill(~is_row, torch.inf).amin(dim=1, keepdim=True)
    highest = places.masked_fill(~is_row, -torch.inf).amax(dim=1, keepdim=True)
    width = (highest - lowest).clamp(min=SHORTEST)
    return ((places - lowest) / width * STEADY).round()


def first_direction(near: Tensor) -> Tensor:
    """Return the approximate first principal direction of centered examples, (parts, d, 1).

    It is zero for examples that are all 0.  near: (parts, rows, d)

    >>> first_direction(torch.tensor([[[3.0, 4.0], [-3.0, -4.0]]])).squeeze().tolist()
    [0.6..., 0.8...]
    """
    widest = near.square().sum(dim=1).argmax(dim=1)
    along = near.take_along_dim(widest[:, None, None], dim=2)  # (parts, rows, 1)
    if near.shape[1] <= near.shape[2]:  # products of rows are the smaller matrix
        products = near @ near.mT
        for _ in range(STEPS):
            along = scale(products @ along)
        return scale(near.mT @ along)
    products = near.mT @ near
    direction = near.mT @ along
    for _ in range(STEPS):
        direction = scale(products @ direction)
    return direction


def scale(vectors: Tensor) -> Tensor:
    """Scale vectors to length 1; zeros are unchanged.  (parts, n, 1)"""
    length: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / length.clamp(min=SHORTEST)


RIDGE = 1e-6  # λ of leverage scores, for columns of unit variance
CLOSER = 30  # maximum number of Newton steps; six are usual
TINY = 1e-12  # probabilities this close to 0 or 1 are rounded
ROOM = 1 + 1e-6  # margin for rounding, if one site reaches the bound
HUGE = 1e100  # bound on the sum of a column, so that its square is finite


class ScoreScale(TypedDict):
    """Normalization of the scores: sum of the scores of all examples and their number."""

    mass: float
    rows: int


class Round(NamedTuple):
    """Outcome of a sequence of duels.

    Contains the selected examples, the undecided one (-1: none) and its probability.
    """

    taken: list[bool]
    last: int
    left: float


SCALE = {"mass": NonNegative(), "rows": Whole()}
"""Arguments with a `ScoreScale`."""


def is_of_federation(strategy: Pivotal) -> bool:
    """Return whether the label budget applies to all sites together."""
    return strategy.allot == "federation"


@explain_constructor
@final
@dataclass(frozen=True)
class Pivotal:
    """Draw spatially balanced examples without replacement, weighted by half leverage.

    Neighbors compete with each other, and each label has the weight 1 / its selection probability.
    The strategy is for regression with a linear model on columns or on features of an encoder, in
    closed form with weights: ``pivotal@training=server-solve:ridge=0.0001``.

    Parameters
    ----------
    allot : {"federation", "site"}
        "federation": the label budget applies to all sites together.  A site labels in proportion
        to the information in its examples, and some label more than their own budget, if the caller
        allows it.  "site": each site spends its own label budget, c is computed by site, and no
        example is left undecided.
    tree : bool
        Order examples along a tree, so that neighbors compete.  False: random order.
    split : {"direction", "column"}
        Direction along which a node of the tree is split: the direction of the largest variance, or
        the widest column, as in k-d trees.

    Notes
    -----
    1. h is the leverage of an example among the examples of all sites, with an intercept and a
       ridge of 1e-6, computed from the aggregate of products of columns.  q = N h / 2 Σh + 1/2,
       with mean 1.
    2. π = min(1, c q), with Σπ = the label budget.  The coordinator computes c with Newton steps
       from aggregates of the examples that are certain (π = 1) and of q of the others.
    3. Each site orders its examples so that neighbors are close: nodes are split at the median
       along the direction of the largest variance until 8 examples are left.  In that order, two
       examples with probabilities a and b in (0, 1) compete.  If a + b < 1, the winner has
       probability a + b and the loser 0.  Otherwise one is selected, and the other has probability
       a + b - 1.  This preserves π, and makes the selection of two neighbors less likely.
    4. At most one undecided example is left at each site.  These compete in an order, and with
       random numbers, that the sites have drawn.

    *Earlier labels* are not in the pool and keep their weights; initial labels have weight 1.  Each
    label budget is a separate selection (``protocol=one_pass``) unless configured otherwise.

    *Tree.*  With 30 labels per site, five levels of splits separate the labels, so the direction of
    the splits matters.  ``split="column"`` and ``tree=False`` are for comparison
    (studies/pivotal.md).

    Examples
    --------
    >>> import fallow as fl
    >>> pool = [[0.1 * k] for k in range(20)]
    >>> selected = fl.select({"a": fl.Site(pool), "b": fl.Site(pool)}, fl.Pivotal(), n=5)
    >>> len(selected["a"]) + len(selected["b"])
    10
    """

    allot: Literal["site", "federation"] = "federation"
    tree: bool = True  # False: examples compete in random order
    split: Split = "direction"  # direction along which a node is split

    contract: ClassVar[Contract] = Contract(
        title="Half leverage, pivotal sample",
        short="Pivotal",
        local_dp=False,  # aggregates of features are sent without noise
        missing="stops: scores are those of the rows of all sites; a resumed run asks again",
        one_pass=True,
        draws=True,
        regression=True,
        untrained="features",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        refuse_unused(self, "split", switch="tree", used_with=(True,))
        contract = Pivotal.contract.narrowed(self, budget_of=self.allot)
        object.__setattr__(self, "contract", contract)

    # -- server side ------------------------------------------------------------------------

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        columns = self.find_columns(ask)
        basis = self.find_basis(ask, columns)
        ask.keep(self.score, mean=columns.mean, unit=columns.unit, basis=basis)
        k = len(columns.unit)
        mass = float(sum_of_all(ask, self.mass, k * ROOM)["mass"])
        scale: ScoreScale = {"mass": mass, "rows": columns.rows}
        notes: Memo = {"mass": mass}
        n = min(sum(budget.values()), columns.rows)
        if self.allot == "site":
            ask.keep(self.select, to=label_counts(budget), **scale)
        elif n > 0:
            notes["factor"] = self.take_anywhere(ask, n, scale)
        return {**memo, "notes": notes}

    def find_columns(self, ask: Ask) -> leverage.Columns:
        """Return center and scale of the columns, followed by a column of ones."""
        limit: float | None = HUGE
        if ask.masking is not None:  # otherwise the 40 bits would cover a part of HUGE only
            limit = None
        return leverage.find_columns(
            ask, self.totals, self.spread, intercept=True, limit=limit
        )

    def find_basis(self, ask: Ask, columns: leverage.Columns) -> Tensor:
        """Return a basis in which the examples of all sites are orthonormal.  (k, k)

        The ridge is taken into account.
        """
        k = len(columns.unit)
        error = 0.0
        if ask.masking is not None:
            error = leverage.rounding(leverage.BOUND, len(ask.cohort), k)
        total = sum_of_all(
            ask, self.gram, leverage.BOUND, mean=columns.mean, unit=columns.unit
        )
        gram = leverage.matrix(total["products"], k)
        return leverage.first_pass(gram, columns.rows, RIDGE, error)

    def take_anywhere(self, ask: Ask, n: int, scale: ScoreScale) -> float:
        """Select ``n`` examples at any sites (steps 2 to 4).  Returns c."""
        rows = scale["rows"]

        def count_capped(factor: float) -> tuple[float, float]:
            total = sum_of_all(ask, self.capped, rows * ROOM, factor=factor, **scale)
            return float(total["rows"].round()), float(total["mass"])

        factor = find_factor(n, rows, count_capped)

        seats: dict[SiteId, Values] = {}
        for seat, site in enumerate(ask.cohort):
            seats[site] = {"seat": seat, "seats": len(ask.cohort)}
        ask.keep(self.draw, to=seats, factor=factor, **scale)
        total = sum_of_all(ask, self.left, 1.0)
        order = total["places"].argsort()  # (sites,)
        met = meet(total["left"][order].tolist(), total["numbers"][order].tolist())
        is_taken = torch.tensor(met.taken)
        if met.last >= 0:  # the sum over sites is an integer, up to rounding
            is_taken[met.last] = met.left > 0.5
        takes = torch.empty_like(is_taken).scatter(0, order, is_taken)
        decided: dict[SiteId, Values] = {}
        for site, take in zip(ask.cohort, takes.tolist(), strict=True):
            decided[site] = {"last": take}
        ask.keep(self.take, to=decided)
        return factor

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

    @client.sum(
        "aggregates of products of columns",
        returns={"products": Real(Triangle("columns"))},
        takes={"mean": Real("inputs"), "unit": NonNegative("columns")},
        over="pool",
    )
    def gram(self, view: View, mean: Tensor, unit: Tensor) -> Values:
        return {"products": leverage.products(view.rows(), mean, unit.diag())}

    @stores(
        mean=Real("inputs"),
        unit=NonNegative("columns"),
        basis=Real(("columns", "directions")),
    )
    def score(self, view: View, mean: Tensor, unit: Tensor, basis: Tensor) -> Values:
        """Return the leverage of each example, (m,), and the order in which they compete, (m,)."""
        x = view.rows()
        order = torch.randperm(len(x), generator=view.stream("order"))
        if self.tree:
            order = order_by_neighbors(x.flatten(1), unit[: len(mean)], self.split)
        score = leverage.leverages(x, mean, unit[:, None] * basis)
        return {"score": score, "order": order}

    @client.sum("aggregates of leverage scores", returns={"mass": NonNegative(of="rows")})
    def mass(self, view: View) -> Values:
        return {"mass": view.memory["score"]["score"].sum()}

    @client.sum(
        "aggregates of numbers of certain examples and of scores of the others",
        returns={"rows": Count(of="rows"), "mass": NonNegative(of="study")},
        takes={"factor": NonNegative()} | SCALE,
        when=is_of_federation,
        times=CLOSER,
    )
    def capped(self, view: View, factor: float, mass: float, rows: int) -> Values:
        certain, rest = count_capped(sizes(view, mass, rows), factor)
        return {"rows": certain, "mass": rest}

    @client.keep(
        "number of stored tensors",
        takes={"factor": NonNegative()}
        | SCALE
        | {"seat": Whole(upto=("sites", -1)), "seats": Whole(upto=("sites",))},
        when=is_of_federation,
    )
    def draw(
        self, view: View, factor: float, mass: float, rows: int, seat: int, seats: int
    ) -> Values:
        """Run step 3 at a site.

        Returns the probability of each example, (m,), the selected ones, (t,), the undecided one,
        (0,) or (1,), and its remaining probability, by the index of the site, (seats,).
        """
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

    @client.sum(
        "of each site, by a seat that it is given: the part of a label that is left over, and two "
        "random numbers",
        returns={
            "left": Share("seats"),
            "places": Share("seats"),
            "numbers": Share("seats"),
        },
        when=is_of_federation,
    )
    def left(self, view: View) -> Values:
        kept = view.memory["draw"]
        seat = int(kept["seat"])
        drawn = torch.rand(2, generator=view.stream("seats"), dtype=torch.float64)
        places = torch.zeros_like(kept["left"])
        numbers = torch.zeros_like(kept["left"])
        places[seat] = drawn[0]
        numbers[seat] = drawn[1]
        return {"left": kept["left"], "places": places, "numbers": numbers}

    @client.keep(
        "number of selected examples", takes={"last": Flag()}, when=is_of_federation
    )
    def take(self, view: View, last: bool) -> SelectedExamples:
        kept = view.memory["draw"]
        rows = kept["rows"]
        if last:
            rows = torch.cat([rows, kept["last"]])
        chance = kept["chance"][rows]
        return SelectedExamples(rows, 1 / chance, chance)

    @client.keep(
        "number of selected examples",
        takes={"n": LabelCount()} | SCALE,
        when=lambda self: self.allot == "site",
    )
    def select(self, view: View, n: int, mass: float, rows: int) -> SelectedExamples:
        """Run steps 2 and 3 at one site, with its whole label budget."""
        size = sizes(view, mass, rows)

        def capped(factor: float) -> tuple[float, float]:
            return count_capped(size, factor)

        factor = find_factor(n, float(size.sum()), capped)
        chance = (factor * size).clamp(max=1.0)
        met, order = self.meet_neighbors(view, chance)
        taken = torch.tensor(met.taken, dtype=torch.bool)
        if met.last >= 0:  # 0 or 1, up to rounding
            taken[met.last] = met.left > 0.5
        selected = order[taken]
        chance = chance[selected]
        return SelectedExamples(selected, 1 / chance, chance)

    def meet_neighbors(self, view: View, chance: Tensor) -> tuple[Round, Tensor]:
        """Return the outcome of the duels between neighbors, and their order, (m,)."""
        order = view.memory["score"]["order"]
        numbers = torch.rand(
            len(order), generator=view.stream("meetings"), dtype=torch.float64
        )
        return meet(chance[order].tolist(), numbers.tolist()), order


def sizes(view: View, mass: float, rows: int) -> Tensor:
    """Return q of each example of the pool, (m,): half by leverage, half uniform (step 1)."""
    return rows * view.memory["score"]["score"] / (2 * mass) + 0.5


def count_capped(size: Tensor, factor: float) -> tuple[float, float]:
    """Count examples with ``factor`` q >= 1, and sum q of the others.  size: (m,)"""
    is_certain = factor * size >= 1
    return float(is_certain.sum()), float(size[~is_certain].sum())


def find_factor(
    n: int, total: float, count_capped: Callable[[float], tuple[float, float]]
) -> float:
    """Return c such that Σ min(1, c q) = n, for q with the sum ``total``.

    The sum is concave in c, so Newton steps approach from below. The product of distance and
    slope decreases to a quarter or less in each, and 30 steps reach the precision of float64.  c = 2
    selects every example, because q is at least 1/2.

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
    """Run the pivotal method: each probability in turn competes with the undecided one.

    numbers: one in [0, 1) for each, which decides its duel.

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
        if both < 1:  # one of them is rejected
            if numbers[at] * both < b:
                last = at
            a = both
        else:  # one of them is selected
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
