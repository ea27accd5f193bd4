"""Helpers of closed-form algorithms.

They read labeled examples for ridge regression, select penalties by losses, and convert a solution
to the last layer of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.core.ask import Ask, sum_of_all
from fallow.core.client import ClientCall
from fallow.core.composites import Losses
from fallow.core.types import State, Values
from fallow.core.values import Kind, NonNegative, Real
from fallow.core.view import Rows as Examples
from fallow.core.view import View
from fallow.training.parts.ridge import (
    MOST_AWAY,
    PENALTIES,
    TEMPERATURES,
    LinearHead,
    Path,
    Rows,
    Totals,
    add_up,
    centered,
    losses,
    square_rows,
)

# Texts shared by the contracts of closed-form algorithms.
TOTALS = "aggregates of products of labeled examples and labels"
LEFT_OUT = "aggregates of leave-one-out losses"
MISSING = "stops: all exchanges are over the same examples; a resumed run asks again"
PARTS_SHOW = (
    "the coordinator sees the products of each site's labeled examples: those of a "
    "single example reveal it with its label, and those of a few reveal their common "
    "properties"
)
PATH_SHOWS = (
    "every site receives second moments of all labeled examples, and can compute examples of other "
    "sites from them"
)
AT_SERVER = ("penalty", "penalty_limit", "temperature", "left_out")
LOSSES = Losses(
    temperatures=len(TEMPERATURES), farthest=MOST_AWAY, hottest=TEMPERATURES[-1]
)
"""Fields of `losses_of`."""
SETTINGS = {"model": "linear", "encoder": "auto", "rounds": 1, "score_rounds": 1}

FEW = 2  # minimum number of examples for leave-one-out
FEW_A_CLASS = 10
"""Number of labels per class below which λ is limited."""
STRONGEST = 0.3
"""Largest λ n with few labels, where features have a mean square norm of 1."""
EVEN = 1e-3
"""Labels: rounding of secure aggregation."""


class Labeled(NamedTuple):
    """Labeled examples of a site: z (n, D), y (n, C) one-hot or (n, 1), s (n,).

    groups: (n,) of examples that are left out together; None: each alone.
    """

    z: Tensor
    y: Tensor
    s: Tensor
    groups: Tensor | None = None


class LabeledRows(Protocol):
    """Interface of `Labeled`, whose examples need not be in memory."""

    @property
    def z(self) -> Rows: ...
    @property
    def y(self) -> Rows: ...
    @property
    def s(self) -> Tensor: ...
    @property
    def groups(self) -> Tensor | None: ...


class LabeledBlocks(NamedTuple):
    """Labeled examples of a site, read into memory in blocks."""

    z: Rows
    y: Rows
    s: Tensor
    groups: Tensor | None = None


@final
@dataclass(frozen=True)
class FeatureRows:
    """Examples of a site as vectors, (n, D), read from the view in blocks."""

    view: View
    which: Examples
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.width

    def __len__(self) -> int:
        return len(self.view.positions_of(self.which))

    def blocks(self, size: int) -> Iterator[Tensor]:
        for rows in self.view.blocks(self.which, size):
            yield rows.flatten(1)


@final
@dataclass(frozen=True)
class OneHot:
    """One-hot classes (n, C) in float64 of labels (n,), created in blocks."""

    labels: Tensor
    classes: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.labels), self.classes

    def __len__(self) -> int:
        return len(self.labels)

    def blocks(self, size: int) -> Iterator[Tensor]:
        for labels in torch.split(self.labels, size):
            yield one_hot(labels, self.classes).double()


class AggregatedStatistics(NamedTuple):
    """Aggregates over all sites, the number of their examples, and Σ s |y|²."""

    totals: Totals
    rows: int
    squares: float


class SelectedPenalty(NamedTuple):
    """Result of leave-one-out selection: λ, T and the leave-one-out score.

    The score is the accuracy, or the mean squared error in the units of the model; None with too
    few examples.  ``penalty_limit`` is the largest λ that few labels allow; None with many.
    """

    penalty: float
    temperature: float
    left_out: float | None
    penalty_limit: float | None = None


# -- client side ----------------------------------------------------------------------------------


def labeled_rows(
    view: View, z: Tensor, weights: Tensor | None, *, is_weighted: bool
) -> Labeled:
    """Return the labeled examples with features ``z`` (n, D), targets and weights.

    ``weights`` (C,) are class weights; ``is_weighted``: apply the weights of the query strategy.
    """
    s = _row_weights(view, weights, is_weighted=is_weighted)
    groups = view.groups("labeled")
    if not view.classes:
        return Labeled(z, view.labels.double()[:, None], s, groups)
    return Labeled(z, one_hot(view.labels, view.classes).double(), s, groups)


def read_labeled(view: View, weights: Tensor | None, *, is_weighted: bool) -> LabeledBlocks:
    """Return the labeled examples themselves, as `labeled_rows`, one block in memory at a time."""
    z = FeatureRows(view, "labeled", feature_width(view))
    s = _row_weights(view, weights, is_weighted=is_weighted)
    groups = view.groups("labeled")
    if not view.classes:
        return LabeledBlocks(z, view.labels.double()[:, None], s, groups)
    return LabeledBlocks(z, OneHot(view.labels, view.classes), s, groups)


def feature_width(view: View) -> int:
    """Return the number of features D of a linear model."""
    return dict(view.layout.params)["head.weight"][1]


def _row_weights(view: View, weights: Tensor | None, *, is_weighted: bool) -> Tensor:
    """Return the weight of each labeled example, (n,): that of the query times that of its class."""
    if is_weighted:
        s = view.weights.double()
    else:
        s = torch.ones(len(view.labels), dtype=torch.float64)
    if view.classes and weights is not None:
        s = s * weights[view.labels]
    return s


def totals_of(rows: LabeledRows, center: Tensor | None = None) -> Values:
    """Return the contribution of a site; ``center`` (D,) is subtracted from the features."""
    return {
        **add_up(rows.z, rows.y, rows.s, center),
        "rows": float(len(rows.y)),
        "squares": rows.s @ square_rows(rows.y),
    }


def losses_of(
    rows: LabeledRows, path: Path, penalties: list[float], *, is_class: bool
) -> Values:
    """Return the leave-one-out losses of the solutions with these λ; groups are left out whole."""
    return {
        **losses(
            path,
            rows.z,
            rows.y,
            rows.s,
            penalties,
            is_class=is_class,
            groups=rows.groups,
        )
    }


def path_kinds(*stack: str) -> dict[str, Kind]:
    """Return the arguments with a `Path` of solutions, or a ``stack`` of them."""
    return {
        "e": NonNegative((*stack, "features")),
        "u": Real((*stack, "features", "features")),
        "ub": Real((*stack, "features", "outputs")),
        "mass": NonNegative(stack),
        "z": Real((*stack, "features")),
        "y": Real((*stack, "outputs")),
    }


def check_linear_model(view: View) -> None:
    """Raise ValueError unless the model is linear and has a bias."""
    layers = [name for name, _ in view.layout.params]
    if layers != ["head.weight", "head.bias"]:
        raise ValueError(
            "closed-form trains a linear model with a bias, and this one has "
            f"{', '.join(layers)}; set model=linear, with an encoder for features, or "
            "keep the model, train it, and set head=exact"
        )


# -- server side ----------------------------------------------------------------------------------


def read_totals(
    totals: Mapping[str, Tensor], center: Tensor | None = None
) -> AggregatedStatistics:
    """Return the aggregates over all sites, from those of `totals_of`."""
    return AggregatedStatistics(
        centered(totals, center), int(totals["rows"]), float(totals["squares"])
    )


def class_weights(ask: Ask, class_counts: ClientCall) -> Tensor:
    """Return class weights, (C,), that give all classes with labels the same total weight.

    Sites reply to ``class_counts``.
    """
    counts = sum_of_all(ask, class_counts)["counts"].clamp_min(0)
    is_there = counts > 0
    even = counts.sum() / is_there.sum().clamp_min(1)
    return torch.where(is_there, even / counts.clamp_min(1), 0.0)


def penalties_of(penalty: float | None) -> list[float]:
    """Return the candidates of λ."""
    return PENALTIES if penalty is None else [penalty]


def find_penalty_limit(total: AggregatedStatistics) -> float | None:
    """Return the largest λ with few labels per class, or None with enough labels and in regression.

    Few examples predict each other badly, so leave-one-out prefers a penalty with which the model
    predicts nearly the same class everywhere.  The limit depends on the number of labels alone.
    """
    if len(total.totals.y) == 1:
        return None
    classes = int((total.totals.y * total.rows > EVEN).sum())
    if total.rows >= FEW_A_CLASS * classes:
        return None
    return STRONGEST / total.rows


def limit_penalties(penalties: list[float], limit: float | None) -> list[float]:
    """Return the candidates of λ up to a limit, at least the smallest.

    >>> limit_penalties([0.001, 0.01, 0.1], 0.05), limit_penalties([0.1], 0.05)
    ([0.001, 0.01], [0.1])
    """
    if limit is None:
        return penalties
    return [penalty for penalty in penalties if penalty <= limit] or penalties[:1]


def choose_left_out(
    ask: Ask,
    left_out: ClientCall,
    path: Path,
    total: AggregatedStatistics,
    penalty: float | None,
    **arguments: Tensor | None,
) -> SelectedPenalty:
    """Select λ, unless it is ``penalty``, and T, by leave-one-out losses of the sites.

    path: of ``total``; arguments: additional arguments of the client function.
    """
    penalties = penalties_of(penalty)
    if total.rows < FEW:
        return choose_without_rows(penalties)
    lost = sum_of_all(ask, left_out, None, **path._asdict(), **arguments)
    limit = find_penalty_limit(total) if penalty is None else None
    choice = choose_best(lost, limit_penalties(penalties, limit), path.mass)
    return choice._replace(penalty_limit=limit)


def choose_best(
    lost: Mapping[str, Tensor], penalties: list[float], n: Tensor
) -> SelectedPenalty:
    """Select the λ of the smallest squared loss, and its T of the smallest log loss.

    lost: aggregates of `losses_of`, of these and perhaps of larger penalties; n: total weight of
    the examples.
    """
    best = int(lost["squared"][: len(penalties)].argmin())
    if "log" not in lost:
        return SelectedPenalty(penalties[best], 1.0, float(lost["squared"][best] / n))
    temperature = TEMPERATURES[int(lost["log"][best].argmin())]
    return SelectedPenalty(penalties[best], temperature, float(lost["right"][best] / n))


def choose_without_rows(penalties: list[float]) -> SelectedPenalty:
    """Return the median λ, with too few examples for leave-one-out."""
    return SelectedPenalty(penalties[len(penalties) // 2], 1.0, None)


def note_choice(choice: SelectedPenalty) -> State:
    """Return the selection as fields of a state that stay on the server side."""
    known = {name: value for name, value in choice._asdict().items() if value is not None}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in known.items()}


def flatten_head(head: LinearHead, temperature: float) -> Tensor:
    """Return the parameters of a linear layer with outputs T (W'z + b), (C D + C,)."""
    return temperature * torch.cat([head.weight.T.flatten(), head.bias])
