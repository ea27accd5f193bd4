"""Selection of a field of the encoder by leave-one-out loss.

It runs once, on the initial labeled set of all sites and before training.  Sites send the products
of their labeled examples for each candidate of the encoder, the server side solves for all
penalties, and sites reply with leave-one-out losses (`training.parts.ridge`).  The candidate with
the smallest aggregated loss encodes all examples for the rest of the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Products
from fallow.core.contract import Contract
from fallow.core.methods import TunableEncoder
from fallow.core.types import State, Values
from fallow.core.values import Kind, NonNegative, Real, Whole
from fallow.core.view import View
from fallow.training.parts.closed_form import (
    FEW,
    Labeled,
    labeled_rows,
    losses_of,
    read_totals,
    totals_of,
)
from fallow.training.parts.ridge import PENALTIES, Path, decompose

MAX_CANDIDATES = 8  # maximum number of candidates, one exchange each
PATH = "path_"
"""Prefix of arguments with solutions."""


@final
@dataclass(frozen=True)
class Tuning:
    """Select among the candidates of an encoder, such as lengths of a kernel.

    Parameters
    ----------
    encoder : Encoder
        Encoder whose candidates are compared, with a small number of features.
    shape : tuple of int
        Shape of one example before encoding.

    Notes
    -----
    Examples of a labeled set that was drawn at random represent all examples.  This holds for the
    initial labeled set, so the selection runs once on that set.
    """

    encoder: TunableEncoder
    shape: tuple[int, ...]

    contract: ClassVar[Contract] = Contract(
        title="Selection of the encoder's parameter",
        missing="stops: all candidates are compared on the same examples",
        regression=True,
        local_dp=False,
    )

    # -- server side ------------------------------------------------------------------------

    def tune(self, ask: Ask, state: State) -> State:
        """Return the state of the encoder with the candidate of the smallest loss.

        With too few labels for leave-one-out, the default candidate is returned.
        """
        candidates = self.encoder.candidates(state)
        paths: list[Path] = []
        for index in range(len(candidates)):
            total = read_totals(
                sum_of_all(ask, self.products, None, candidate=index, **state)
            )
            if total.rows < FEW:
                return self.encoder.usual(state)
            paths.append(decompose(total.totals))

        stacked: dict[str, Tensor] = {}
        for name in Path._fields:
            stacked[f"{PATH}{name}"] = torch.stack([getattr(path, name) for path in paths])
        lost = sum_of_all(ask, self.left_out, None, **stacked, **state)
        least = lost["squared"].min(dim=1).values  # (candidates,), over penalties
        return candidates[int(least.argmin())]

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of products of labeled examples and labels, for each candidate of "
        "the encoder",
        returns=Products("sketch", is_weighted=False),
        takes=lambda self: self._candidate_kinds(),
        times=MAX_CANDIDATES,
        reveals_parts="the coordinator sees the products of each site's labeled "
        "examples: those of a single example reveal it with its label, and "
        "those of a few reveal their common properties",
    )
    def products(self, view: View, candidate: int, **state: Tensor) -> Values:
        """Return products of the labeled examples for one candidate of the encoder."""
        return totals_of(self._encode(view, self.encoder.candidates(state)[candidate]))

    @client.sum(
        "aggregates of leave-one-out losses, for each candidate of the encoder",
        returns=lambda self: {
            "squared": NonNegative((self.encoder.n_candidates, len(PENALTIES)))
        },
        takes=lambda self: self._path_kinds(),
    )
    def left_out(self, view: View, **arguments: Tensor) -> Values:
        """Return leave-one-out losses: ``squared`` (candidates, penalties)."""
        squared = []
        for index, candidate in enumerate(self.encoder.candidates(arguments)):
            path = Path(*(arguments[f"{PATH}{name}"][index] for name in Path._fields))
            rows = self._encode(view, candidate)
            lost = losses_of(rows, path, PENALTIES, is_class=view.classes > 0)
            squared.append(lost["squared"])
        return {"squared": torch.stack([torch.as_tensor(item) for item in squared])}

    def _candidate_kinds(self) -> dict[str, Kind]:
        """Return the arguments for the products of one candidate."""
        number = Whole(upto=(self.encoder.n_candidates - 1,))
        return {"candidate": number, **self.encoder.untuned_kinds(self.shape)}

    def _path_kinds(self) -> dict[str, Kind]:
        """Return the arguments with the solutions of all candidates."""
        n = self.encoder.n_candidates
        size = self.encoder.sketch().width(self.shape)
        kinds: dict[str, Kind] = {
            f"{PATH}e": NonNegative((n, size)),
            f"{PATH}u": Real((n, size, size)),
            f"{PATH}ub": Real((n, size, "outputs")),
            f"{PATH}mass": NonNegative(n),
            f"{PATH}z": Real((n, size)),
            f"{PATH}y": Real((n, "outputs")),
        }
        return {**kinds, **self.encoder.untuned_kinds(self.shape)}

    def _encode(self, view: View, candidate: State) -> Labeled:
        """Encode the labeled examples with a small number of features of a candidate, (n, D')."""
        x = view.rows("labeled")
        sketch = self.encoder.sketch()
        z = torch.zeros(0, sketch.width(tuple(x.shape[1:])))
        if len(x):
            z = sketch.encode(x, candidate)
        return labeled_rows(view, z, None, is_weighted=False)
