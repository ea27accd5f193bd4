"""Agreements before training: imputed values of empty cells, and the fitted encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Cells
from fallow.core.contract import Contract
from fallow.core.methods import Encoder
from fallow.core.missing import Missing, total_cells
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId, State, Value, Values
from fallow.core.values import Fill, Kind, Real, Text
from fallow.core.view import View
from fallow.encoders.base import (
    EMPTY_CELLS,
    Shape,
    StateDeclaring,
    all_blocks,
    encode_rows,
    encoder_digest,
    round_digits,
)

DIGEST = "encoder_digest"
"""Argument with the digest of the encoder of the coordinator."""


@final
@dataclass(frozen=True)
class Encoding:
    """Send the fitted state of an encoder to the sites, which then encode their examples.

    shape: of an example before encoding.  fills: the state also contains the imputed values of
    empty cells.
    """

    encoder: Encoder
    shape: Shape
    fills: bool = False

    contract: ClassVar[Contract] = Contract(title="Encoding")

    def hand_over(self, ask: Ask, state: State) -> None:
        """Send the fitted state to the sites; those with another encoder reject it."""
        details: Values = {DIGEST: encoder_digest(self.encoder), **state}
        ask.keep(self.encode, None, **details)

    @client.keep("nothing", takes=lambda self: self._state_kinds())
    def encode(self, view: View, **arguments: Value) -> Values:
        """Return the state that the site stores."""
        return {name: value for name, value in arguments.items() if name != DIGEST}

    def check(self, site: SiteId, args: Values) -> None:
        """Raise Refusal if the site cannot encode with the received state.

        One example of zeros is encoded, to detect errors before the study depends on it.
        """
        fill = args.get(EMPTY_CELLS)
        lacking = Fill(self.fills).find_wrong_form(
            EMPTY_CELLS, fill, {"cells": math.prod(self.shape)}
        )
        if lacking is not None:
            raise Refusal(f"site {site}: {lacking}")
        own = encoder_digest(self.encoder)
        title = self.encoder.contract.title
        digest = args.get(DIGEST)
        if digest != own:
            raise Refusal(
                f"site {site} has another version of {title} than the coordinator, or "
                "other weights: install the same ones"
            )
        state = {name: value for name, value in args.items() if isinstance(value, Tensor)}
        try:
            encode_rows(self.encoder, torch.zeros((1, *self.shape)), state)
        except (ValueError, KeyError, RuntimeError) as error:
            raise Refusal(
                f"site {site} cannot encode its examples with the received state of {title}: an "
                "example of zeros has no features; the coordinator has to start the study again"
            ) from error

    def _state_kinds(self) -> dict[str, Kind]:
        """Return the digest of the encoder, and the tensors of its fitted state."""
        kinds: dict[str, Kind] = {DIGEST: Text()}
        if self.fills:
            kinds[EMPTY_CELLS] = Real(math.prod(self.shape))
        if isinstance(self.encoder, StateDeclaring):
            kinds |= self.encoder.state_kinds(self.shape)
        return kinds


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
        over="all",
    )
    def cells(self, view: View) -> Values:
        return {**total_cells(all_blocks(view))}

    @client.keep("nothing", takes={"fill": Fill()})
    def fill(self, view: View, fill: Tensor) -> Values:
        """Return the state that the site stores."""
        return {"fill": fill}
