"""Standardization across sites: means and variances from totals, before any training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.contract import Contract
from fallow.core.missing import Missing, filled, total_cells
from fallow.core.types import Answer, State
from fallow.core.view import Rows, View

TINY = 1e-12
"""A column whose values are this near to their mean, relative to it, is constant."""

CHUNK = 4096
"""Rows at a time: beside the rows of a site there is never a second copy of all."""


@final
@dataclass(frozen=True)
class Scaling:
    """Features, and numbers to predict, in units of their standard deviation about their mean.

    Each takes two sums, because in E[x²] - E[x]² digits cancel: the mean first, then squares about
    it.  Where a table has empty cells, the same totals, with the number of cells that are not empty,
    say what sites put there: the mean of a number, the most frequent level of a category.  Features
    are those of all rows at the sites, labeled or not, never of test rows; numbers
    to predict are those that were bought so far.  Everybody learns the means and the deviations.
    ``of_rows``, ``of_numbers``, ``of_cells``: what a study needs; sites answer to no more than that.
    Rows of which cells may be empty are asked for "cells" in the place of "columns".
    ``is_encoded``: rows are the features of an encoder, which may be thousands.  Each is divided by
    the root of their number, too, so that rows have a mean square length of 1 whatever it is.

    Notes
    -----
    A constant column becomes 0 at all sites, which is as good as leaving it out of a linear model.
    """

    of_rows: bool = True
    of_numbers: bool = True
    of_cells: bool = False
    is_encoded: bool = False

    contract: ClassVar[Contract] = Contract(
        title="Standardization across sites",
        paper="-",
        year=0,
        sum={
            "columns": "totals over sites of rows and of each column",
            "cells": "totals over sites of rows, of each column, and of its cells that are not empty",
            "spread": "totals over sites of squares of each column",
            "labeled": "totals over sites of labels and of the numbers bought",
            "deviation": "totals over sites of squares of the numbers bought",
        },
        waits=("labeled", "deviation"),
        keep={
            "features": "nothing",
            "targets": "nothing",
        },
    )

    def __post_init__(self) -> None:
        never: tuple[str, ...] = ("columns",) if self.of_cells else ("cells",)
        if not self.of_rows:
            never += ("columns", "spread")
        if not (self.of_rows or self.of_cells):
            never += ("features",)
        if not self.of_numbers:
            never += ("labeled", "deviation", "targets")
        object.__setattr__(self, "contract", Scaling.contract.without(*never))

    # -- server half ------------------------------------------------------------------------

    def of_features(
        self, ask: Ask, missing: Missing | None = None, *, is_scaled: bool = True
    ) -> State:
        """The mean (d,) and deviation (d,) that all sites now use; 0 for a constant column.

        missing: the rows have empty cells; the answer says what fills them, ``fill`` (d,), and means
        are those of filled rows.  is_scaled: else features stay in their units, mean 0 and
        deviation 1.
        Raises ValueError for a column whose spread is lost in a masked sum.
        """
        if missing is None:
            total = sum_of_all(ask, "columns")
            mean = total["columns"] / total["rows"]
            features = self._spread(ask, total["rows"], {"mean": mean})
        else:
            total = sum_of_all(ask, "cells")
            fill = missing.fill(total["columns"], total["given"])
            empty = total["rows"] - total["given"]  # (d,) cells
            mean = (total["columns"] + empty * fill) / total["rows"]
            features = {"mean": torch.zeros_like(mean), "std": torch.ones_like(mean)}
            features["fill"] = fill
            if is_scaled:
                features = self._spread(ask, total["rows"], {"mean": mean, "fill": fill})
        ask.keep("features", None, **features)
        return features

    def _spread(self, ask: Ask, rows: Tensor, about: State) -> State:
        """``about``, the means and perhaps what fills empty cells, with the deviations."""
        seen = sum_of_all(ask, "spread", None, **about)
        # it varies at some site, and the masked sum of its squares says that it does not
        is_lost = (seen["varies"] > 0) & (seen["squares"] <= 0)
        if bool(is_lost.any()):
            column = int(is_lost.nonzero()[0])
            raise ValueError(
                f"column {column} is constant up to rounding, or too small for masked sums: leave it "
                "out, multiply it by a large number, or lower privacy.bound"
            )
        std = torch.where(seen["varies"] > 0, (seen["squares"] / rows).sqrt(), 0.0)
        if self.is_encoded:
            std = std * math.sqrt(len(std))
        return {**about, "std": std}

    def of_targets(self, ask: Ask) -> State | None:
        """The mean () and deviation () of the numbers bought, deviation 1 where they are all the
        same; None where no site contributes any yet."""
        total = sum_of_all(ask, "labeled")
        n = float(total["rows"])
        if n == 0:
            return None
        mean = total["targets"] / max(n, 1.0)
        squares = sum_of_all(ask, "deviation", mean=mean)["squares"]
        std = (squares / max(n, 1.0)).sqrt()
        std = torch.where(std > TINY * mean.abs(), std, 1.0)
        ask.keep("targets", mean=mean, std=std)
        return {"mean": mean, "std": std}

    # -- site half --------------------------------------------------------------------------

    def columns(self, view: View) -> Answer:
        total = torch.stack([rows.sum(0) for rows in blocks(view)]).sum(0)
        if not bool(total.isfinite().all()):
            c = int((~total.isfinite()).int().argmax())
            bad = sum(int((~rows[:, c].isfinite()).sum()) for rows in blocks(view))
            raise ValueError(
                f"column {c} has {bad} values that are NaN or infinite; fill them, or leave such "
                "rows out"
            )
        return {"rows": float(view.pool + len(view.labels)), "columns": total}

    def cells(self, view: View) -> Answer:
        return {**total_cells(blocks(view))}

    def spread(self, view: View, mean: Tensor, fill: Tensor | None = None) -> Answer:
        squares = torch.zeros_like(mean)
        varies = torch.zeros_like(mean)  # in how many rows a column is away from its mean
        for rows in blocks(view):
            away = filled(rows, fill) - mean
            squares += away.square().sum(0)
            varies += (away.abs() > TINY * mean.abs()).sum(0)
        return {"squares": squares, "varies": varies}

    def labeled(self, view: View) -> Answer:
        return {"rows": float(len(view.labels)), "targets": view.labels.double().sum()}

    def deviation(self, view: View, mean: Tensor) -> Answer:
        return {"squares": (view.labels.double() - mean).square().sum()}

    def features(
        self, view: View, mean: Tensor, std: Tensor, fill: Tensor | None = None
    ) -> Answer:
        if fill is None:
            return {"mean": mean, "std": std}
        return {"mean": mean, "std": std, "fill": fill}

    def targets(self, view: View, mean: Tensor, std: Tensor) -> Answer:
        return {"mean": mean, "std": std}


def blocks(view: View) -> Iterator[Tensor]:
    """All rows of a site, some at a time, (b, d) in float64: the pool, then the labeled rows."""
    kinds: tuple[Rows, Rows] = ("pool", "labeled")
    for which in kinds:
        for rows in view.blocks(which, CHUNK):
            yield rows.flatten(1).double()
