"""Groups of fields that are checked together, for declarations of client functions.

Numbers that are possible one by one may be impossible together: no more predictions are correct than
there are examples, and products are not larger than those of all registered examples.  Without secure
aggregation, these limits bound the influence of one site.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from fallow.core.values import (
    Count,
    Dims,
    Kind,
    NonNegative,
    Real,
    SenderFacts,
    Triangle,
    as_tuple,
)

MASS = "mass"
"""Note of an earlier reply: total weight of its labeled examples."""
ROUNDING = 1 + 1e-6
"""Factor for rounding in a comparison with a limit."""
Parts = Mapping[str, Tensor]
"""Fields of a reply in float64."""


class Composite(ABC):
    """Interface of the fields of a reply."""

    @abstractmethod
    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Return the fields by name."""

    @abstractmethod
    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        """Explain why values that are possible one by one are impossible together, or return None."""

    def note(self, parts: Parts) -> dict[str, float]:
        """Return numbers for the checks of later replies."""
        return {}


def read_parts(reply: Mapping[str, object], names: Mapping[str, Kind]) -> dict[str, Tensor]:
    """Return the numeric fields of a reply in float64."""
    parts: dict[str, Tensor] = {}
    for name in names:
        value = reply[name]
        if isinstance(value, Tensor | float | int):
            parts[name] = torch.as_tensor(value, dtype=torch.float64)
    return parts


@final
@dataclass(frozen=True)
class Fields(Composite):
    """Fields without a joint check."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return dict(self.kinds)

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        return None


@final
@dataclass(frozen=True)
class Histograms(Composite):
    """Sums of gradients and hessians of labeled examples by tree, node, column and bin.

    Each example is in one bin of every column, so the sums over bins are the same for all columns.
    Hessians are at most 1, so the sum over a tree is at most the weight of all labels.

    bins: number of bins of a column.
    """

    bins: int

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        shape = ("trees", "nodes", "inputs", self.bins)
        return {"gradients": Real(shape), "hessians": NonNegative(shape)}

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        room = 2 * self.bins * known.room
        for name in ("gradients", "hessians"):
            totals = parts[name].sum(-1)  # (trees, nodes, d)
            apart = (totals - totals[..., :1]).abs()
            size = parts[name].abs().sum(-1)
            if bool((apart > known.tolerance * (1 + size) + room).any()):
                return f"the sums of {name} over the bins of a node differ between columns"
        weight = known.labels * known.heaviest
        total = float(parts["hessians"][:, :, 0].sum((1, 2)).max())
        if total > weight * (1 + known.tolerance) + room * len(parts["hessians"][0]):
            return (
                f"the hessians of a tree add up to {total:g}, and {known.labels:g} labeled rows "
                f"weigh {weight:g} at most"
            )
        return None


# -- products of labeled examples -----------------------------------------------------------------


@final
@dataclass(frozen=True)
class Products(Composite):
    """Σ s (1, z, y) (1, z, y)' over the labeled examples: features z, targets y, weights s.

    size: name of the number of features.  is_weighted: examples may have weights other than 1.
    is_part: the examples are a part of those of earlier products.

    No number is larger than those of the registered examples can be, which bounds the influence of a
    site that invents them.  For classes, y is one-hot, so that Σ s y² is at most n.  For regression,
    it is ``squares``.
    """

    size: str = "features"
    is_weighted: bool = True
    is_part: bool = False

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return {
            "n": NonNegative(),
            "rows": Count(of="labels"),
            "features": Real(self.size),
            "targets": Real("outputs"),
            "products": Real(Triangle(self.size)),
            "cross": Real((self.size, "outputs")),
            "squares": NonNegative(),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        n = float(parts["n"])
        rows = float(parts["rows"])
        if n > rows * known.heaviest + known.room:
            return (
                f"n is {n:g}, and {rows:g} labeled rows of a study of {known.heaviest:g} rows "
                f"weigh {rows * known.heaviest:g} at most"
            )
        if not self.is_weighted and abs(n - rows) > known.tolerance * max(rows, 1.0):
            return (
                f"n is {n:g}, and each of {rows:g} labeled rows weighs 1 in this study: they "
                f"weigh {rows:g}"
            )
        heaviest = 1.0
        if self.is_weighted:
            heaviest = min(max(n, 1.0), known.heaviest)
        squares = float(parts["squares"])
        if len(parts["targets"]) > 1:
            squares = n  # of one-hot labels
        room = known.room + known.tolerance
        limits = Lengths(known.longest * heaviest, n + room, squares + room)
        return limits.find_fault(parts)

    def note(self, parts: Parts) -> dict[str, float]:
        return {} if self.is_part else {MASS: float(parts["n"])}


@final
@dataclass(frozen=True)
class LabelProducts(Composite):
    """`Products` of each of several labels, over the examples whose answer to it is known.

    Answers are 0 or 1, so that their squares are their sum.
    """

    size: str = "features"

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return {
            "n": NonNegative("outputs"),
            "rows": Count("outputs", of="labels"),
            "features": Real(("outputs", self.size)),
            "targets": NonNegative("outputs"),
            "products": Real(("outputs", Triangle(self.size))),
            "cross": Real(("outputs", self.size)),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        rule = Products(self.size, is_weighted=False)
        for label in range(len(parts["n"])):
            of_label = {name: values[label] for name, values in parts.items()}
            of_label["squares"] = of_label["targets"]
            of_label["targets"] = of_label["targets"][None]
            why = rule.find_fault(of_label, known)
            if why is not None:
                return f"of label {label + 1}, {why}"
        return None

    def note(self, parts: Parts) -> dict[str, float]:
        return {MASS: float(parts["n"].max())}


@final
@dataclass(frozen=True)
class Lengths:
    """Largest sums of products of examples with bounded lengths (Cauchy-Schwarz inequality).

    rows: largest Σ s |z|² of the features z.  n: Σ s.  targets: Σ s y².
    """

    rows: float
    n: float
    targets: float = 0.0

    def find_fault(self, parts: Parts) -> str | None:
        """Explain why products, or sums of features, are too large, or return None."""
        size = len(parts["features"])
        at = torch.arange(size)
        on_diagonal = at * size - at * (at - 1) // 2  # in a packed triangle
        length = float(parts["products"][on_diagonal].sum())
        if length > self.rows * ROUNDING:
            return (
                f"the squared lengths of the rows in products sum to {length:.6g}, but those of "
                f"all rows to {self.rows:.6g} at most in the units of this study"
            )
        limits = {
            "products": self.rows,
            "features": math.sqrt(self.rows * self.n),
            "cross": math.sqrt(self.rows * self.targets),
        }
        for name, limit in limits.items():
            value = parts.get(name)
            if value is None or not value.numel():
                continue
            largest = float(value.abs().max())
            if largest > limit * ROUNDING:
                return (
                    f"{name} has values up to {largest:.6g}, but those of all rows are at most "
                    f"{limit:.6g} in the units of this study"
                )
        return None


@final
@dataclass(frozen=True)
class ExampleProducts(Composite):
    """Σ (1, z) (1, z)' over examples with features z, as large as those of examples can be."""

    size: str = "features"

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return {
            "rows": Count(of="rows"),
            "features": Real(self.size),
            "products": Real(Triangle(self.size)),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        rows = float(parts["rows"]) + known.room + known.tolerance
        return Lengths(known.longest, rows).find_fault(parts)


# -- losses on labeled examples -------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Losses(Composite):
    """Losses on the labeled examples of earlier `Products`, for each penalty.

    dims: of the penalties, () for a single one.  temperatures: their number.  farthest: largest
    distance between an output and its target.  hottest: largest temperature.  are_labels: outputs
    are labels of their own, with two classes each.

    The weight of correct predictions does not exceed that of all examples.  Outputs are clipped, so
    that no example has a squared loss above farthest² per output, or a log loss above
    2 hottest (farthest + 1 / 2).
    """

    temperatures: int
    farthest: float
    hottest: float
    dims: Dims = "penalties"
    are_labels: bool = False

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        squared: dict[str, Kind] = {"squared": NonNegative(self.dims)}
        if sizes.get("classes") == 0 and not self.are_labels:
            return squared
        grid = (*as_tuple(self.dims), self.temperatures)
        return {**squared, "right": NonNegative(self.dims), "log": NonNegative(grid)}

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        mass = known.noted.get(MASS, known.labels * known.heaviest)
        room = mass * (1 + known.tolerance) + known.tolerance
        most_squared = max(known.sizes.get("classes", 0), 1) * self.farthest**2
        squared = float(parts["squared"].max())
        if squared > room * most_squared:
            return (
                f"squared is {squared:g}, but the loss of a row is at most {most_squared:g}, so "
                f"that of rows with the total weight {mass:g} is at most {most_squared * mass:g}"
            )
        if "right" not in parts:
            return None
        right = float(parts["right"].max())
        if right > room:
            return (
                f"right is {right:g}, and the total weight of the labeled rows is {mass:g}"
            )
        highest = 2 * self.farthest * self.hottest + self.hottest
        log = float(parts["log"].max())
        if log > room * highest:
            return (
                f"log is {log:g}, but the loss of a row is at most {highest:g}, so that of rows with "
                f"the total weight {mass:g} is at most {highest * mass:g}"
            )
        return None


# -- first and second moments of all examples -----------------------------------------------------


def moments(first: str, second: str, size: str) -> dict[str, Kind]:
    """Return the fields with the number of examples, sums of vectors and sums of their squares.

    first, second: names of the two sums.  size: name of the number of columns.
    """
    return {
        "rows": Count(of="rows"),
        first: Real(size, is_wide=True),
        second: NonNegative(size, is_wide=True),
    }


@final
@dataclass(frozen=True)
class PatchMoments(Composite):
    """Number of images, and means over their patches of vectors of norm √size and of their products.

    size: name of the length of a vector.  Products are a packed triangle.
    """

    size: str = "patch"

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return {
            "rows": Count(of="rows"),
            "patches": Real(self.size),
            "moments": Real(Triangle(self.size)),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        rows = float(parts["rows"])
        room = known.tolerance * (1 + rows)
        longest = rows * len(parts["patches"]) + room
        products = {"features": parts["patches"], "products": parts["moments"]}
        why = Lengths(longest, rows + room).find_fault(products)
        if why is None:
            return None
        return why.replace("products", "moments").replace("features", "patches")


@final
@dataclass(frozen=True)
class Documents(Composite):
    """Number of examples, of examples with each hashed n-gram, and moments of the other columns.

    grams: number of hashed n-grams of an example; the other columns of a table come before them.
    """

    grams: int

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        others = sizes.get("cells", 0) - self.grams
        size: Dims = "columns"
        if others >= 0:
            size = others
        return {
            "rows": Count(of="rows"),
            "documents": Count(self.grams, of="rows"),
            "columns": Real(size, is_wide=True),
            "squares": NonNegative(size, is_wide=True),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        rows = float(parts["rows"])
        largest = float(parts["documents"].max())
        if largest > rows + 2 * known.room:
            return f"documents is {largest:g}, more texts than the {rows:g} rows have"
        return None


# -- cells of tables ------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Cells(Composite):
    """Number of examples, and of each column the sum and the number of its cells that are not empty.

    For the columns of a category, sums are counts: each cell has exactly one level.
    """

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return {
            "rows": Count(of="rows"),
            "columns": Real("cells", is_wide=True),
            "observed": Count("cells", of="rows"),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        rows = float(parts["rows"])
        totals = parts["columns"]
        cells = parts["observed"]
        if bool((cells > rows + known.room).any()):
            return f"observed is {float(cells.max()):g}, more cells than the {rows:g} rows have"
        if bool((totals[cells <= known.room].abs() > known.room).any()):
            return "columns is not 0 where no cell is observed"
        for first, end in known.levels:
            why = _find_fault_in_levels(totals[first:end], cells[first:end], known.room)
            if why is not None:
                return why
        return None


def _find_fault_in_levels(counts: Tensor, cells: Tensor, room: float) -> str | None:
    """Explain why cells of one category do not have exactly one level each, or return None."""
    if bool((counts < -room).any()):
        return f"columns has {float(counts.min()):g} cells with one text, and no count is below 0"
    is_same = bool(((cells - cells[0]).abs() <= 2 * room).all())
    away = abs(float(counts.sum()) - float(cells[0]))
    if is_same and away <= room * (len(counts) + 1):
        return None
    return (
        f"columns has {float(counts.sum()):g} cells with the texts of one column, and "
        f"{float(cells[0]):g} of them are observed"
    )
