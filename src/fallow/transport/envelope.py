"""Signed envelopes for messages between a coordinator and remote sites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError

from fallow.core.exchange_key import ExchangeKey, read_key
from fallow.core.refusal import Refusal, explain_errors
from fallow.core.types import SiteId, Tree
from fallow.core.version import __version__
from fallow.core.wrong_values import describe_wrong_value
from fallow.privacy.signing import open_signed, sign
from fallow.storage.packing import pack, unpack_received

RequestKind = Literal["request", "deliver", "progress"]
"""Purpose of an instruction: a request, a delivery, or a progress request without effects."""


@dataclass(frozen=True)
class Instruction:
    """Instruction of the coordinator to one site.

    Parameters
    ----------
    number
        Number of the exchange, which only increases. Older numbers are rejected.
    counted
        Key of the last exchange in which this site's reply counted. Later changes at the site are
        undone.
    body
        Packed request, sealed peer messages by sender, or nothing.
    version
        Fallow version of the coordinator.
    life
        ID of the coordinator's process, which a rejection repeats. A new process may send the
        instruction again after the cause was fixed.
    """

    study: str  # hash of the study agreement
    run: str
    site: SiteId
    key: ExchangeKey
    number: int
    counted: str | None = None
    body: Any = None
    version: str = __version__
    life: str = ""

    @property
    def purpose(self) -> RequestKind:
        """Return what the instruction is for."""
        if self.key.phase == "progress":
            return "progress"
        if self.key.is_delivery:
            return "deliver"
        return "request"


@dataclass(frozen=True)
class Reply:
    """Reply of a site: its values, or the reason why there is none.

    ``key`` is None if the instruction could not be read.
    """

    run: str
    site: SiteId
    key: ExchangeKey | None
    body: Tree = field(default_factory=dict)
    refused: str | None = None
    version: str = __version__
    life: str = ""


@dataclass(frozen=True)
class Form:
    """Parser of a kind of message.

    ``head`` has plain fields that ``adapter`` validates by the types of ``kind``. ``rest`` is the
    field with arbitrary content.
    """

    kind: type[Instruction | Reply]
    adapter: TypeAdapter[Any]  # pydantic adapter of this kind of message
    head: tuple[str, ...]
    rest: str


INSTRUCTION = Form(
    kind=Instruction,
    adapter=TypeAdapter(Instruction),
    head=(
        "study",
        "run",
        "site",
        "key",
        "number",
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
    rest="body",
)


def sign_message(secret: bytes, content: Instruction | Reply) -> bytes:
    """Return a signed message."""
    # `asdict` would copy all tensors
    tree = {part.name: getattr(content, part.name) for part in fields(content)}
    if content.key is not None:
        tree["key"] = content.key.to_dict()
    return sign(secret, pack(tree))


def open_instruction(public: bytes, blob: bytes) -> Instruction:
    """Return the instruction in a coordinator's message. Raises ValueError otherwise."""
    fields = _open_message(INSTRUCTION, public, blob, "the coordinator")
    return Instruction(**fields)


def open_reply(public: bytes, blob: bytes, site: SiteId) -> Reply:
    """Return the reply in a site's message. Raises ValueError otherwise."""
    whose = f"site {site}"
    fields = _open_message(REPLY, public, blob, whose)
    if not isinstance(fields["body"], dict):
        raise Refusal(f"a message from {whose} is a reply without fields")
    reply = Reply(**fields)
    if reply.site != site:
        raise Refusal(
            f"a message signed by site {site} is in the name of site {reply.site}"
        )
    return reply


def _open_message(form: Form, public: bytes, blob: bytes, whose: str) -> Tree:
    """Return the validated fields of a signed message. Raises ValueError otherwise."""
    content = open_signed(public, blob, whose)
    try:
        tree = unpack_received(content)
    except ValueError as error:
        raise Refusal(
            f"a message of {len(blob)} bytes from {whose} could not be read"
        ) from error
    if not isinstance(tree, dict) or set(tree) != {*form.head, form.rest}:
        raise Refusal(
            f"a message from {whose} does not have the fields of this version of Fallow"
        )
    head = {name: tree[name] for name in form.head}
    key: ExchangeKey | None = None
    is_unread = form is REPLY and head["key"] is None
    with explain_errors(f"a message from {whose} is invalid: ", to=Refusal):
        if not is_unread:
            key = read_key(head["key"])
    try:
        # as JSON, because strict mode for Python values accepts no dictionary
        form.adapter.validate_json(json.dumps(head), strict=True)
    except (TypeError, RecursionError) as error:  # a tensor, or deeply nested lists
        raise Refusal(f"a message from {whose} has an invalid header") from error
    except ValidationError as error:
        sentence = describe_wrong_value(form.kind, error.errors())
        raise Refusal(f"a message from {whose} is invalid: {sentence}") from error
    head["key"] = key
    head[form.rest] = tree[form.rest]
    return head


# -- versions: compatible ones select the same examples -----------------------------------------


def check_release(
    theirs: str, whose: str, own: str = __version__, mine: str = "this machine"
) -> None:
    """Raise ValueError if two versions may compute differently.

    This is the case if the first two components of their version numbers differ.

    >>> check_release("0.4.1", "site north", own="0.4.0")
    >>> check_release("0.4.1", "b", own="0.5.0", mine="a")
    Traceback (most recent call last):
    fallow.core.refusal.Refusal: b has Fallow 0.4.1 and a 0.5.0: ...
    """
    if theirs.split(".")[:2] != own.split(".")[:2]:
        raise Refusal(
            f"{whose} has Fallow {theirs} and {mine} {own}: their results may "
            "differ; install one version everywhere"
        )


class Transport(Protocol):
    """Transport of messages to sites and of their replies. Content is not inspected.

    A message is delivered at least once, also after a restart of any component, until its site
    replies or `send` replaces the message. Replies may therefore be late or duplicated.
    """

    def send(self, messages: Mapping[SiteId, bytes]) -> None: ...

    # waits for at most this many seconds
    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]: ...

    def online(self) -> set[SiteId]: ...
    def close(self) -> None: ...
