"""Distribution of a fitted encoder: every site encodes its examples with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.methods import Encoder
from fallow.core.refusal import Refusal, explain_errors
from fallow.core.types import Answer, SiteId, State
from fallow.core.view import View
from fallow.encoders.base import (
    EMPTY_CELLS,
    Shape,
    StateChecking,
    encode_rows,
    encoder_digest,
)
from fallow.encoders.imputation import check_fill


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
        details: Answer = {"digest": encoder_digest(self.encoder), **state}
        ask.keep(self.encode, None, **details)

    @client.keep("nothing")
    def encode(self, view: View, digest: str, **state: Tensor) -> Answer:
        """Return the state that the site stores."""
        self.check(view.site, {"digest": digest, **state})
        return dict(state)

    def check(self, site: SiteId, args: Answer) -> None:
        """Raise Refusal if the site cannot encode with the received state.

        The state must have the tensors that the encoder declares.  One example of zeros is encoded,
        to detect errors before the study depends on it.
        """
        if self.fills:
            check_fill(site, args.get(EMPTY_CELLS), math.prod(self.shape))
        own = encoder_digest(self.encoder)
        title = self.encoder.contract.title
        digest = args.get("digest")
        if digest != own:
            raise Refusal(
                f"site {site} has another version of {title} than the coordinator, or "
                "other weights: install the same ones"
            )
        state = {name: value for name, value in args.items() if isinstance(value, Tensor)}
        if isinstance(self.encoder, StateChecking):
            fitted = {name: part for name, part in state.items() if name != EMPTY_CELLS}
            with explain_errors(
                f"site {site} cannot encode its examples with the received state of {title}: ",
                after="; the coordinator has to start the study again",
                of=Refusal,
                to=Refusal,
            ):
                self.encoder.check_state(self.shape, fitted)
        try:
            encode_rows(self.encoder, torch.zeros((1, *self.shape)), state)
        except (ValueError, KeyError, RuntimeError) as error:
            raise Refusal(
                f"site {site} cannot encode its examples with the received state of "
                f"{title}; the coordinator has to start the study again"
            ) from error
