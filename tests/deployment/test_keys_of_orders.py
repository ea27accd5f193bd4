"""Test that a message whose key is not a position of the run changes nothing."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from fallow.privacy.signing import sign
from fallow.storage.packing import UNREADABLE, pack, unpack
from fallow.transport.envelope import Reply, open_instruction, open_reply
from fallow.transport.peer_messages import bytes_to_tensor, tensor_to_bytes
from tests.core.test_exchange_key import HOSTILE, name_case
from tests.deployment.hosts import SECRET, Leader, make_request, order_picks
from tests.deployment.remotes import RUN, Timeouts, federation
from tests.keys import key_of
from tests.privacy.federation import Asker
from tests.simulations import tables

pytest.importorskip("cryptography")

FIELDS = key_of("2/train/7/1").to_dict()


def send_tree(leader: Leader, tree: dict[str, Any]) -> Reply:
    """Return the reply of the site to a message signed by the coordinator."""
    blob = leader.host.handle(sign(SECRET, pack(tree)))
    return open_reply(leader.site.keys.verify, blob, leader.site.name)


def can_pack(wrong: dict[str, Any]) -> bool:
    try:
        return bool(unpack(pack(wrong)) == wrong)
    except (*UNREADABLE, RuntimeError):
        return False


WIRED = [(wrong, sentence) for wrong, sentence in HOSTILE if can_pack(wrong)]


def test_most_hostile_fields_can_be_sent() -> None:
    assert len(WIRED) >= len(HOSTILE) - 2


@pytest.mark.parametrize(("wrong", "sentence"), WIRED, ids=name_case)
def test_an_order_with_hostile_fields_is_refused_in_a_sentence_and_nothing_is_lost(
    leader: Leader, wrong: dict[str, Any], sentence: str
) -> None:
    order_picks(leader)
    before = leader.ledger.instructions.traffic()
    kept = leader.ledger.store.load_states("north").keys()
    instruction = leader.instruction(make_request("ask", "0/query", allowed=3))
    reply = send_tree(leader, {**asdict(instruction), "key": {**FIELDS, **wrong}})
    assert str(reply.refused).startswith("a message from the coordinator is invalid: ")
    assert sentence in str(reply.refused)
    assert reply.key is None
    assert leader.ledger.instructions.traffic() == before
    assert leader.ledger.store.load_states("north").keys() == kept
    assert leader.send(instruction).body == {"asked": 3}


@pytest.mark.parametrize(("wrong", "sentence"), WIRED, ids=name_case)
def test_a_request_with_hostile_fields_is_refused_in_a_sentence(
    leader: Leader, wrong: dict[str, Any], sentence: str
) -> None:
    instruction = leader.instruction(make_request("hello", "0/hello"))
    request = unpack(tensor_to_bytes(instruction.body["request"], "a request"))
    request["key"] = {**FIELDS, **wrong}
    body = {**instruction.body, "request": bytes_to_tensor(pack(request))}
    reply = leader.send(replace(instruction, body=body))
    assert sentence in str(reply.refused)
    assert leader.ledger.instructions.traffic() == []
    assert leader.send(instruction).refused is None


def test_a_key_as_text_is_refused(leader: Leader) -> None:
    instruction = leader.instruction(make_request("hello", "0/hello"))
    reply = send_tree(leader, {**asdict(instruction), "key": "0/hello/0"})
    assert "the key of an exchange is '0/hello/0' and has no fields" in str(reply.refused)


def test_a_site_whose_replies_have_hostile_fields_does_not_stop_the_others() -> None:
    there = federation(Asker(), tables(sites=4), Timeouts(2.0, quorum=3))
    liar = there.signing["d"]

    def handle(blob: bytes) -> bytes:
        instruction = open_instruction(liar.public, blob)
        reply = Reply(RUN, "d", instruction.key, liar.answer(instruction))
        tree = {**asdict(reply), "key": {**instruction.key.to_dict(), "cycle": -1}}
        return sign(liar.secret, pack(tree))

    there.transport.alive["d"] = handle
    assert float(there.ask().sum(Asker().plain)["sites"]) == 3
    assert (
        "a message from site d is invalid: cycle is -1; it must be" in there.refusals["d"]
    )
