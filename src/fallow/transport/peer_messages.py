"""Relays: encrypted peer messages, forwarded by the coordinator.

A relay has two instructions under two keys. The first one requests peer messages from the senders
and has the public keys of the receivers. Each sender replies with one sealed message for each
receiver. The second one, a delivery under the same key, delivers the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.aggregation import lower_median
from fallow.core.client import Declaration, find_fault, list_relays
from fallow.core.disclosure import payload
from fallow.core.messages import Request
from fallow.core.methods import Method
from fallow.core.refusal import Refusal, explain_errors
from fallow.core.types import SiteId, State, Tree, Value, Values
from fallow.core.values import Kind, Numbers, SenderFacts, knows_shape, shape_of
from fallow.privacy.encryption import HALF, TAG, decrypt, encrypt_for
from fallow.sites.store import PeerMessage
from fallow.storage.packing import pack, unpack_received
from fallow.storage.plain import plain
from fallow.transport.envelope import Instruction
from fallow.transport.wire import pack_request, unpack_request

PEER_MESSAGE = "message/"  # prefix of the receiver's name, a field of a sender's reply
BYTES = "bytes"  # field with the size before encryption
PROOFS = "proofs"
"""Field of an instruction with public keys of other sites: identity key and signature of each."""


InstructionBody = Tree
"""Body of an instruction: a packed request with its fields, or sealed peer messages."""


class Delivery(NamedTuple):
    """Delivered peer messages by sender.

    Messages of ``refused`` senders are replaced by NaN, which averages ignore. ``refused`` has a
    reason for each. ``cycle`` is the cycle of the relay. ``weight`` is the field of a message with
    the weight of its model, or None.
    """

    function: str
    messages: dict[SiteId, PeerMessage]
    refused: dict[SiteId, str]
    cycle: int
    weight: str | None = None


def bytes_to_tensor(content: bytes) -> Tensor:
    """Convert bytes to a tensor, (n,) uint8."""
    if not content:
        return torch.zeros(0, dtype=torch.uint8)  # `frombuffer` rejects empty input
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def tensor_to_bytes(value: object, what: str) -> bytes:
    """Convert a tensor of `bytes_to_tensor` to bytes. Raises Refusal for other values."""
    if not isinstance(value, Tensor) or value.dtype != torch.uint8 or value.ndim != 1:
        raise Refusal(f"{what} is not a tensor of bytes")
    return bytes(value.numpy().tobytes())


# -- first part: requests to senders ------------------------------------------------------------


def request_body(
    request: Request,
    to: Mapping[SiteId, bytes] | None = None,
    proofs: Mapping[SiteId, Tensor] | None = None,
) -> InstructionBody:
    """Return the body of an instruction for a request.

    ``to`` has the public keys of the receivers of a relay. ``proofs`` authenticate these keys and
    those of a masked sum (`transport.sum_keys`).
    """
    keys = {site: bytes_to_tensor(key) for site, key in (to or {}).items()}
    body: InstructionBody = {"request": bytes_to_tensor(pack_request(request)), "to": keys}
    if proofs:
        body[PROOFS] = dict(proofs)
    return body


def read_request(instruction: Instruction) -> tuple[Request, dict[SiteId, bytes]]:
    """Return the request in an instruction, and the public keys of receivers.

    Raises ValueError for any other instruction.
    """
    names = {"request", "to"}
    if isinstance(instruction.body, dict) and PROOFS in instruction.body:
        names.add(PROOFS)
    body = _read_fields(instruction, names)
    with explain_errors(f"instruction {instruction.key}: ", to=Refusal):
        request = unpack_request(
            tensor_to_bytes(body["request"], "the request of an order")
        )
    if request.key != instruction.key.request:
        raise Refusal(f"instruction {instruction.key} contains the request {request.key}")
    if not isinstance(body["to"], dict):
        raise Refusal(
            f"instruction {instruction.key} does not name the receivers of its relay"
        )
    with explain_errors(f"instruction {instruction.key}: ", to=Refusal):
        to = {
            site: tensor_to_bytes(key, f"the encryption key of site {site}")
            for site, key in body["to"].items()
        }
    return request, to


def seal_peer_messages(
    instruction: Instruction, reply: Values, to: Mapping[SiteId, bytes]
) -> Values:
    """Return a sender's reply: an encrypted message for each receiver, and the original size."""
    state = {name: torch.as_tensor(value) for name, value in reply.items()}
    content = pack(state)
    messages: Values = {}
    for site in sorted(to):
        peer_message = _name_peer_message(instruction, instruction.site, site)
        sealed = encrypt_for(to[site], content, peer_message)
        messages[f"{PEER_MESSAGE}{site}"] = bytes_to_tensor(sealed)
    return {**messages, BYTES: payload(reply) * len(to)}


def check_peer_messages(reply: Values, to: set[SiteId]) -> Values:
    """Validate the reply of a sender at the coordinator.

    Raises ValueError unless there is exactly one sealed message for each of ``to``.
    """
    messages = [f"{PEER_MESSAGE}{site}" for site in sorted(to)]
    if reply.keys() != {*messages, BYTES}:
        raise ValueError(
            f"it must reply with encrypted messages to {', '.join(sorted(to))}"
        )
    length = 0
    for name in messages:
        size = len(tensor_to_bytes(reply[name], name))
        if size < HALF + TAG:
            raise ValueError(f"{name} has {size} bytes and is not an encrypted message")
        length += size
    output = reply[BYTES]
    if type(output) is not int or not 0 <= output <= length:
        raise ValueError(f"{BYTES} is {output!r:.40}, but its messages have {length}")
    return reply


# -- second part: delivery to receivers ---------------------------------------------------------


def delivery_body(
    function: str, messages: Mapping[SiteId, Value], cycle: int = 0
) -> InstructionBody:
    """Return the body of an instruction that delivers peer messages, by sender."""
    return {"function": function, "messages": dict(messages), "cycle": cycle}


def read_delivery(
    instruction: Instruction, secret: bytes, algorithm: Method, known: SenderFacts
) -> Delivery:
    """Return the peer messages for the site with the private key ``secret``.

    ``algorithm`` declares the client functions whose replies other sites see. ``known`` has the
    dimensions of the study. A message that cannot be decrypted or that its declaration excludes is
    rejected with the name of its sender, and the site proceeds with the others. Raises ValueError
    for another client function, and if no message can be read.
    """
    body = _read_fields(instruction, {"function", "messages", "cycle"})
    types = {"function": str, "messages": dict, "cycle": int}
    if {name: type(value) for name, value in body.items()} != types:
        raise Refusal(f"instruction {instruction.key} contains no peer messages")
    relays = list_relays(algorithm)
    declaration = relays.get(body["function"])
    if declaration is None or declaration.returns is None:
        raise Refusal(
            f"instruction {instruction.key} delivers messages of {body['function']!r:.80}, but "
            f"{algorithm.contract.title} declares relays of {', '.join(relays) or 'nothing'} only"
        )
    kinds = declaration.returns.fields(known.sizes)
    opened: dict[SiteId, State | None] = {}  # None if it cannot be read
    refused: dict[SiteId, str] = {}
    for sender, peer_message in body["messages"].items():
        opened[sender] = None
        try:
            opened[sender] = _open_peer_message(instruction, sender, peer_message, secret)
            _check_peer_message(declaration, opened[sender] or {}, known)
        except Refusal as error:
            details = f"site {instruction.site} rejects the message of site {sender} for"
            refused[sender] = plain(f"{details} {body['function']!r}: {error}")

    readable = [state for state in opened.values() if state is not None]
    if refused and not readable:
        raise Refusal("; ".join(refused.values()))
    messages: dict[SiteId, PeerMessage] = {}
    for sender, delivery in opened.items():
        state = delivery or {}
        if sender in refused:
            state = _make_blank(kinds, known, delivery or readable[0])
        messages[sender] = PeerMessage(state)
    return Delivery(body["function"], messages, refused, body["cycle"], declaration.weight)


def _open_peer_message(
    instruction: Instruction, sender: SiteId, peer_message: object, secret: bytes
) -> State:
    """Decrypt the state in a peer message. Raises Refusal without quoting its content."""
    details = _name_peer_message(instruction, sender, instruction.site)
    content = decrypt(secret, tensor_to_bytes(peer_message, "it"), details)
    try:
        state = unpack_received(content)
    except ValueError as error:
        raise Refusal("the peer message could not be read") from error
    is_flat = isinstance(state, dict) and all(isinstance(v, Tensor) for v in state.values())
    if not is_flat:
        raise Refusal("it is not a flat dictionary of tensors")
    result: State = state
    return result


def _check_peer_message(declaration: Declaration, state: State, known: SenderFacts) -> None:
    """Raise Refusal for a message that its declaration excludes.

    Names of other fields are not quoted, because they are content of the message.
    """
    returns = declaration.returns
    if returns is None or state.keys() != returns.fields(known.sizes).keys():
        raise Refusal(
            "it has other fields than declared: all sites must run the same version"
        )
    why = find_fault(returns, state, known)
    if why is not None:
        raise Refusal(why)


def limit_claims(brought: Delivery, own: int, ratio: float) -> Delivery:
    """Limit the weights of received models.

    No model weighs more than ``ratio`` times the larger of the median model and the site's ``own``
    labels. The weight of a relayed model is its number of labels, which the coordinator cannot see.
    """
    weight = brought.weight
    if weight is None:
        return brought
    claims: dict[SiteId, float] = {}
    for sender, peer_message in brought.messages.items():
        claim = peer_message.state.get(weight)
        if claim is not None and claim.ndim == 0:
            claims[sender] = float(claim)
    limit = ratio * max(float(own), lower_median(claims.values()))
    messages = dict(brought.messages)
    for sender, claimed in claims.items():
        if claimed > limit > 0:
            state = messages[sender].state
            limited = torch.full_like(state[weight], limit)
            messages[sender] = PeerMessage({**state, weight: limited})
    return brought._replace(messages=messages)


def _make_blank(kinds: Mapping[str, Kind], known: SenderFacts, like: State) -> State:
    """Return a placeholder message without values, which algorithms ignore in averages.

    Sizes that the study does not determine are those of another message.
    """
    blank: State = {}
    for name, kind in kinds.items():
        value = like.get(name, torch.zeros(()))
        shape = tuple(value.shape)
        if isinstance(kind, Numbers) and knows_shape(kind.dims, known.sizes):
            shape = shape_of(kind.dims, known.sizes)
        blank[name] = torch.full(shape, torch.nan, dtype=_find_floating(value))
    return blank


def _find_floating(value: Tensor) -> torch.dtype:
    """Return the type of a tensor, or float32 for a type without NaN."""
    return value.dtype if value.is_floating_point() else torch.float32


def _name_peer_message(instruction: Instruction, sender: SiteId, receiver: SiteId) -> str:
    """Return the context that binds a peer message to its sender, receiver and exchange."""
    exchange = str(replace(instruction.key, is_delivery=False))
    return repr((instruction.run, exchange, sender, receiver))


def _read_fields(instruction: Instruction, names: set[str]) -> InstructionBody:
    if not isinstance(instruction.body, dict) or instruction.body.keys() != names:
        raise Refusal(
            f"instruction {instruction.key} ({instruction.purpose}) does not have the fields "
            f"{sorted(names)}"
        )
    return instruction.body
