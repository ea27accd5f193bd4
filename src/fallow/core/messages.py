"""What crosses the door: requests to sites, the steps in them, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

from torch import Tensor

from fallow.core.disclosure import payload
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Answer, SiteId

Kind = Literal["fit", "sum", "each", "keep", "relay"]


To = Mapping[SiteId, Answer]


class ExchangeEntry(TypedDict):
    """An exchange as a journal keeps it."""

    answers: dict[SiteId, Answer]
    up: int  # bytes
    down: int
    epsilon: NotRequired[float]  # what a site spent on noise, at most


KEYS = "keys"
"""The exchange before a masked sum, in which sites show the public halves of fresh keys."""


@dataclass(frozen=True)
class Masked:
    """What a site needs to know to mask its part of a sum.

    ``exchange`` is the same in every attempt at one sum, so that noise is drawn for it once.
    """

    exchange: str
    attempt: int
    bound: float | None  # the largest absolute value a site may add
    # (32,) uint8 of each site in it
    keys: Mapping[SiteId, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.bound is not None and not 0 < self.bound < math.inf:
            raise ValueError(
                f"the bound of a sum is {self.bound}; it must be above 0 and finite"
            )


@dataclass(frozen=True)
class Step:
    """One thing a site is asked to do: run a verb of a method, or train a model.

    ``masked``: the step is part of a secure sum (kind "each": show a public key).
    """

    kind: Kind
    verb: str  # the verb, or for "fit" the name under which the site remembers the model
    args: Answer
    training_config: TrainingConfig | None = None
    masked: Masked | None = None


Steps = list[tuple[Step, To | None]]
"""What is asked, and of whom (None: of everybody)."""


@dataclass(frozen=True)
class Request:
    """Everything one site is sent in one exchange.

    The last two tell the carrier what is worth nothing: an addend beyond ``bound``, and with
    ``needs_all`` an exchange that misses a site.  Sites do not hear them.
    """

    key: str  # the same key never means two things
    owner: str  # whose verbs: "query" or "training"
    cycle: int
    round: int
    steps: tuple[Step, ...]
    bound: float | None = None
    needs_all: bool = False


@dataclass(frozen=True)
class Delivered:
    """What came back: an answer per site, and the bytes that crossed in each direction.

    ``epsilon``: the most that any site spent on noise in this exchange.
    """

    answers: dict[SiteId, Answer]
    bytes_up: int
    bytes_down: int
    epsilon: float = 0.0


def payload_of(request: Request) -> int:
    """Bytes of tensors and numbers that a request carries to its site."""
    keys = (step.masked.keys for step in request.steps if step.masked)
    return sum(payload(step.args) for step in request.steps) + sum(
        payload(dict(k)) for k in keys
    )
