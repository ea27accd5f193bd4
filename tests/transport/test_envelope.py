"""Test the errors for messages with a malformed header."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from fallow.core.refusal import Refusal
from fallow.privacy.signing import verify_key
from fallow.transport.envelope import (
    Instruction,
    Reply,
    open_instruction,
    open_reply,
    sign_message,
)
from tests.keys import key_of

SECRET = bytes(range(32))
INSTRUCTION = Instruction(study="d", run="r", site="a", key=key_of("0/query/0"), number=3)
REPLY = Reply(run="r", site="a", key=key_of("0/query/0"))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"number": "three"}, "number is 'three'; it must be a whole number"),
        ({"number": True}, "number is True; it must be a whole number"),
        ({"number": None}, "number is none; it must be a whole number"),
        ({"counted": 4}, "counted is 4; it must be a text or none"),
    ],
)
def test_an_order_with_a_wrong_head_is_refused_in_a_sentence_of_ours(
    wrong: dict[str, Any], sentence: str
) -> None:
    blob = sign_message(SECRET, replace(INSTRUCTION, **wrong))
    with pytest.raises(Refusal) as refused:
        open_instruction(verify_key(SECRET), blob)
    assert str(refused.value) == f"a message from the coordinator is invalid: {sentence}"


def test_a_message_with_a_long_header_is_not_unpacked() -> None:
    """Unpacked values take 20 times as much memory; honest messages have a few KB."""
    numbers = [0] * 150_000
    reply = sign_message(SECRET, replace(REPLY, body={"x": numbers}))
    instruction = sign_message(SECRET, replace(INSTRUCTION, body={"x": numbers}))
    tracemalloc.start()
    with pytest.raises(Refusal, match="from site a could not be read"):
        open_reply(verify_key(SECRET), reply, "a")
    with pytest.raises(Refusal, match="from the coordinator could not be read"):
        open_instruction(verify_key(SECRET), instruction)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(reply)


def test_a_reply_with_a_wrong_head_is_refused_in_a_sentence_of_ours() -> None:
    wrong: Any = {"refused": ["x" * 1000]}
    blob = sign_message(SECRET, replace(REPLY, **wrong))
    with pytest.raises(
        Refusal, match=r"^a message from site a is invalid: refused is \['x+\.\.\.;"
    ):
        open_reply(verify_key(SECRET), blob, "a")
