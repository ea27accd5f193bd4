"""Messages between server side and sites: requests, their steps, replies, and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

from torch import Tensor

from fallow.core.disclosure import payload
from fallow.core.exchange_key import ExchangeKey
from fallow.core.limits import PositiveFinite, check_limits
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, Values

Kind = Literal["fit", "sum", "each", "keep", "relay"]


To = Mapping[SiteId, Values]


class ExchangeEntry(TypedDict):
    """An exchange in the event log."""

    replies: dict[SiteId, Values]
    up: int  # bytes
    down: int
    epsilon: NotRequired[float]  # maximum privacy budget spent by a site


KEYS = "keys"
"""Exchange before secure aggregation, in which sites send new public keys."""


@dataclass(frozen=True)
class Masked:
    """Parameters with which a site masks its contribution.

    ``exchange`` is the same in every attempt at an aggregate, so noise is drawn once.
    """

    exchange: ExchangeKey
    attempt: int
    bound: PositiveFinite | None  # largest absolute value of a contribution
    # (32,) uint8 of each site
    keys: Mapping[SiteId, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_limits(self, "the sum's ")


@dataclass(frozen=True)
class Step:
    """One step of a site: run a client function of an algorithm, or train a model.

    ``masked``: the step is part of secure aggregation (kind "each": send a public key).
    """

    kind: Kind
    function: (
        str  # the client function; for "fit" the name under which the site stores the model
    )
    args: Values
    training_config: TrainingConfig | None = None
    masked: Masked | None = None


Steps = list[tuple[Step, To | None]]
"""Steps with their recipients (None: all sites)."""


@dataclass(frozen=True)
class Request:
    """All instructions for one site in one exchange.

    The last two fields are for the transport: a contribution beyond ``bound`` is invalid, and with
    ``needs_all`` so is an exchange that misses a site.  Sites do not receive them.
    """

    key: ExchangeKey
    owner: str  # owner of the client functions: "query" or "training"
    cycle: int
    round: int
    steps: tuple[Step, ...]
    bound: float | None = None
    needs_all: bool = False


@dataclass(frozen=True)
class Delivered:
    """Replies by site, and the number of bytes in each direction.

    ``epsilon``: the maximum privacy budget that a site spent in this exchange.
    """

    replies: dict[SiteId, Values]
    bytes_up: int
    bytes_down: int
    epsilon: float = 0.0


StateName = tuple[SiteId, str]
"""A site, and the name of a state in its memory."""


def is_main(step: Step, request: Request) -> bool:
    """Return whether a fit trains the main model of the training algorithm."""
    return request.owner == "training" and step.function == "local"


def list_replaced(requests: Mapping[SiteId, Request]) -> list[StateName]:
    """Return the states that sites replace before they read them.

    A first step that trains the main model from the received or from new weights does not
    read the result of earlier training.
    """
    replaced = []
    for site, request in requests.items():
        step = request.steps[0]
        if step.training_config is None or not is_main(step, request):
            continue
        if step.training_config.start in ("given", "scratch"):
            replaced.append((site, step.function))
    return replaced


def payload_of(request: Request) -> int:
    """Return the bytes of tensors and numbers in a request."""
    keys = (step.masked.keys for step in request.steps if step.masked)
    return sum(payload(step.args) for step in request.steps) + sum(
        payload(dict(k)) for k in keys
    )


def digest_exchange(
    steps: Sequence[tuple[Step, To | None]],
    cohort: Sequence[SiteId],
    bound: float | None = None,
    routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
) -> str:
    """Return a digest of instructions and recipients, to detect changes under the same key."""
    ways = sorted((to, list(senders)) for to, senders in (routes or {}).items())
    h = hashlib.sha256(repr((list(cohort), bound, ways)).encode())
    for step, to in steps:
        asked = None
        if to is not None:
            asked = sorted(to)
        h.update(repr((step.kind, step.function, step.training_config, asked)).encode())
        masked = step.masked
        if masked is not None:
            h.update(repr((str(masked.exchange), masked.attempt, masked.bound)).encode())
            _hash_args(h, dict(masked.keys))
        _hash_args(h, step.args)
        if to is not None:
            for site in sorted(to):
                _hash_args(h, to[site])
    return h.hexdigest()


def _hash_args(h: hashlib._Hash, args: Values) -> None:
    for name in sorted(args):
        value = args[name]
        h.update(f"|{name}=".encode())
        if isinstance(value, Tensor):
            h.update(str((value.dtype, tuple(value.shape))).encode())
            h.update(value.detach().contiguous().numpy().tobytes())
        else:
            h.update(repr(value).encode())
