"""Hashed n-grams of texts, weighted by inverse document frequencies over all sites.

The term weighting is that of Salton and Buckley (1988), as in scikit-learn's
`TfidfTransformer`; the projection is a count sketch (Charikar, Chen and Farach-Colton, 2002),
which preserves inner products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.composites import Documents
from fallow.core.contract import Contract
from fallow.core.limits import Limits, NonNegativeInt, PositiveInt
from fallow.core.missing import BUCKETS
from fallow.core.streams import stream
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State, Values
from fallow.core.values import Kind, NonNegative, Positive, Real
from fallow.core.view import View
from fallow.encoders.base import Shape, all_blocks, mean_and_variance, round_digits

BATCH = 1024  # examples at a time
ENCODED = 64  # examples that are encoded at a time: 1 MB of n-grams stays in the cache


FEATURES = Limits(ge=1, le=BUCKETS, advice=", the number of hashed n-grams of a text")


@explain_constructor
@final
@dataclass(frozen=True)
class HashedText:
    """Weight hashed words and character n-grams of text columns, and project them.

    Each text column becomes ``features`` numbers.  Other columns of the table are standardized and
    come before them.

    Parameters
    ----------
    features : int
        Number of features of a text column, at most 4,096.
    columns : int
        Number of text columns, whose hashed n-grams are the last features of a table.
    seed : int
        Seed of the projection.
    half : bool
        Round features to float16.

    Notes
    -----
    A dataset has 4,096 hashed features for each text column: signed counts of words and of 3 to 5
    characters within words.  Sites send how many examples have each of them, the number of
    examples, and sums and squares of other columns, over all examples, labeled or not.  No
    vocabulary and no text leaves a site, but frequent n-grams can be recognized in the aggregates.

    The weight of a feature is ln((1 + examples) / (1 + examples that have it)) + 1, and each
    weighted text has length 1.  The projection adds each of the 4,096 with a random sign to one of
    the ``features``.

    References
    ----------
    Salton, Buckley. Term-Weighting Approaches in Automatic Text Retrieval. 1988.

    Examples
    --------
    >>> HashedText().width((4096,))
    1024
    >>> HashedText(columns=2).width((8195,))  # three other columns
    2051
    """

    features: Annotated[int, FEATURES] = 1024  # D
    columns: PositiveInt = 1
    seed: NonNegativeInt = 0
    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(
        title="Hashed texts",
        paper="Term-Weighting Approaches in Automatic Text Retrieval",
        year=1988,
        authors="Salton, Gerard and Buckley, Christopher",
    )

    def width(self, shape: Shape) -> int:
        return self._count_others(shape) + self.columns * self.features

    def _count_others(self, shape: Shape) -> int:
        """Return the number of columns other than texts."""
        others = math.prod(shape) - self.columns * BUCKETS
        if len(shape) != 1 or others < 0:
            raise ValueError(
                f"{self.contract.title} encodes tables with {self.columns} text column(s); list the "
                "columns of free text with columns= (--columns), or use another encoder"
            )
        return others

    # -- server side ------------------------------------------------------------------------

    def fit(self, ask: Ask, shape: Shape) -> State:
        """Return ``weight`` (columns x 4,096,) and, with other columns, their center and spread.

        A constant column has spread 0.
        """
        others = self._count_others(shape)
        total = sum_of_all(ask, self.frequencies)
        rows = total["rows"].round()
        documents = total["documents"].round().clamp(min=0)  # (columns * BUCKETS,)
        documents = torch.minimum(documents, rows)
        weight = ((1 + rows) / (1 + documents)).log() + 1
        if not others:
            return {"weight": weight}
        mean, variance = mean_and_variance({**total, "rows": rows})
        return {
            "weight": weight,
            "center": round_digits(mean),
            "spread": round_digits(variance.sqrt()),
        }

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of examples, of examples with each hashed n-gram, and of each other "
        "column and of its squares",
        returns=lambda encoder: Documents(encoder.columns * BUCKETS),
        takes={},
        weighted_by="rows",
        over="all",
    )
    def frequencies(self, view: View) -> Values:
        """Return sums over all examples, labeled or not.

        Without other columns, their sums are empty.
        """
        rows = 0
        documents = torch.zeros((), dtype=torch.float64)
        columns = torch.zeros((), dtype=torch.float64)
        squares = torch.zeros((), dtype=torch.float64)
        for block in all_blocks(view, BATCH):  # (b, d)
            others, grams = self._divide(block)
            rows += len(block)
            documents = documents + (grams != 0).sum(0).double()
            columns = columns + others.sum(0)
            squares = squares + others.square().sum(0)
        return {
            "rows": float(rows),
            "documents": documents,
            "columns": columns,
            "squares": squares,
        }

    def state_kinds(self, shape: Shape) -> dict[str, Kind]:
        """Return the kinds of the weights, and of the units of other columns."""
        others = self._count_others(shape)
        kinds: dict[str, Kind] = {"weight": Positive(self.columns * BUCKETS)}
        if others:
            kinds |= {"center": Real(others), "spread": NonNegative(others)}
        return kinds

    # -- all parties ------------------------------------------------------------------------

    def encode(self, x: Tensor, state: State) -> Tensor:
        draw = stream(self.seed, "texts", self.features)
        target = torch.randperm(BUCKETS, generator=draw) % self.features
        sign = torch.randint(2, (BUCKETS,), generator=draw).float() * 2 - 1
        weights = torch.split(state["weight"].float(), BUCKETS)
        first = x.shape[1] - self.columns * BUCKETS  # first column of the texts
        features = torch.zeros(len(x), first + self.columns * self.features)
        blocks = zip(torch.split(x, ENCODED), torch.split(features, ENCODED), strict=True)
        for block, result in blocks:
            others, grams = self._divide(block)
            if others.shape[1]:
                spread = torch.where(state["spread"] > 0, state["spread"], 1.0)
                away = (others.double() - state["center"]) / spread
                result[:, :first] = torch.where(state["spread"] > 0, away, 0.0)
            texts = torch.split(grams.float(), BUCKETS, dim=1)
            parts = torch.split(result[:, first:], self.features, dim=1)
            for text, weight, part in zip(texts, weights, parts, strict=True):
                part.index_add_(1, target, weigh(text, weight).mul_(sign))
        return features

    def _divide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return other columns (n, p) and hashed n-grams (n, columns * 4,096)."""
        grams = self.columns * BUCKETS
        return x[:, :-grams], x[:, -grams:]


def weigh(grams: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted n-grams of a text column, of length 1: (n, 4,096).

    An empty text remains 0.
    """
    weighted = grams * weight
    length = torch.linalg.vector_norm(weighted, dim=1, keepdim=True)
    return weighted.div_(length.clamp_min(1e-12))
