"""Sealed relays: what goes from site to site while the coordinator carries it.

Two orders under two keys.  The first asks the senders, with the seal keys of their receivers; each
answers with one sealed letter for each of them.  The second, an errand "deliver" under the key with
"/deliver" behind it, brings receivers their letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.disclosure import payload
from fallow.core.messages import Request
from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId, State, Tree, Value
from fallow.core.weights import lower_median
from fallow.network.envelope import Order
from fallow.network.plausible import does_fit
from fallow.network.wire import pack_request, unpack_request
from fallow.privacy.sealed import HALF, TAG, decrypt, encrypt_for
from fallow.sites.store import RelayedMessage
from fallow.storage.packing import pack, unpack_received
from fallow.storage.plain import plain

LETTER = "letter/"  # before the receiver's name: a field of what a sender answers
BYTES = "bytes"  # the field beside: how much that is before it is sealed
NEWS = "news"  # the field of an order
PROOFS = "proofs"
"""The field of an order for a masked part: of each site its identity key and its signature."""
LONGEST = 1000  # letters of news that are read
CLAIM = "labels"  # the field of a letter by which its model weighs
ANEW = "~"
"""Stands in a key before the number of times that its step was asked anew."""
DELIVER = "/deliver"


OrderBody = Tree
"""What an order brings: a packed request with what belongs to it, or sealed letters."""


class Delivery(NamedTuple):
    """What a delivery brought: letters by sender, those of ``refused`` senders among them as
    numbers that no average uses (NaN).  ``refused``: a sentence for each.  ``cycle``: in which."""

    verb: str
    letters: dict[SiteId, RelayedMessage]
    refused: dict[SiteId, str]
    cycle: int


def bytes_to_tensor(content: bytes) -> Tensor:
    """Bytes as a tensor, (n,) uint8."""
    if not content:
        return torch.zeros(0, dtype=torch.uint8)  # which `frombuffer` refuses to make
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def tensor_to_bytes(value: object, what: str) -> bytes:
    """The bytes in what `bytes_to_tensor` made; ValueError for anything else."""
    if not isinstance(value, Tensor) or value.dtype != torch.uint8 or value.ndim != 1:
        raise ValueError(f"{what} is no row of bytes")
    return bytes(value.numpy().tobytes())


# -- the first leg ------------------------------------------------------------------------------


def request_body(
    request: Request,
    to: Mapping[SiteId, bytes] | None = None,
    news: str = "",
    proofs: Mapping[SiteId, Tensor] | None = None,
) -> OrderBody:
    """The body of an order to perform a request.  to: the seal keys of those who receive what the
    site relays.  news: what people at the site should know, where there is anything.  proofs: of
    the public keys in a masked sum (`network.sum_keys`)."""
    keys = {site: bytes_to_tensor(key) for site, key in (to or {}).items()}
    body: OrderBody = {"request": bytes_to_tensor(pack_request(request)), "to": keys}
    if news:
        body[NEWS] = news
    if proofs:
        body[PROOFS] = dict(proofs)
    return body


def read_news(order: Order) -> str:
    """What people at the site should know, which most orders do not have."""
    if not isinstance(order.body, dict):
        return ""
    news = order.body.get(NEWS)
    if not isinstance(news, str):
        return ""
    return news[:LONGEST]


def read_request(order: Order) -> tuple[Request, dict[SiteId, bytes]]:
    """The request in an order, and the seal keys of receivers; ValueError for anything else."""
    names = {"request", "to"}
    if read_news(order):
        names.add(NEWS)
    if isinstance(order.body, dict) and PROOFS in order.body:
        names.add(PROOFS)
    body = _read_fields(order, names)
    try:
        request = unpack_request(
            tensor_to_bytes(body["request"], "the request of an order")
        )
    except ValueError as error:
        raise Refusal(f"the order {order.key}: {error}") from error
    if request.key != order.key.partition(ANEW)[0]:
        raise Refusal(f"the order {order.key} carries the request {request.key}")
    if not isinstance(body["to"], dict):
        raise Refusal(f"the order {order.key} does not say who receives what it relays")
    try:
        to = {
            site: tensor_to_bytes(key, f"the seal key of site {site}")
            for site, key in body["to"].items()
        }
    except ValueError as error:
        raise Refusal(f"the order {order.key}: {error}") from error
    if any(len(key) != HALF for key in to.values()):
        raise Refusal(f"the order {order.key} has a seal key that has not {HALF} bytes")
    return request, to


def seal_letters(order: Order, answer: Answer, to: Mapping[SiteId, bytes]) -> Answer:
    """What a sender answers: its verb's answer for each receiver, sealed, and how many bytes that
    is before it is sealed."""
    state = {name: torch.as_tensor(value) for name, value in answer.items()}
    content = pack(state)
    letters: Answer = {}
    for site in sorted(to):
        letter = _name_letter(order, order.site, site)
        sealed = encrypt_for(to[site], content, letter)
        letters[f"{LETTER}{site}"] = bytes_to_tensor(sealed)
    return {**letters, BYTES: payload(answer) * len(to)}


def check_letters(answer: Answer, to: set[SiteId]) -> Answer:
    """The coordinator's look at what a sender answered.

    Raises ValueError unless there is one sealed letter for each of ``to`` and nothing else.
    """
    letters = [f"{LETTER}{site}" for site in sorted(to)]
    if answer.keys() != {*letters, BYTES}:
        raise ValueError(f"it was to answer with sealed letters to {', '.join(sorted(to))}")
    length = 0
    for name in letters:
        size = len(tensor_to_bytes(answer[name], name))
        if size < HALF + TAG:
            raise ValueError(f"{name} has {size} bytes and is no sealed letter")
        length += size
    output = answer[BYTES]
    if type(output) is not int or not 0 <= output <= length:
        raise ValueError(f"{BYTES} is {output!r:.40}, and its letters have {length}")
    return answer


# -- the second leg -----------------------------------------------------------------------------


def delivery_body(verb: str, letters: Mapping[SiteId, Value], cycle: int = 0) -> OrderBody:
    """The body of an order to take letters, by sender."""
    return {"verb": verb, "letters": dict(letters), "cycle": cycle}


def read_delivery(order: Order, secret: bytes, sizes: Mapping[str, int]) -> Delivery:
    """What a delivery brings to the site that owns the seal key ``secret``.

    sizes: how long a model's ``w`` and ``stats`` are.  A letter that does not open, is not finite
    or of another size is refused by the name of its sender, and the site goes on with the others.
    Raises ValueError where nothing can be read.
    """
    body = _read_fields(order, {"verb", "letters", "cycle"})
    kinds = {"verb": str, "letters": dict, "cycle": int}
    if {name: type(value) for name, value in body.items()} != kinds:
        raise Refusal(f"the order {order.key} brings no letters")
    opened: dict[SiteId, State | None] = {}  # None where even its form is not known
    refused: dict[SiteId, str] = {}
    for sender, letter in body["letters"].items():
        opened[sender] = None
        try:
            opened[sender] = _open_letter(order, sender, letter, secret)
            _check_letter(opened[sender] or {}, sizes)
        except Refusal as error:
            details = f"site {order.site} refuses what site {sender} passed on in"
            refused[sender] = plain(f"{details} {body['verb']!r}: {error}")

    readable = [state for state in opened.values() if state is not None]
    if refused and not readable:
        raise Refusal("; ".join(refused.values()))
    letters: dict[SiteId, RelayedMessage] = {}
    for sender, delivery in opened.items():
        state = delivery or {}
        if sender in refused:  # its form, or that of another letter, without what it says
            state = _make_blank(delivery or readable[0], sizes)
        letters[sender] = RelayedMessage(state)
    return Delivery(body["verb"], letters, refused, body["cycle"])


def _open_letter(order: Order, sender: SiteId, letter: object, secret: bytes) -> State:
    """The state in a letter.  Raises Refusal, which quotes nothing of what was under the seal."""
    details = _name_letter(order, sender, order.site)
    try:
        content = decrypt(secret, tensor_to_bytes(letter, "its letter"), details)
    except ValueError as error:
        raise Refusal(
            "its seal does not open: it was changed on its way, or is for another site or another "
            "exchange"
        ) from error
    try:
        state = unpack_received(content)
    except ValueError as error:
        raise Refusal("its letter could not be read") from error
    is_flat = isinstance(state, dict) and all(isinstance(v, Tensor) for v in state.values())
    if not is_flat:
        raise Refusal("it is no flat list of tensors")
    result: State = state
    return result


def _check_letter(state: State, sizes: Mapping[str, int]) -> None:
    for name, value in state.items():
        if name in sizes and value.shape != (sizes[name],):
            raise Refusal(
                f"{name} has the shape {tuple(value.shape)} and not {(sizes[name],)}: all sites "
                "must use one model"
            )
        if not value.is_floating_point():
            continue
        if not bool(value.isfinite().all()):
            what = "a part of it"
            if name in sizes:
                what = name
            raise Refusal(f"{what} is NaN or infinite: its training diverged")
        if name in sizes and not does_fit(value, torch.float32):
            raise Refusal(
                f"{name} has the norm {float(value.double().norm()):.3g}, which no model can use: "
                "its training diverged"
            )
        if name == CLAIM and bool((value < 0).any()):
            raise Refusal(f"{name} is below 0")


def limit_claims(brought: Delivery, own: int, ratio: float) -> Delivery:
    """The letters, in which no model weighs more than ``ratio`` times the median model or the
    site's ``own`` labels, whichever is more.

    A model that is passed on comes with the number of labels by which it weighs, and the
    coordinator cannot see it.
    """
    claims: dict[SiteId, float] = {}
    for sender, letter in brought.letters.items():
        claim = letter.state.get(CLAIM)
        if claim is not None and claim.ndim == 0:
            claims[sender] = float(claim)
    most = ratio * max(float(own), lower_median(claims.values()))
    letters = dict(brought.letters)
    for sender, claimed in claims.items():
        if claimed > most > 0:
            state = letters[sender].state
            limited = torch.full_like(state[CLAIM], most)
            letters[sender] = RelayedMessage({**state, CLAIM: limited})
    return brought._replace(letters=letters)


def _make_blank(like: State, sizes: Mapping[str, int]) -> State:
    """A letter of the right sizes that says nothing: methods keep such a model out of averages."""
    blank: State = {}
    for name, value in like.items():
        if not value.is_floating_point():
            blank[name] = torch.zeros_like(value)
            continue
        shape = tuple(value.shape)
        if name in sizes:
            shape = (sizes[name],)
        blank[name] = value.new_full(shape, torch.nan)
    return blank


def _name_letter(order: Order, sender: SiteId, receiver: SiteId) -> str:
    """Which letter it is: it opens as no other one."""
    return repr((order.run, order.key.removesuffix(DELIVER), sender, receiver))


def _read_fields(order: Order, names: set[str]) -> OrderBody:
    if not isinstance(order.body, dict) or order.body.keys() != names:
        raise Refusal(f"the order {order.key} to {order.errand} has not {sorted(names)}")
    return order.body
