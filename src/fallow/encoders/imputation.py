"""Imputation of empty cells before encoding, by aggregates over sites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Cells
from fallow.core.contract import Contract
from fallow.core.missing import Missing, total_cells
from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId
from fallow.core.values import Fill
from fallow.core.view import View
from fallow.encoders.base import round_digits
from fallow.encoders.rows import CHUNK, KINDS


@final
@dataclass(frozen=True)
class Imputation:
    """Impute empty cells, so that an encoder receives complete examples.

    The aggregates are those of `training.scaling.Scaling`, over all examples at the sites, labeled
    or not, and never over test examples: the mean of a number, the most frequent level of a
    category.  Without an encoder, feature scaling computes them.

    Notes
    -----
    Imputed values are rounded to twelve binary digits, like the fitted states of encoders.
    Features are then identical for every partition.
    """

    missing: Missing

    contract: ClassVar[Contract] = Contract(
        title="Empty cells",
    )

    def agree(self, ask: Ask) -> Tensor:
        """Return the imputed value of each column, for all sites: (d,) float64."""
        total = sum_of_all(ask, self.cells)
        fill = round_digits(self.missing.fill(total["columns"], total["observed"]))
        ask.keep(self.fill, None, fill=fill)
        return fill

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples, of each column and of its non-empty cells",
        returns=Cells(),
        takes={},
        weighted_by="rows",
    )
    def cells(self, view: View) -> Answer:
        return {**total_cells(_blocks(view))}

    @client.keep("nothing", takes={"fill": Fill()})
    def fill(self, view: View, fill: Tensor) -> Answer:
        """Return the state that the site stores."""
        return {"fill": fill}


def check_fill(site: SiteId, fill: object, width: int) -> None:
    """Raise Refusal unless ``fill`` has a number for each of ``width`` columns."""
    if isinstance(fill, Tensor) and fill.shape == (width,):
        return
    raise Refusal(
        f"site {site} did not receive the imputed values of its {width} columns; the "
        "coordinator has to start the study again"
    )


def _blocks(view: View) -> Iterator[Tensor]:
    """Yield all examples of a site in blocks: (b, d) float64, NaN for an empty cell."""
    for which in KINDS:
        for rows in view.blocks(which, CHUNK):
            yield rows.flatten(1).double()
