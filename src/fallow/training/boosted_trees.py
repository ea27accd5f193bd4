"""Gradient boosting of decision trees on histograms of all sites.

Sites agree on bins of each column by histograms of all examples.  For each level of a tree, they
send sums of gradients and hessians of labeled examples by node, column and bin.  Sums over sites are
those of pooled examples, so the trees are those of pooled examples too.

Related work: XGBoost (Chen and Guestrin, KDD 2016), whose splits and leaves these are; LightGBM (Ke
et al., NeurIPS 2017), histograms; SecureBoost (Cheng et al., 2021), columns at different sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Histograms, moments
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, FitDeclaration
from fallow.core.limits import (
    Limits,
    NonNegativeFinite,
    PositiveFinite,
    PositiveInt,
    check_limits,
)
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import (
    SUM_OF_WEIGHTS,
    Count,
    Kind,
    NonNegative,
    Real,
    Whole,
)
from fallow.core.view import View
from fallow.models.trees import BINARY, MOST_DEPTH, TreeValues, count_sums

INTERVALS = 1024
"""Intervals of each column whose examples are counted, from which bins are joined."""
NEAREST = (
    1e-3  # distance from the center, in units of the column, up to which they are even
)
FARTHEST = 1e6  # distance in the same units at which the last interval begins
TIE = 1e-7
"""Relative difference below which two gains are equal, because sums over sites are rounded."""
SMALLEST_LEAF = 1e-7
"""Value of a leaf up to which a stage without a split changes no prediction."""
RAREST = 1e-12
"""Least share of a class in the first prediction: a class without a label is never predicted."""
MOST_NUMBERS = 2**22
"""Largest number of sums in one message, 32 MB."""
TINY = 1e-300
PARTS_SHOW = (
    "the coordinator sees the sums of gradients of each site by column and bin: those of a single "
    "example reveal it up to the width of bins, with its label"
)
MISSING = "stops: all exchanges are over the same examples; a resumed run asks again"
DEPTH = Limits(ge=1, le=MOST_DEPTH)
BINS = Limits(ge=2, le=256)


class Splits(NamedTuple):
    """Best splits of the nodes of one level, by tree and node.

    column, cut: (trees, nodes) int64; examples with a bin above ``cut`` go to the second child.
    totals: sums of gradients and of hessians of the children, (2, trees, 2 nodes).
    """

    column: Tensor
    cut: Tensor
    totals: Tensor


@explain_constructor
@final
@dataclass(frozen=True)
class BoostedTrees:
    """Boost decision trees on histograms of all sites, for tables.

    The model equals that of pooled examples with the same bins, up to rounding.  Each stage adds a
    tree, or one for each of more than two classes, by second-order gains.  Losses are the
    cross-entropy and, for regression, the squared error.

    Parameters
    ----------
    stages : int
        Number of stages.
    depth : int
        Number of decisions from the root of a tree to a leaf.
    shrinkage : float
        Factor of the values of leaves, also called the learning rate.
    penalty : float
        Ridge penalty λ on the values of leaves.
    least : float
        Smallest sum of hessians in a leaf.  An example has 1 in regression, and p (1 - p) at most
        1/4 in classification.
    bins : int
        Largest number of bins of a column.
    weighted : bool
        Apply the weights that the query strategy assigns to examples.
    shown : {"totals", "parts"}
        Information that the coordinator of a federation may see: aggregates only, which requires
        secure aggregation, or the contribution of each site.

    Raises
    ------
    ValueError
        For a value outside of its range.

    Notes
    -----
    *Bins.*  Sums over all examples, labeled or not, give the mean and variance of each column, and
    twice the numbers of examples in 1,024 intervals, first around the mean and then around the
    median.  Bins are joined intervals with about equally many examples.  Intervals are about 4 % of
    their distance from the median: values far from it that differ by less share a bin, such as those
    near 1,000 in a column with mostly zeros.

    *Few labels.*  No tree splits without enough labels for two leaves.  With the default ``least``,
    two classes of equal size need at least eight labels.

    *Stages without a split.*  A stage whose trees cannot split adds a constant, as in scikit-learn.
    Gradients change with it, so a later stage may split again.  Training ends early only after a
    stage without a split whose constants are 0, because all later stages would equal it.

    *Ties.*  Among splits with equal gains, the first column is used, and there the middle of the
    first run of equal cuts.

    *Empty cells* are imputed before training, and columns of indicators mark them.

    *Disclosure.*  A stage sends 2 (2^depth - 1) d B sums for each tree with d columns and B bins in
    ``depth`` exchanges.  The bins of most labeled examples can be computed from them
    (`fallow.measurements.tree_attacks`).  Sites receive each level of each tree.

    Examples
    --------
    >>> import fallow as fl
    >>> training = fl.BoostedTrees(stages=5)
    >>> run = fl.run("digits", training=training, sites=2, cycles=0, initial=0.2)
    >>> bool(run.records["accuracy"].iloc[-1] > 0.6)
    True
    """

    stages: PositiveInt = 100
    depth: Annotated[int, DEPTH] = 3
    shrinkage: PositiveFinite = 0.1
    penalty: NonNegativeFinite = 1.0  # λ
    least: PositiveFinite = 1.0
    bins: Annotated[int, BINS] = 64  # B
    weighted: bool = True
    shown: Literal["totals", "parts"] = "totals"
    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )

    contract: ClassVar[Contract] = Contract(
        title="Boosted trees on histograms of all sites",
        paper="XGBoost: A Scalable Tree Boosting System",
        year=2016,
        authors="Chen, Tianqi and Guestrin, Carlos",
        short="boosted trees",
        regression=True,
        local_dp=False,  # sums about labeled examples are sent without noise
        missing=MISSING,
        model="trees",
        settings={"model": "trees", "rounds": 1, "score_rounds": 1},
        model_fields=("stages", "depth"),
        fit=FitDeclaration({"local": STORED}),
    )

    def __post_init__(self) -> None:
        check_limits(self)

    @property
    def nodes(self) -> int:
        """Number of decisions of a tree."""
        return (1 << self.depth) - 1

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        labels = sum_of_all(ask, self.labels)
        if float(labels["weight"]) > 0:
            edges = self.agree_on_bins(ask)
            w = self.boost(ask, edges, labels)
            state = {**state, "w": w.to(state["w"].dtype)}
        ask.fit(None, "local", None, w=state["w"], stats=state["stats"])
        return state

    def agree_on_bins(self, ask: Ask) -> Tensor:
        """Return the upper ends of the bins of each column but the last, (d, B - 1)."""
        total = sum_of_all(ask, self.moments)
        center, unit = choose_units(total["columns"], total["squares"], total["rows"])
        counts = sum_of_all(ask, self.intervals, None, center=center, unit=unit)["counts"]
        center, unit = find_quartiles(counts.round(), center, unit)
        counts = sum_of_all(ask, self.intervals, None, center=center, unit=unit)["counts"]
        return join_intervals(counts.round(), center, unit, self.bins)

    def boost(self, ask: Ask, edges: Tensor, labels: Mapping[str, Tensor]) -> Tensor:
        """Return the model after all stages as a flat vector."""
        baseline = first_sums(labels)  # (trees,)
        model = TreeValues.zeros(self.stages, len(baseline), self.depth)
        ask.keep(self.start, None, edges=edges, baseline=baseline)
        for stage in range(self.stages):
            column, cut, leaf = self.grow(ask, stage, len(baseline))
            model.column[stage] = column.double()
            model.threshold[stage] = edges[column, cut.clamp_max(self.bins - 2)]
            model.leaf[stage] = leaf
            is_split = bool((cut < self.bins - 1).any())
            if not is_split and float(leaf.abs().max()) <= SMALLEST_LEAF:
                break  # nothing changes, so no later stage splits either
            ask.keep(self.advance, None, stage=stage, column=column, cut=cut, leaf=leaf)
        return model.flatten(baseline, max(len(labels["counts"]), 1))

    def check_size(self, features: int, outputs: int) -> None:
        trees = count_sums(outputs)
        numbers = 2 * trees * 2 ** (self.depth - 1) * features * self.bins
        if numbers > MOST_NUMBERS:
            raise ValueError(
                f"the histograms of {trees} trees of depth {self.depth} with {features} columns "
                f"and {self.bins} bins have {numbers:,} numbers, and a message has at most "
                f"{MOST_NUMBERS:,}; lower depth or bins, or use fewer columns"
            )

    def grow(self, ask: Ask, stage: int, trees: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return columns and cuts (trees, nodes), and leaves (trees, nodes + 1), of new trees."""
        column = torch.zeros(trees, self.nodes, dtype=torch.int64)
        cut = torch.full_like(column, self.bins - 1)  # none
        totals = torch.zeros(2, trees, 1, dtype=torch.float64)
        for level in range(self.depth):
            total = sum_of_all(
                ask,
                self.histograms,
                None,
                stage=stage,
                level=level,
                column=column,
                cut=cut,
            )
            # (2, trees, nodes of the level, d, B)
            sums = torch.stack([total["gradients"], total["hessians"]])
            if level == 0:
                totals = sums[:, :, :, 0].sum(-1)
            splits = choose_splits(sums, totals, self.penalty, self.least)
            if not bool((splits.cut < self.bins - 1).any()):
                break
            at = slice(2**level - 1, 2 ** (level + 1) - 1)
            column[:, at] = splits.column
            cut[:, at] = splits.cut
            totals = splits.totals
        leaf = -self.shrinkage * totals[0] / (totals[1] + self.penalty).clamp_min(TINY)
        return column, cut, leaf.repeat_interleave((self.nodes + 1) // leaf.shape[1], 1)

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of labels of each class, or of labeled targets",
        returns={
            "weight": SUM_OF_WEIGHTS,
            "counts": NonNegative("classes", of="labels", times=10**9),
            "targets": Real(is_wide=True),
        },
        weighted_by="labels",
    )
    def labels(self, view: View) -> Values:
        s = self.row_weights(view)
        targets = torch.zeros((), dtype=torch.float64)
        counts = torch.zeros(0, dtype=torch.float64)
        if view.classes:
            counts = torch.bincount(view.labels, weights=s, minlength=view.classes)
        else:
            targets = s @ view.labels.double()
        return {"weight": s.sum(), "counts": counts, "targets": targets}

    @client.sum(
        "aggregates of numbers of examples, of each column and of its squares",
        returns=moments("columns", "squares", "inputs"),
        weighted_by="rows",
        over="all",
    )
    def moments(self, view: View) -> Values:
        n = 0
        columns = []
        squares = []
        for rows in view.blocks("all"):
            x = rows.flatten(1).double()
            n += len(x)
            columns.append(x.sum(0))
            squares.append(x.square().sum(0))
        return {
            "rows": float(n),
            "columns": torch.stack(columns).sum(0),
            "squares": torch.stack(squares).sum(0),
        }

    @client.sum(
        "aggregates of numbers of examples in intervals of each column",
        returns={"counts": Count(("inputs", INTERVALS), of="rows")},
        takes={"center": Real("inputs"), "unit": NonNegative("inputs")},
        times=2,
        over="all",
    )
    def intervals(self, view: View, center: Tensor, unit: Tensor) -> Values:
        counts = torch.zeros(len(center) * INTERVALS, dtype=torch.float64)
        first = INTERVALS * torch.arange(len(center))
        for rows in view.blocks("all"):
            away = (rows.flatten(1).double() - center) / unit
            at = torch.bucketize(away, list_knots())
            counts += (at + first).flatten().bincount(minlength=len(counts))
        return {"counts": counts.view(len(center), INTERVALS)}

    @client.keep(
        "nothing",
        takes={"edges": Real(("inputs", "cuts")), "baseline": Real("trees")},
    )
    def start(self, view: View, edges: Tensor, baseline: Tensor) -> Values:
        """Store bins of labeled examples, (n, d), their ends, and first predictions, (n, trees)."""
        x = view.rows("labeled").flatten(1)
        bins = assign_bins(x.double(), edges)
        return {"bins": bins, "edges": edges, "scores": baseline.repeat(len(x), 1)}

    @client.sum(
        "aggregates of gradients and hessians of labeled examples by node, column and bin",
        returns=lambda self: Histograms(self.bins),
        takes=lambda self: {
            "stage": Whole(upto=(self.stages - 1,)),
            "level": Whole(upto=(self.depth - 1,)),
            **self.tree_kinds,
        },
        times=lambda self: self.stages * self.depth,
        weighted_by="labels",
        reveals_parts=PARTS_SHOW,
    )
    def histograms(
        self, view: View, stage: int, level: int, column: Tensor, cut: Tensor
    ) -> Values:
        """Return sums (trees, nodes, d, B) for the nodes of one level of growing trees."""
        bins = view.memory["start"]["bins"].long()
        scores = self.scores(view, stage)
        g, h = differentiate(scores, view.labels, view.classes)
        s = self.row_weights(view)[:, None]
        node = find_nodes(bins, column, cut, level)
        return {
            "gradients": sum_by_bin(bins, node, s * g, 2**level, self.bins),
            "hessians": sum_by_bin(bins, node, s * h, 2**level, self.bins),
        }

    @client.keep(
        "nothing",
        takes=lambda self: {
            "stage": Whole(upto=(self.stages - 1,)),
            **self.tree_kinds,
            "leaf": Real(("trees", self.nodes + 1)),
        },
        times=lambda self: self.stages,
    )
    def advance(
        self, view: View, stage: int, column: Tensor, cut: Tensor, leaf: Tensor
    ) -> Values:
        """Add the trees of a stage to the predictions for labeled examples."""
        node = find_nodes(view.memory["start"]["bins"].long(), column, cut, self.depth)
        return {"scores": self.scores(view, stage) + leaf.gather(1, node.T).T}

    @property
    def tree_kinds(self) -> dict[str, Kind]:
        """Arguments with the decisions of trees: their columns and the last bins below."""
        return {
            "column": Count(("trees", self.nodes)),
            "cut": Count(("trees", self.nodes), high=self.bins - 1),
        }

    def scores(self, view: View, stage: int) -> Tensor:
        """Return the predictions for labeled examples before a stage, (n, trees)."""
        last = "advance" if stage else "start"
        return view.memory[last]["scores"]

    def row_weights(self, view: View) -> Tensor:
        """Return the weight of each labeled example, (n,)."""
        if self.weighted:
            return view.weights.double()
        return torch.ones(len(view.labels), dtype=torch.float64)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return state


# -- bins -------------------------------------------------------------------------------------------


def list_knots() -> Tensor:
    """Return the ends of intervals in units of a column, (INTERVALS - 1,), denser near 0."""
    reach = math.asinh(FARTHEST / NEAREST)
    return (
        NEAREST * torch.linspace(-reach, reach, INTERVALS - 1, dtype=torch.float64).sinh()
    )


def choose_units(columns: Tensor, squares: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return a number near the mean and one near the standard deviation of each column, (d,).

    Both are multiples of powers of two, so that rounding of sums does not change them.

    >>> total = torch.tensor([[30.0], [106.0]]).double()
    >>> choose_units(total[0], total[1], torch.tensor(10.0))
    (tensor([3.], dtype=torch.float64), tensor([2.], dtype=torch.float64))
    """
    mean = columns / rows
    variance = squares / rows - mean.square()
    spread = variance.clamp_min(1e-12 * mean.square()).sqrt()
    unit = torch.where(spread > 0, spread, 1.0).log2().round().exp2()
    return (mean / unit * INTERVALS).round() / INTERVALS * unit, unit


def find_quartiles(counts: Tensor, center: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Return a number near the median and one near the distance of quartiles of each column, (d,).

    The latter is at least the width of the interval with the median, which has outliers if it is
    wide.

    counts: (d, INTERVALS) numbers of examples in intervals with this center and unit.
    """
    knots = list_knots()
    shares = counts.cumsum(1) / counts.sum(1, keepdim=True)
    wanted = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64).repeat(len(counts), 1)
    at = torch.searchsorted(shares, wanted)  # (d, 3) intervals
    lower = knots[(at - 1).clamp_min(0)]
    upper = knots[at.clamp_max(len(knots) - 1)]
    middle = (lower + upper)[:, 1] / 2
    distance = (upper[:, 2] - lower[:, 0]).clamp_min(NEAREST**2)
    return center + middle * unit, unit * distance.log2().round().exp2()


def join_intervals(counts: Tensor, center: Tensor, unit: Tensor, bins: int) -> Tensor:
    """Return the upper ends of the bins of each column but the last, (d, B - 1), ascending.

    An end is in the middle of the empty intervals around it.  Values are those of float32, and
    the largest one ends empty bins.

    counts: (d, INTERVALS) numbers of examples in intervals of the columns.
    """
    knots = list_knots()
    largest = torch.finfo(torch.float32).max
    edges = torch.full((len(counts), bins - 1), largest, dtype=torch.float64)
    for column, of_column in enumerate(counts):
        filled = of_column.nonzero()[:, 0]
        below = of_column[filled].cumsum(0)[:-1]  # examples up to each end
        ends = (knots[filled[:-1]] + knots[filled[1:] - 1]) / 2
        if len(ends) >= bins:
            wanted = torch.arange(1, bins, dtype=torch.float64) / bins * of_column.sum()
            chosen = torch.searchsorted(below, wanted).clamp_max(len(ends) - 1)
            ends = ends[sorted(set(chosen.tolist()))]
        ends = (center[column] + unit[column] * ends).float().double()
        edges[column, : len(ends)] = ends
    return edges


def assign_bins(x: Tensor, edges: Tensor) -> Tensor:
    """Return the bin of each value: (n, d), (d, B - 1) -> (n, d) uint8.

    >>> edges = torch.tensor([[0.5, 1.0]])
    >>> assign_bins(torch.tensor([[0.0], [1.0], [2.0]]), edges).flatten().tolist()
    [0, 1, 2]
    """
    return torch.searchsorted(edges, x.T.contiguous()).T.to(torch.uint8)


# -- trees ------------------------------------------------------------------------------------------


def first_sums(labels: Mapping[str, Tensor]) -> Tensor:
    """Return the first prediction, (trees,): log odds, log shares of classes, or the mean.

    >>> first_sums({"counts": torch.tensor([2.0, 2.0]), "weight": torch.tensor(4.0)})
    tensor([0.])
    """
    counts = labels["counts"]
    if not len(counts):
        return (labels["targets"] / labels["weight"])[None]
    shares = (counts / labels["weight"]).clamp_min(RAREST).log()
    if count_sums(len(counts)) == 1:
        return (shares[-1] - shares[0])[None]
    return shares


def differentiate(scores: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return gradients and hessians of the losses of examples, both (n, trees).

    scores: (n, trees); y: (n,) classes or targets; classes: 0 for regression.
    """
    if not classes:
        return scores - y.double()[:, None], torch.ones_like(scores)
    if classes > BINARY:
        p = scores.softmax(1)
        true = one_hot(y, classes).double()
    else:
        p = scores.sigmoid()
        true = (y == classes - 1).double()[:, None]
    return p - true, p * (1 - p)


def find_nodes(bins: Tensor, column: Tensor, cut: Tensor, level: int) -> Tensor:
    """Return the node of each example within a level of each tree, (n, trees).

    bins: (n, d); column, cut: (trees, nodes).  Raises ValueError for a column that does not exist.
    """
    if bool((column >= bins.shape[1]).any()):
        raise ValueError(
            f"a tree has column {int(column.max())}, and examples have {bins.shape[1]}"
        )
    trees = torch.arange(len(column))
    node = torch.zeros(len(bins), len(column), dtype=torch.int64)
    for depth in range(level):
        at = 2**depth - 1 + node
        is_above = bins.gather(1, column.long()[trees, at]) > cut.long()[trees, at]
        node = 2 * node + is_above.long()
    return node


def sum_by_bin(bins: Tensor, node: Tensor, values: Tensor, nodes: int, size: int) -> Tensor:
    """Return sums of values by tree, node, column and bin, (trees, nodes, d, size).

    bins: (n, d) below ``size``; node: (n, trees) below ``nodes``; values: (n, trees).
    """
    n, d = bins.shape
    cells = nodes * d * size
    columns = size * torch.arange(d) + bins  # (n, d)
    sums = []
    for of_tree, weights in zip(node.T, values.T, strict=True):
        at = (of_tree[:, None] * (d * size) + columns).flatten()
        repeated = weights[:, None].expand(n, d).flatten()
        sums.append(torch.bincount(at, weights=repeated, minlength=cells))
    return torch.stack(sums).view(-1, nodes, d, size)


def choose_splits(sums: Tensor, totals: Tensor, penalty: float, least: float) -> Splits:
    """Return the split of each node with the largest second-order gain.

    A node that no split improves keeps all examples in its first child, and both children have its
    totals, so that all leaves below have its value.

    sums: gradients and hessians, (2, trees, nodes, d, B).  totals: those of the nodes,
    (2, trees, nodes).
    """
    _, trees, nodes, _, size = sums.shape
    # (2, trees, nodes, d (B - 1)) of first children
    below = sums.cumsum(-1)[..., :-1].flatten(3)
    whole = totals[..., None]
    above = whole - below
    worth = score(whole, penalty)
    gain = score(below, penalty) + score(above, penalty) - worth
    has_enough = torch.minimum(below[1], above[1]) >= least * (1 - TIE)
    gain = gain.masked_fill(~has_enough, -torch.inf)
    best = gain.amax(-1, keepdim=True)
    room = TIE * (worth + best.clamp_min(0)) + TIE
    is_best = gain >= best - room
    is_split = (best > room)[..., 0]
    chosen = middle_of_first_run(is_best, size - 1)

    column = torch.where(is_split, chosen // (size - 1), 0)
    cut = torch.where(is_split, chosen % (size - 1), size - 1)
    at = chosen.expand(2, trees, nodes)[..., None]
    first = torch.where(is_split, below.gather(3, at)[..., 0], totals)
    second = torch.where(is_split, above.gather(3, at)[..., 0], totals)
    return Splits(column, cut, torch.stack([first, second], -1).flatten(2))


def score(totals: Tensor, penalty: float) -> Tensor:
    """Return G² / (H + λ) of sums of gradients and hessians, (2, ...) -> (...)."""
    return totals[0].square() / (totals[1] + penalty).clamp_min(TINY)


def middle_of_first_run(is_best: Tensor, cuts: int) -> Tensor:
    """Return the middle position of the first run of True in one column: (..., d cuts) -> (...).

    >>> middle_of_first_run(torch.tensor([False, True, True, True, False, True]), 6).item()
    2
    """
    first = is_best.long().argmax(-1, keepdim=True)
    at = torch.arange(is_best.shape[-1])
    is_after = (at >= first) & (at < (first // cuts + 1) * cuts)
    is_run = (is_best | (at < first)).long().cumprod(-1).bool() & is_after
    return first[..., 0] + (is_run.sum(-1) - 1).clamp_min(0) // 2
