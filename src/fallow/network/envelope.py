"""What travels between a coordinator and real sites: signed envelopes around packed contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError

from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.network.release import HERE
from fallow.privacy.signing import open_signed, sign
from fallow.storage.packing import pack, unpack

Errand = Literal["request", "deliver", "progress"]
"""Perform a request; take what a relay brought; say how labelling goes, which changes nothing."""


@dataclass(frozen=True)
class Order:
    """What the coordinator sends to one site.

    ``place``: the number of the exchange, which only grows; an older one is refused.  ``counted``:
    the key of the last exchange in which this site's answer counted; what the site did after that
    came too late and is undone.  ``body``: a packed request, sealed answers by sender, or nothing.
    ``version``: of Fallow at the coordinator.  ``life``: of the coordinator's process; a refusal
    repeats it, because the next process may ask again when what was wrong is right.
    """

    study: str  # digest of the agreed study
    run: str
    site: SiteId
    key: str
    place: int
    errand: Errand = "request"
    counted: str | None = None
    body: Any = None
    version: str = HERE
    life: str = ""


@dataclass(frozen=True)
class Reply:
    """What a site of a ``version`` sends back: an answer, or a sentence that says why there is
    none."""

    run: str
    site: SiteId
    key: str
    answer: dict[str, Any] = field(default_factory=dict)
    refused: str | None = None
    version: str = HERE
    life: str = ""


ORDER, REPLY = TypeAdapter(Order), TypeAdapter(Reply)
HEAD = {
    Order: ("study", "run", "site", "key", "place", "errand", "counted", "version", "life"),
    Reply: ("run", "site", "key", "refused", "version", "life"),
}


def sign_message(secret: bytes, content: Order | Reply) -> bytes:
    """A signed message."""
    return sign(secret, pack(asdict(content)))


def open_order(public: bytes, blob: bytes) -> Order:
    """The order in a message of the coordinator; ValueError for any other message."""
    found: Order = _open_message(Order, ORDER, public, blob, "the coordinator")
    return found


def open_reply(public: bytes, blob: bytes, site: SiteId) -> Reply:
    """The reply in a message of a site; ValueError for any other message."""
    found: Reply = _open_message(Reply, REPLY, public, blob, f"site {site}")
    if found.site != site:
        raise Refusal(f"a message signed by site {site} says that it is from {found.site}")
    return found


def _open_message(kind: Any, check: Any, public: bytes, blob: bytes, whose: str) -> Any:
    content = open_signed(public, blob, whose)
    try:
        tree = unpack(content)
    except ValueError as error:
        raise Refusal(
            f"a message of {len(blob)} bytes from {whose} could not be read"
        ) from error
    rest = "body" if kind is Order else "answer"
    if not isinstance(tree, dict) or set(tree) != {*HEAD[kind], rest}:
        raise Refusal(
            f"a message from {whose} has not the fields of this version of Fallow"
        )
    head = {name: tree[name] for name in HEAD[kind]}
    try:
        check.validate_json(
            json.dumps(head), strict=True
        )  # Python's strict mode takes no dict
    except (TypeError, RecursionError) as error:  # a tensor, or lists in lists in lists
        raise Refusal(f"a message from {whose} has no plain words at its head") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(
            f"a message from {whose} has a wrong {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error
    if kind is Reply and not isinstance(tree[rest], dict):
        raise Refusal(f"a message from {whose} answers with no fields")
    return kind(**head, **{rest: tree[rest]})


class Link(Protocol):
    """Carries messages to sites and brings answers back; neither is looked into.

    A message is delivered at least once, again after a restart of anything in between, until its
    site answers or `send` replaces it.  So answers may come twice and late.
    """

    def send(self, messages: Mapping[SiteId, bytes]) -> None: ...
    def receive(
        self, seconds: float
    ) -> list[tuple[SiteId, bytes]]: ...  # waits at most so long
    def online(self) -> set[SiteId]: ...
    def close(self) -> None: ...
