"""The hand-over: every site encodes its rows by what was fitted, for the rest of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.methods import Encoder
from fallow.core.refusal import Refusal
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.encoders.base import Shape, encode_rows, encoder_digest


@final
@dataclass(frozen=True)
class Encoding:
    """Sites remember what an encoder was fitted to, and see their rows through it from then on.

    shape: of a row as it is measured.
    """

    encoder: Encoder
    shape: Shape

    contract: ClassVar[Contract] = Contract(title="Encoding", keep={"encode": "nothing"})

    def hand_over(self, ask: Ask, state: State) -> None:
        """Give the sites what was fitted; those that have another encoder refuse."""
        about: Answer = {"digest": encoder_digest(self.encoder), **state}
        ask.keep("encode", None, **about)

    def encode(self, view: View, digest: str, **state: torch.Tensor) -> Answer:
        """What the site remembers.  One row of zeros is encoded first, so that what cannot be
        encoded by is refused before anything is computed with it."""
        own = encoder_digest(self.encoder)
        if digest != own:
            raise Refusal(
                f"site {view.site} encodes rows by {self.encoder.contract.title} {own[:8]} and the "
                f"coordinator by {str(digest)[:8]!r}: one of them has another version of it, or "
                "other weights; install the same ones"
            )
        try:
            encode_rows(self.encoder, torch.zeros(1, *self.shape), state)
        except (ValueError, KeyError, RuntimeError) as error:
            raise Refusal(
                f"site {view.site} cannot encode its rows by what it was sent for "
                f"{self.encoder.contract.title}; the coordinator has to begin the study anew"
            ) from error
        return dict(state)
