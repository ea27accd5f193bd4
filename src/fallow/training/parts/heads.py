"""What methods that solve for a head share: labeled rows as a ridge regression reads them, what
their losses choose, and the head as the model's last layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.refusal import Refusal
from fallow.core.totals import are_finite
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.training.parts.ridge import (
    PENALTIES,
    TEMPERATURES,
    Head,
    Path,
    Rows,
    Totals,
    add_up,
    centered,
    losses,
    square_rows,
)

# What contracts of such methods say alike.
TOTALS = "totals over sites of products of labeled rows and labels"
LEFT_OUT = "totals over sites of losses on rows that a head has not seen"
MISSING = "stops: all exchanges are over the same rows; a resumed run asks again"
PARTS_SHOW = (
    "the coordinator sees the products of each site's labeled rows: those of one row "
    "are that row with its label, and those of a few rows say what these have in common"
)
CLOSES_SHOW = (
    "two consecutive aggregates differ by the newly labeled examples of all sites; if only one was "
    "added, it can be reconstructed"
)
AT_SERVER = ("penalty", "temperature", "left_out")
SETTINGS = {"model": "linear", "encoder": "auto", "rounds": 1, "score_rounds": 1}

FEW = 2  # rows: with fewer, no row can be left out


class Labeled(NamedTuple):
    """The labeled rows of a site: z (n, D), y (n, C) one-hot or (n, 1), s (n,)."""

    z: Tensor
    y: Tensor
    s: Tensor


class LabeledRows(Protocol):
    """As `Labeled`; rows need not be in memory."""

    @property
    def z(self) -> Rows: ...
    @property
    def y(self) -> Rows: ...
    @property
    def s(self) -> Tensor: ...


class LabeledBlocks(NamedTuple):
    """The labeled rows of a site, of which some are in memory at a time."""

    z: Rows
    y: Rows
    s: Tensor


@final
@dataclass(frozen=True)
class LabeledFeatures:
    """The labeled rows of a site as vectors, (n, D), read from the view some at a time."""

    view: View
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.width

    def __len__(self) -> int:
        return len(self.view.labels)

    def blocks(self, size: int) -> Iterator[Tensor]:
        for rows in self.view.blocks("labeled", size):
            yield rows.flatten(1)


@final
@dataclass(frozen=True)
class OneHot:
    """One-hot classes (n, C) in float64 of labels (n,), made some at a time."""

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


class Summed(NamedTuple):
    """The totals of all sites, the number of their rows, and Σ s |y|²."""

    totals: Totals
    rows: int
    squares: float


class Choice(NamedTuple):
    """What leave-one-out chose: λ, T, and how well rows were answered by heads without them: the
    share of right classes, or the mean squared error in the units that models see; None where
    there are too few rows to say."""

    penalty: float
    temperature: float
    left_out: float | None


# -- at a site ------------------------------------------------------------------------------------


def labeled_rows(
    view: View, z: Tensor, weights: Tensor | None, *, is_weighted: bool
) -> Labeled:
    """The labeled rows with their features ``z`` (n, D): one-hot classes or numbers, and weights.
    ``weights`` (C,) are those of classes, ``is_weighted`` says whether the query's count."""
    s = _row_weights(view, weights, is_weighted=is_weighted)
    if not view.classes:
        return Labeled(z, view.labels.double()[:, None], s)
    return Labeled(z, one_hot(view.labels, view.classes).double(), s)


def read_labeled(view: View, weights: Tensor | None, *, is_weighted: bool) -> LabeledBlocks:
    """What `labeled_rows` gives of the rows themselves, for a linear model of them, with a block of
    rows in memory at a time."""
    shapes = dict(view.layout.params)
    z = LabeledFeatures(view, width=shapes["head.weight"][1])
    s = _row_weights(view, weights, is_weighted=is_weighted)
    if not view.classes:
        return LabeledBlocks(z, view.labels.double()[:, None], s)
    return LabeledBlocks(z, OneHot(view.labels, view.classes), s)


def _row_weights(view: View, weights: Tensor | None, *, is_weighted: bool) -> Tensor:
    """The weight of each labeled row, (n,): the query's, times that of its class."""
    if is_weighted:
        s = view.weights.double()
    else:
        s = torch.ones(len(view.labels), dtype=torch.float64)
    if view.classes and weights is not None:
        s = s * weights[view.labels]
    return s


def totals_of(rows: LabeledRows, center: Tensor | None = None) -> Answer:
    """What a site adds to the totals of all; ``center`` (D,) is taken off the features first."""
    return {
        **add_up(rows.z, rows.y, rows.s, center),
        "rows": float(len(rows.y)),
        "squares": rows.s @ square_rows(rows.y),
    }


def losses_of(
    rows: LabeledRows, path: Path, penalties: list[float], *, is_class: bool
) -> Answer:
    """What heads of these λ lose on the rows without having seen them.

    Raises Refusal for a path of other parts.
    """
    check_path(rows, path)
    return {**losses(path, rows.z, rows.y, rows.s, penalties, is_class=is_class)}


def check_path(rows: LabeledRows, path: Path) -> None:
    """Raise Refusal unless the path has the shapes of one of these rows, in finite numbers."""
    size = rows.z.shape[1]
    shapes = {"e": (size,), "u": (size, size), "ub": (size, rows.y.shape[1])}
    shapes |= {"mass": (), "z": (size,), "y": (rows.y.shape[1],)}
    for name, shape in shapes.items():
        part = getattr(path, name)
        if tuple(part.shape) != shape or not are_finite(part):
            raise Refusal(f"the {name} of a path of heads is not {shape} finite numbers")
    if bool((path.e < 0).any()):
        raise Refusal("a path of heads has a negative e, which products of rows never have")


def check_linear_model(view: View) -> None:
    """Raise ValueError unless the model is linear and has a bias."""
    layers = [name for name, _ in view.layout.params]
    if layers != ["head.weight", "head.bias"]:
        raise ValueError(
            f"closed-form solves for a linear model with a bias, and this one has "
            f"{', '.join(layers)}; set model=linear, with an encoder for features, or keep the "
            "model, train it, and set head=exact"
        )


# -- at the server --------------------------------------------------------------------------------


def read_totals(found: Mapping[str, Tensor], center: Tensor | None = None) -> Summed:
    """The totals of all sites, from those of `totals_of`."""
    return Summed(centered(found, center), int(found["rows"]), float(found["squares"]))


def class_weights(ask: Ask) -> Tensor:
    """The weight of each class, (C,), by which all classes that have labels weigh the same; sites
    answer to ``class_counts``."""
    counts = sum_of_all(ask, "class_counts")["counts"].clamp_min(0)
    is_there = counts > 0
    even = counts.sum() / is_there.sum().clamp_min(1)
    return torch.where(is_there, even / counts.clamp_min(1), 0.0)


def penalties_of(penalty: float | None) -> list[float]:
    """The λ to choose from."""
    return PENALTIES if penalty is None else [penalty]


def choose_left_out(
    ask: Ask,
    path: Path,
    total: Summed,
    penalty: float | None,
    **about: Tensor | None,
) -> Choice:
    """λ, unless it is ``penalty``, and T, by what sites say of rows that a head has not seen.

    path: of ``total``; about: what the sites need beside it to find their rows.
    """
    penalties = penalties_of(penalty)
    if total.rows < FEW:
        return choose_without_rows(penalties)
    lost = sum_of_all(ask, "left_out", None, **path._asdict(), **about)
    return choose_best(lost, penalties, path.mass)


def choose_best(lost: Mapping[str, Tensor], penalties: list[float], n: Tensor) -> Choice:
    """The λ of the smallest squared loss on rows left out, and for it the T of the smallest
    log-loss.  lost: totals over sites of `losses_of`; n: the weight of all rows."""
    best = int(lost["squared"].argmin())
    if "log" not in lost:
        return Choice(penalties[best], 1.0, float(lost["squared"][best] / n))
    temperature = TEMPERATURES[int(lost["log"][best].argmin())]
    return Choice(penalties[best], temperature, float(lost["right"][best] / n))


def choose_without_rows(penalties: list[float]) -> Choice:
    """Where there are too few rows to leave one out: the λ in the middle."""
    return Choice(penalties[len(penalties) // 2], 1.0, None)


def note_choice(choice: Choice) -> State:
    """What was chosen, as parts of a state that stay at the server."""
    known = {name: value for name, value in choice._asdict().items() if value is not None}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in known.items()}


def flatten_head(head: Head, temperature: float) -> Tensor:
    """The weights of a linear layer whose outputs are T (W'z + b), (C D + C,)."""
    return temperature * torch.cat([head.weight.T.flatten(), head.bias])
