"""Test peer messages over a transport: sealing, and rejection of damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from fallow.core import client
from fallow.core.contract import Contract
from fallow.core.types import Values
from fallow.core.values import Count, Model, Real, SenderFacts
from fallow.core.view import View
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.settings import Privacy
from fallow.sites.store import PeerMessage
from fallow.transport.envelope import Instruction, open_instruction, open_reply
from fallow.transport.peer_messages import (
    Delivery,
    bytes_to_tensor,
    delivery_body,
    limit_claims,
    read_delivery,
    seal_peer_messages,
    tensor_to_bytes,
)
from tests.deployment.remotes import RUN, Federation, Timeouts, federation
from tests.keys import key_of
from tests.simulations import simulation, tables

THREE = tables(sites=3)
ALL = {to: [site for site in THREE if site != to] for to in THREE}
RING = {"a": ["c"], "b": ["a"], "c": ["b"]}


@dataclass(frozen=True)
class Passing:
    """Sites pass on the mean of their rows, then add up what they got."""

    contract: ClassVar[Contract] = Contract("Passing")

    def query(self, ask: Any, budget: Any, memo: Any) -> Any:
        raise NotImplementedError

    @client.relay("nothing", returns={"w": Model(), "labels": Count()})
    def model(self, view: View) -> Values:
        return {"w": view.model("global")["w"] + len(view.labels), "labels": 2.0}

    @client.sum("totals over sites of what was passed on", returns={"x": Real()})
    def total(self, view: View) -> Values:
        models = [
            kept["w"] for name, kept in view.memory.items() if name.startswith("model/")
        ]
        return {"x": torch.stack(models).sum()}


def brought(there: Any) -> dict[str, dict[str, torch.Tensor]]:
    return {
        name: {k: v["w"] for k, v in site.memory.items() if k.startswith("model/")}
        for name, site in there.members.items()
    }


@pytest.mark.parametrize(
    "routes", [ALL, RING, {"a": ["a", "b"]}], ids=["all", "ring", "itself"]
)
def test_receivers_hold_what_those_of_the_simulator_hold(
    routes: dict[str, list[str]],
) -> None:
    there = federation(Passing(), THREE)
    here = simulation(THREE, Passing())
    sizes = [federated.ask().relay(Passing().model, routes) for federated in (there, here)]
    assert sizes[0] == sizes[1]
    torch.testing.assert_close(brought(there.simulation), brought(here), rtol=0, atol=0)
    assert there.simulation.shown.bytes_up == here.shown.bytes_up
    assert there.simulation.shown.bytes_down == here.shown.bytes_down


def list_passing(there: Federation) -> Iterator[bytes]:
    """Return all that the coordinator can read of peer messages."""
    public = there.signing["a"].public
    for site, blob in there.transport.delivered:
        signing = there.signing[site]
        instruction = open_instruction(public, blob)
        reply = open_reply(there.remote.keys.sites[site], signing.handle(blob), site)
        yield repr(instruction.body).encode()
        for value in reply.body.values():
            yield (
                tensor_to_bytes(value, "")
                if isinstance(value, torch.Tensor)
                else repr(value).encode()
            )


def test_the_coordinator_sees_no_model_that_is_passed_on() -> None:
    there = federation(Passing(), THREE)
    there.ask().relay(Passing().model, ALL)
    models = [
        there.simulation.members[s].memory["model/b"]["w"].numpy().tobytes() for s in "ac"
    ]
    crossed = b"".join(list_passing(there))
    assert len(crossed) > 1000
    assert not any(model[:16] in crossed for model in models)


def test_a_relay_counts_both_legs_and_is_asked_again_after_a_crash_in_between() -> None:
    there = federation(Passing(), THREE, Timeouts(10.0, patience=20.0))
    there.signing["b"].change = lambda instruction, answer: {"late": 1.0, "n": -1.0}
    with pytest.raises(RuntimeError, match="site b"):
        there.ask().relay(Passing().model, {"a": ["b"]})
    assert there.event_log.read_note("place") is None
    there.signing["b"].change = None
    there.ask().relay(Passing().model, {"a": ["b"], "b": ["c"]})
    noted = {site: there.event_log.read_note(f"counted/{site}") for site in "abc"}
    assert noted == {"a": "0/query/0/deliver", "b": "0/query/0/deliver", "c": "0/query/0"}
    assert there.event_log.read_note("place") == "2"


def test_a_relay_waits_for_all_its_sites_whatever_the_quorum() -> None:
    waits = Timeouts(10.0, quorum=1, patience=30.0)
    there = federation(Passing(), THREE, waits, transport={"down": {"b"}})
    with pytest.raises(RuntimeError, match=r"2 of 3 sites replied to .*missing: b"):
        there.ask().relay(Passing().model, ALL)


def test_a_relay_passes_under_secure_sums_and_sums_of_it_are_masked() -> None:
    there = federation(Passing(), THREE, privacy=Privacy(secure_sum=True))
    plain = simulation(THREE, Passing())
    totals = []
    for ask in (there.ask(), plain.ask()):
        ask.relay(Passing().model, {to: ["a"] for to in THREE})
        totals.append(float(ask.sum(Passing().total)["x"]))
    assert totals[0] == pytest.approx(totals[1], abs=1e-5)
    shown = {row["function"]: row for row in there.simulation.shown.rows()}
    assert shown["total"]["masked"]
    with pytest.raises(ValueError, match=r"was given model: .* allows it only by relay"):
        there.ask("1/query").each(Passing().model)


def test_a_receiver_without_a_seal_key_is_named() -> None:
    there = federation(Passing(), THREE)
    del there.remote.keys.seals["c"]  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="site c has no encryption key"):
        there.ask().relay(Passing().model, ALL)


# -- damaged peer messages -----------------------------------------------------------------

SECRET = new_secret()
TO_B = {"b": public_half(SECRET)}
KNOWN = SenderFacts({"weights": 3})


def peer_message(sender: str, key: str = "0/query/0", **state: Any) -> torch.Tensor:
    instruction = Instruction("s", RUN, sender, key_of(key), 1)
    return torch.as_tensor(seal_peer_messages(instruction, state, TO_B)["message/b"])


def instruction_to_b(**peer_messages: Any) -> Instruction:
    return Instruction(
        "s",
        RUN,
        "b",
        key_of("0/query/0/deliver"),
        2,
        None,
        delivery_body("model", peer_messages),
    )


GOOD = torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (
            peer_message("a", w=torch.tensor([1.0, torch.nan, 3.0]), labels=1.0),
            "w is NaN or infinite",
        ),
        (
            peer_message("a", w=GOOD[:2], labels=1.0),
            r"w has the shape \(2,\) and not \(3,\)",
        ),
        (peer_message("c", w=GOOD, labels=1.0), "it cannot be decrypted"),
        (peer_message("a", key="0/query/1", w=GOOD, labels=1.0), "it cannot be decrypted"),
        (bytes_to_tensor(b"short"), "it cannot be decrypted"),
        (3.0, "it is not a tensor of bytes"),
    ],
)
def test_a_bad_letter_is_refused_by_name_and_no_average_uses_what_stands_for_it(
    bad: Any, why: str
) -> None:
    delivery = read_delivery(
        instruction_to_b(a=bad, c=peer_message("c", w=GOOD, labels=4.0)),
        SECRET,
        Passing(),
        KNOWN,
    )
    assert delivery.refused.keys() == {"a"}
    with pytest.raises(
        ValueError, match=f"site b rejects the message of site a for 'model': {why}"
    ):
        raise ValueError(delivery.refused["a"])
    assert torch.equal(delivery.messages["c"].state["w"], GOOD)
    stands_for_it = delivery.messages["a"].state
    assert stands_for_it["w"].shape == (3,)
    assert bool(stands_for_it["w"].isnan().all())
    assert not float(stands_for_it["labels"]) > 0


def test_a_delivery_of_nothing_that_can_be_read_is_refused() -> None:
    with pytest.raises(
        ValueError, match="the message of site a for 'model': it cannot be decrypted"
    ):
        read_delivery(
            instruction_to_b(a=bytes_to_tensor(b"short")), SECRET, Passing(), KNOWN
        )


def test_a_diverged_model_of_a_peer_is_said_and_the_others_arrive() -> None:
    there = federation(Passing(), THREE)
    spoiled = there.simulation.members["b"]
    nan = {k: torch.full_like(v, torch.nan) for k, v in spoiled.memory["global"].items()}
    spoiled.remember("global", nan)
    there.ask().relay(Passing().model, ALL)
    assert there.refusals.keys() == {"a", "c"}
    assert there.refusals["c"].startswith(
        "site c rejects the message of site b for 'model': w is"
    )
    assert bool(brought(there.simulation)["a"]["model/c"].isfinite().all())


def test_a_sender_that_answers_with_no_sealed_letters_is_refused() -> None:
    there = federation(Passing(), THREE)
    there.signing["b"].change = lambda instruction, answer: {
        "message/a": bytes_to_tensor(b"x"),
        "bytes": 1,
    }
    with pytest.raises(
        RuntimeError, match="message/a has 1 bytes and is not an encrypted message"
    ):
        there.ask().relay(Passing().model, {"a": ["b"]})


def test_a_sender_that_answers_with_a_letter_too_many_is_refused() -> None:
    there = federation(Passing(), THREE)

    def add_letter(instruction: Instruction, answer: Any) -> Any:
        return {**answer, "message/c": answer["message/a"]}

    there.signing["b"].change = add_letter
    with pytest.raises(RuntimeError, match="it must reply with encrypted messages to a"):
        there.ask().relay(Passing().model, {"a": ["b"]})


# -- attacks by a hostile sender -----------------------------------------------------------


def test_a_model_that_is_passed_on_weighs_ten_times_the_usual_one_at_most() -> None:
    states = {
        site: PeerMessage({"w": torch.ones(3), "labels": torch.tensor(n)})
        for site, n in (("a", 4.0), ("b", 1e9), ("c", 39.0))
    }
    brought = Delivery("model", states, {}, 0, "labels")
    few = limit_claims(brought, 1, 10.0)
    many = limit_claims(brought, 500, 10.0)
    assert [
        float(peer_message.state["labels"]) for peer_message in few.messages.values()
    ] == [*(4.0, 390.0, 39.0)]
    assert float(many.messages["b"].state["labels"]) == 5000.0
    assert few.messages["a"] is states["a"]
