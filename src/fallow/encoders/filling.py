"""Empty cells filled in before rows are encoded: by totals over sites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.complete import sum_of_all
from fallow.core.contract import Contract
from fallow.core.missing import Missing, total_cells
from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId
from fallow.core.view import View
from fallow.encoders.base import round_digits
from fallow.encoders.rows import CHUNK, KINDS


@final
@dataclass(frozen=True)
class Filling:
    """What sites put into empty cells, so that an encoder sees whole rows.

    The totals are those of `training.scaling.Scaling`, over all rows at the sites, labeled or not,
    never over test rows: of a number the mean, of a category the most frequent level.  Where there
    is no encoder they are told together with units of columns, and this is not asked.

    Notes
    -----
    What fills a cell is rounded to twelve binary digits, as encoders round what they are fitted to:
    then features are the same, bit for bit, however rows are spread over sites.
    """

    missing: Missing

    contract: ClassVar[Contract] = Contract(
        title="Empty cells",
        sum={
            "cells": "totals over sites of rows, of each column, and of its cells that are not empty",
        },
        keep={"fill": "nothing"},
    )

    def agree(self, ask: Ask) -> Tensor:
        """What an empty cell of each column becomes at all sites from now on: (d,) float64."""
        total = sum_of_all(ask, "cells")
        fill = round_digits(self.missing.fill(total["columns"], total["given"]))
        ask.keep("fill", None, fill=fill)
        return fill

    # -- site half --------------------------------------------------------------------------

    def cells(self, view: View) -> Answer:
        return {**total_cells(_blocks(view))}

    def fill(self, view: View, fill: Tensor) -> Answer:
        """What the site remembers."""
        return {"fill": fill}


def check_fill(site: SiteId, fill: object, width: int) -> None:
    """Raise Refusal unless ``fill`` has a number for each of so many columns."""
    if isinstance(fill, Tensor) and fill.shape == (width,):
        return
    raise Refusal(
        f"site {site} was not sent what fills the empty cells of its {width} columns; the "
        "coordinator has to begin the study anew"
    )


def _blocks(view: View) -> Iterator[Tensor]:
    """All rows of a site, some at a time: (b, d) float64, NaN where a cell is empty."""
    for which in KINDS:
        for rows in view.blocks(which, CHUNK):
            yield rows.flatten(1).double()
