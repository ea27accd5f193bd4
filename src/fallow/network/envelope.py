"""What travels between a coordinator and real sites: signed envelopes around packed contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError

from fallow.core.kinds import describe_wrong_value
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId, Tree
from fallow.network.release import HERE
from fallow.privacy.signing import open_signed, sign
from fallow.storage.packing import pack, unpack_received

Errand = Literal["request", "deliver", "progress"]
"""Perform a request; take what a relay brought; say how labeling goes, which changes nothing."""


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
    answer: Tree = field(default_factory=dict)
    refused: str | None = None
    version: str = HERE
    life: str = ""


@dataclass(frozen=True)
class Form:
    """How a kind of message is read: its ``head`` is plain words, by an adapter that knows the type
    of each field of its ``kind``; ``rest`` is the one field that may be anything."""

    kind: type[Order | Reply]
    adapter: TypeAdapter[Any]  # of the kind: pydantic's own type says no more
    head: tuple[str, ...]
    rest: str


ORDER = Form(
    kind=Order,
    adapter=TypeAdapter(Order),
    head=(
        "study",
        "run",
        "site",
        "key",
        "place",
        "errand",
        "counted",
        "version",
        "life",
    ),
    rest="body",
)
REPLY = Form(
    kind=Reply,
    adapter=TypeAdapter(Reply),
    head=("run", "site", "key", "refused", "version", "life"),
    rest="answer",
)


def sign_message(secret: bytes, content: Order | Reply) -> bytes:
    """A signed message."""
    return sign(secret, pack(asdict(content)))


def open_order(public: bytes, blob: bytes) -> Order:
    """The order in a message of the coordinator; ValueError for any other message."""
    fields = _open_message(ORDER, public, blob, "the coordinator")
    return Order(**fields)


def open_reply(public: bytes, blob: bytes, site: SiteId) -> Reply:
    """The reply in a message of a site; ValueError for any other message."""
    whose = f"site {site}"
    fields = _open_message(REPLY, public, blob, whose)
    if not isinstance(fields["answer"], dict):
        raise Refusal(f"a message from {whose} answers with no fields")
    reply = Reply(**fields)
    if reply.site != site:
        raise Refusal(f"a message signed by site {site} says that it is from {reply.site}")
    return reply


def _open_message(form: Form, public: bytes, blob: bytes, whose: str) -> Tree:
    """The fields of a signed message, its head looked at.  Raises ValueError for any other."""
    content = open_signed(public, blob, whose)
    try:
        tree = unpack_received(content)
    except ValueError as error:
        raise Refusal(
            f"a message of {len(blob)} bytes from {whose} could not be read"
        ) from error
    if not isinstance(tree, dict) or set(tree) != {*form.head, form.rest}:
        raise Refusal(
            f"a message from {whose} has not the fields of this version of Fallow"
        )
    head = {name: tree[name] for name in form.head}
    try:
        # as JSON, because the strict mode for Python values takes no dictionary
        form.adapter.validate_json(json.dumps(head), strict=True)
    except (TypeError, RecursionError) as error:  # a tensor, or lists in lists in lists
        raise Refusal(f"a message from {whose} has no plain words at its head") from error
    except ValidationError as error:
        sentence = describe_wrong_value(form.kind, error.errors())
        raise Refusal(f"in a message from {whose} {sentence}") from error
    head[form.rest] = tree[form.rest]
    return head


class Link(Protocol):
    """Carries messages to sites and brings answers back; neither is looked into.

    A message is delivered at least once, again after a restart of anything in between, until its
    site answers or `send` replaces it.  So answers may come twice and late.
    """

    def send(self, messages: Mapping[SiteId, bytes]) -> None: ...

    # waits for at most so many seconds
    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]: ...

    def online(self) -> set[SiteId]: ...
    def close(self) -> None: ...
