"""Test that malformed messages are rejected without effects and the round continues.

The tests use 300 messages each, or 10,000 if FALLOW_SOAK is set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fallow.core.client import Declaration
from fallow.core.composites import Fields
from fallow.core.values import Count, Real
from fallow.storage.packing import pack, unpack
from fallow.transport.envelope import Reply, open_instruction, open_reply, sign_message
from fallow.transport.wire import pack_request, unpack_request
from tests.deployment.hosts import ROWS, SECOND, SECRET, SITE, Leader, folder
from tests.deployment.messages import broken, change_one, malformed, nest_deeply, odd_value
from tests.deployment.remotes import Federation, Timeouts, federation
from tests.privacy.federation import Asker
from tests.simulations import tables

MANY = 10_000 if os.environ.get("FALLOW_SOAK") else 300
THREE = tables(sites=3, rows=4, labels=4)


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(0)


def ask_all(there: Federation) -> dict[str, bytes]:
    """Send a valid instruction to each site."""
    there.ask().sum(Asker().plain)
    return dict(there.transport.delivered)


def state_of(there: Federation) -> dict[str, Any]:
    return {
        name: (dict(site.memory), site.bought.clone())
        for name, site in there.simulation.members.items()
    }


def test_a_message_is_read_or_refused_with_a_sentence(draw: np.random.Generator) -> None:
    there = federation(Asker(), THREE)
    blob = pack({"tree": odd_value(draw), "w": torch.zeros(9)})
    instructions = ask_all(there)
    request = unpack(instructions["a"][64:])["body"]["request"].numpy().tobytes()
    for _ in range(MANY):
        for valid, read in ((blob, unpack), (request, unpack_request)):
            bad = broken(valid, draw) if draw.random() < 0.9 else nest_deeply(draw)
            try:
                read(bad)
            except ValueError as error:
                assert "could not be read" in str(error)


def test_a_request_with_anything_changed_in_it_is_read_or_refused(
    draw: np.random.Generator,
) -> None:
    there = federation(Asker(), THREE)
    body = unpack(ask_all(there)["a"][64:])["body"]
    tree = unpack(body["request"].numpy().tobytes())
    refused = 0
    for _ in range(MANY):
        try:
            pack_request(unpack_request(pack(change_one(tree, draw))))
        except (ValueError, OverflowError):
            refused += 1
    assert refused > MANY // 2


def test_a_site_answers_every_malformed_order_with_a_signed_reply(
    draw: np.random.Generator,
) -> None:
    there = federation(Asker(), THREE)
    valid = ask_all(there)["a"]
    site = there.signing["a"]
    secret = there.remote.keys.secret
    public = there.remote.keys.sites["a"]
    before = state_of(there)
    refused = 0
    for _ in range(MANY):
        reply = open_reply(public, site.handle(malformed(valid, secret, draw)), "a")
        refused += reply.refused is not None
    assert refused > MANY // 2
    torch.testing.assert_close(state_of(there), before, rtol=0, atol=0)


@pytest.mark.long
def test_a_host_answers_every_malformed_order_and_goes_on(
    draw: np.random.Generator, tmp_path: Path
) -> None:
    leader = Leader(folder(tmp_path))
    leader.initial()
    state = leader.first_model()
    leader.round(0, state)
    instructions = [
        sign_message(SECRET, instruction) for instruction in leader.instructions
    ]
    refused = 0
    for _ in range(MANY):
        valid = instructions[draw.integers(len(instructions))]
        blob = leader.host.handle(malformed(valid, SECRET, draw))
        refused += open_reply(leader.site.keys.verify, blob, SITE).refused is not None
    assert refused > MANY // 2
    leader.ledger.close()
    later = Leader(leader.site, run=SECOND)
    assert later.people("hello", "0/hello")["rows"] == ROWS
    later.round(0, state)
    assert (
        len(later.ledger.store.load_labels(SITE)) == 4
    )  # the labels of the first run are carried over
    later.ledger.close()


@pytest.mark.long
def test_a_round_goes_on_with_the_rest_whatever_one_site_sends(
    draw: np.random.Generator,
) -> None:
    there = federation(Asker(), THREE, Timeouts(2.0, quorum=2))
    site = there.signing["b"]
    honest = there.transport.alive["b"]
    taken = 0
    there.transport.alive["b"] = lambda blob: malformed(
        honest(blob) or b"", site.secret, draw
    )
    for n in range(MANY // 5):
        total = there.ask(f"0/train/{n}").sum(Asker().plain)
        assert all(bool(value.isfinite().all()) for value in total.values())
        taken += int(total["sites"]) == 3
        there.transport.close()
        site.sent.clear()
    assert taken < MANY // 10
    assert set(there.refusals) <= {"b"}


def test_an_answer_over_which_a_check_stumbles_ends_no_exchange() -> None:
    """An unexpected error of a check discards one reply; the other sites continue."""
    there = federation(Asker(), THREE, Timeouts(2.0, quorum=2))
    fields = Fields({"x": Real("columns"), "n": Count(of="rows")})
    there.remote.response_check.declared = {
        "query": {"plain": Declaration("plain", "sum", "", returns=fields)}
    }
    there.remote.response_check.labels = {"b": None}  # type: ignore[dict-item]  # no number
    total = there.ask("0/train/0").sum(Asker().plain)
    assert int(total["sites"]) == 2
    assert "does not have the format of this version" in there.refusals["b"]


def test_no_reply_of_a_site_is_taken_for_another_ones() -> None:
    there = federation(Asker(), THREE, Timeouts(2.0, quorum=2))
    a = there.signing["a"]
    b = there.signing["b"]

    def as_a(blob: bytes) -> bytes:
        instruction = open_instruction(b.public, blob)
        return sign_message(
            b.secret,
            Reply(instruction.run, "a", instruction.key, {"x": torch.zeros(6), "n": 1.0}),
        )

    there.transport.alive["b"] = as_a
    assert float(there.ask().sum(Asker().plain)["sites"]) == 2
    assert there.refusals["b"] == "a message signed by site b is in the name of site a"
    assert a.sent
