"""Feature scaling across sites: means and variances from aggregates, before training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Cells
from fallow.core.contract import Contract
from fallow.core.missing import Missing, filled, total_cells
from fallow.core.types import State, Values
from fallow.core.values import Count, Fill, NonNegative, Real
from fallow.core.view import View

TINY = 1e-12
"""Relative deviation from the mean below which a column is constant."""

CHUNK = 4096
"""Number of examples per block, so that no second copy of all examples is in memory."""


@final
@dataclass(frozen=True)
class Scaling:
    """Standardize features, and regression targets, over all sites.

    Each takes two aggregates: the mean, then squares about it, because E[x²] - E[x]² is numerically
    unstable.  If a table has empty cells, the same aggregates with the number of non-empty cells
    determine the imputed values: the mean of a number, the most frequent level of a category.

    Features are those of all examples at the sites, labeled or not, and never of test examples.
    Regression targets are those labeled so far.  All sites learn the means and the standard
    deviations.

    Parameters
    ----------
    of_rows : bool
        Whether features are scaled by aggregates.
    of_numbers : bool
        Whether regression targets are scaled.
    of_cells : bool
        Whether cells may be empty.
    is_encoded : bool
        Whether examples are features of an encoder.  Each feature is then also divided by the
        square root of their number, so the mean square norm of an example is 1.
    ranges : tuple of (float, float)
        Agreed range (low, high) of each feature.  With ranges, features are scaled from -1 to 1
        without any exchange of sums, and each site uses the ranges of its own agreement.

    Notes
    -----
    A constant column becomes 0 at all sites, which is equivalent to removing it from a linear
    model.
    """

    of_rows: bool = True
    of_numbers: bool = True
    of_cells: bool = False
    is_encoded: bool = False
    ranges: tuple[tuple[float, float], ...] = ()

    contract: ClassVar[Contract] = Contract(
        title="Standardization across sites",
        paper="-",
        year=0,
    )

    # -- server side ------------------------------------------------------------------------

    def of_features(
        self, ask: Ask, missing: Missing | None = None, *, is_scaled: bool = True
    ) -> State:
        """Return the mean (d,) and standard deviation (d,) for all sites; 0 for a constant column.

        missing: the examples have empty cells; the result contains the imputed values, ``fill``
        (d,), and means are those of imputed examples.  is_scaled: False leaves features in their
        units, with mean 0 and standard deviation 1.  Raises ValueError for a column whose variance
        is too small for a number.
        """
        if self.ranges:
            features = self._within_ranges()
        elif missing is None:
            total = sum_of_all(ask, self.columns)
            mean = total["columns"] / total["rows"]
            features = self._spread(ask, total["rows"], {"mean": mean})
        else:
            total = sum_of_all(ask, self.cells)
            fill = missing.fill(total["columns"], total["observed"])
            empty = total["rows"] - total["observed"]  # (d,) cells
            mean = (total["columns"] + empty * fill) / total["rows"]
            features = {"mean": torch.zeros_like(mean), "std": torch.ones_like(mean)}
            features["fill"] = fill
            if is_scaled:
                features = self._spread(ask, total["rows"], {"mean": mean, "fill": fill})
        ask.keep(self.features, None, **features)
        return features

    def _spread(self, ask: Ask, rows: Tensor, features: State) -> State:
        """Return ``features``, with means and optional imputed values, and the standard deviations."""
        total = sum_of_all(ask, self.spread, None, **features)
        # it varies at some site, but its squares are too small for a number
        is_lost = (total["varies"] > 0) & (total["squares"] <= 0)
        if bool(is_lost.any()):
            column = int(is_lost.nonzero()[0])
            raise ValueError(
                f"the squares of column {column} are too small to be summed: omit it, or "
                "multiply it by a large number"
            )
        std = torch.where(total["varies"] > 0, (total["squares"] / rows).sqrt(), 0.0)
        if self.is_encoded:
            std = std * math.sqrt(len(std))
        return {**features, "std": std}

    def _within_ranges(self) -> State:
        """Return the center and half the width of each range, with which a row has length 1 at most."""
        low, high = torch.tensor(self.ranges, dtype=torch.float64).T
        half = (high - low) / 2
        if self.is_encoded:
            half = half * math.sqrt(len(half))
        return {"mean": (low + high) / 2, "std": half}

    def of_targets(self, ask: Ask) -> State | None:
        """Return the mean () and standard deviation () of the targets labeled so far.

        The standard deviation is 1 if they are equal.  None if no site has labels.
        """
        total = sum_of_all(ask, self.labeled)
        n = float(total["rows"])
        if n == 0:
            return None
        mean = total["targets"] / max(n, 1.0)
        squares = sum_of_all(ask, self.deviation, mean=mean)["squares"]
        std = (squares / max(n, 1.0)).sqrt()
        std = torch.where(std > TINY * mean.abs(), std, 1.0)
        ask.keep(self.targets, mean=mean, std=std)
        return {"mean": mean, "std": std}

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples and of each column",
        returns=lambda self: {
            "rows": Count(of="rows"),
            "columns": Real("inputs", is_wide=True, have_one_unit=self.is_encoded),
        },
        when=lambda self: self.of_rows and not self.of_cells,
        weighted_by="rows",
        over="all",
    )
    def columns(self, view: View) -> Values:
        n_rows = 0
        totals = []
        for rows in blocks(view):
            n_rows += len(rows)
            totals.append(rows.sum(0))
        return {"rows": float(n_rows), "columns": torch.stack(totals).sum(0)}

    @client.sum(
        "aggregates of numbers of examples, of each column and of its non-empty cells",
        returns=Cells(),
        when=lambda self: self.of_cells,
        weighted_by="rows",
        over="all",
    )
    def cells(self, view: View) -> Values:
        return {**total_cells(blocks(view))}

    @client.sum(
        "aggregates of squares of each column",
        returns={
            "squares": NonNegative("inputs", is_wide=True),
            "varies": Count("inputs", of="rows"),
        },
        takes=lambda self: {"mean": Real("inputs"), "fill": Fill(self.of_cells)},
        when=lambda self: self.of_rows,
        weighted_by="rows",
        over="all",
    )
    def spread(self, view: View, mean: Tensor, fill: Tensor | None = None) -> Values:
        squares = torch.zeros_like(mean)
        # number of examples that differ from the mean of a column
        varies = torch.zeros_like(mean)
        for rows in blocks(view):
            away = filled(rows, fill) - mean
            squares += away.square().sum(0)
            varies += (away.abs() > TINY * mean.abs()).sum(0)
        return {"squares": squares, "varies": varies}

    @client.sum(
        "aggregates of numbers of labels and of labeled targets",
        returns={"rows": Count(of="labels"), "targets": Real(is_wide=True)},
        when=lambda self: self.of_numbers,
        weighted_by="labels",
    )
    def labeled(self, view: View) -> Values:
        return {"rows": float(len(view.labels)), "targets": view.labels.double().sum()}

    @client.sum(
        "aggregates of squares of labeled targets",
        returns={"squares": NonNegative(is_wide=True)},
        takes={"mean": Real()},
        when=lambda self: self.of_numbers,
        weighted_by="labels",
    )
    def deviation(self, view: View, mean: Tensor) -> Values:
        return {"squares": (view.labels.double() - mean).square().sum()}

    @client.keep(
        "nothing",
        takes=lambda self: {
            "mean": Real("inputs"),
            "std": NonNegative("inputs"),
            "fill": Fill(self.of_cells),
        },
        when=lambda self: self.of_rows or self.of_cells or bool(self.ranges),
    )
    def features(
        self, view: View, mean: Tensor, std: Tensor, fill: Tensor | None = None
    ) -> Values:
        if self.ranges:
            return {**self._within_ranges()}
        if fill is None:
            return {"mean": mean, "std": std}
        return {"mean": mean, "std": std, "fill": fill}

    @client.keep(
        "nothing",
        takes={"mean": Real(), "std": NonNegative()},
        when=lambda self: self.of_numbers,
    )
    def targets(self, view: View, mean: Tensor, std: Tensor) -> Values:
        return {"mean": mean, "std": std}


def blocks(view: View) -> Iterator[Tensor]:
    """Yield all examples of a site in blocks (b, d) of float64, whatever their labels."""
    for rows in view.blocks("all", CHUNK):
        yield rows.flatten(1).double()
