"""Test secure aggregation with one hostile site that sends implausible values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.ask import Ask
from fallow.core.client import declared
from fallow.core.messages import Masked
from fallow.core.refusal import RunHalted
from fallow.deployment.annotators import Annotators
from fallow.deployment.coordinator.plausible_sums import PlausibleSums
from fallow.deployment.coordinator.weights import SiteWeights
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy
from fallow.privacy.signing import sign
from fallow.strategies import AHFAL
from fallow.training import FedAvg
from fallow.transport import sum_keys
from fallow.transport.checks import ResponseCheck
from fallow.transport.peer_messages import bytes_to_tensor, read_request
from fallow.transport.sum_keys import SIGNED, find_shown, sign_sum_key
from tests.deployment.hostile import turn
from tests.deployment.remotes import RUN, STUDY, Federation, Timeouts, federation
from tests.deployment.simulations import TINY, tiny
from tests.keys import key_of
from tests.privacy.federation import SECURE
from tests.simulations import tables

FOUR = tables(sites=4)
FAR = 2**62  # added to a masked number: a quarter of the range


def asking(there: Federation) -> Ask:
    ask = there.ask("0/train/0", "training")
    ask.masking = PlausibleSums(SecureSum(), there.weights, there.events.append)
    return ask


def train_round(there: Federation) -> Any:
    site = there.simulation.members["a"]
    return site.parts.methods["training"].round(site.memory["global"], asking(there))


def adds(there: Federation, site: str, times: int, **more: int) -> None:
    """Change the next ``times`` contributions of a site."""
    left = [times]

    def change(instruction: Any, reply: Any) -> Any:
        if not reply.keys() >= more.keys() or left[0] == 0:
            return reply
        left[0] -= 1
        return {**reply, **{name: reply[name] + value for name, value in more.items()}}

    there.signing[site].change = change


@pytest.mark.parametrize("more", [{"w": FAR}, {"n": FAR}, {"n": -FAR}], ids=str)
def test_a_total_that_cannot_be_is_asked_for_again_and_does_not_count(
    more: dict[str, int],
) -> None:
    honest = train_round(federation(AHFAL(), FOUR, privacy=SECURE))
    there = federation(AHFAL(), FOUR, privacy=SECURE)
    there.remote.response_check.labels = dict.fromkeys(FOUR, 8)
    adds(there, "c", 1, **more)
    torch.testing.assert_close(train_round(there), honest, rtol=0, atol=1e-9)
    (event,) = [event for event in there.events if event["event"] == "implausible"]
    assert "is impossible" in event["reason"]


def test_a_key_that_gives_no_secret_is_held_against_its_site_and_the_sum_goes_on() -> None:
    """Otherwise all other sites would fail to mask and be excluded instead."""
    there = federation(AHFAL(), FOUR, Timeouts(2.0, quorum=3), privacy=SECURE)

    def change(instruction: Any, reply: Any) -> Any:
        if "key" not in reply:
            return reply
        return {"key": torch.zeros(32, dtype=torch.uint8)}

    there.signing["c"].change = change
    assert bool(train_round(there)["w"].isfinite().all())
    assert set(there.refusals) == {"c"}
    assert "that gives no shared secret" in there.refusals["c"]


@pytest.mark.parametrize("wrong", ["none", "another sum's", "longer"])
def test_a_key_that_is_not_signed_is_held_against_its_site_and_the_sum_goes_on(
    wrong: str,
) -> None:
    """Otherwise all other sites would refuse to contribute and be excluded instead."""
    there = federation(AHFAL(), FOUR, Timeouts(2.0, quorum=3), privacy=SECURE)
    hostile = there.signing["c"]

    def change(instruction: Any, reply: Any) -> Any:
        if SIGNED not in reply:
            return reply
        if wrong == "none":
            return {"key": reply["key"]}
        masked = Masked(key_of("0/train/9/0"), 0, None)
        signed = sign_sum_key(hostile.secret, instruction, "c", masked, reply["key"])
        if wrong == "longer":
            # signed in decoded form, with an additional first byte
            shown = find_shown(read_request(instruction)[0])
            assert shown is not None
            statement = sum_keys._state(STUDY, RUN, "c", shown, reply["key"])
            signed = bytes_to_tensor(sign(hostile.secret, b"x" + statement)[:65])
        return {**reply, SIGNED: signed}

    hostile.change = change
    assert bool(train_round(there)["w"].isfinite().all())
    assert set(there.refusals) == {"c"}


def test_signatures_outlive_the_process_that_collected_them() -> None:
    """A coordinator may restart between the keys and the contributions of a sum."""
    honest = train_round(federation(AHFAL(), FOUR, privacy=SECURE))
    there = federation(AHFAL(), FOUR, Timeouts(2.0, patience=3.0), privacy=SECURE)
    away = there.signing["c"]

    def change(instruction: Any, reply: Any) -> Any:
        if SIGNED in reply:
            return reply
        return {}

    away.change = change
    with pytest.raises(RunHalted):
        train_round(there)
    away.change = None
    life = replace(there.remote, life="another")
    there.remote = life
    torch.testing.assert_close(train_round(there), honest, rtol=0, atol=1e-9)


def test_a_total_that_is_never_one_ends_in_a_sentence_and_is_never_journaled() -> None:
    there = federation(AHFAL(), FOUR, privacy=SECURE)
    adds(there, "c", 10**6, w=FAR)
    for _ in range(2):  # again after a restart
        with pytest.raises(
            RuntimeError, match="3 times, and masks hide the responsible site"
        ):
            train_round(there)
    adds(there, "c", 0, w=FAR)
    assert bool(train_round(there)["w"].isfinite().all())


def test_the_same_attempts_are_replayed_after_a_restart() -> None:
    there = federation(AHFAL(), FOUR, privacy=SECURE)
    adds(there, "c", 1, w=FAR)
    first = train_round(there)
    asked = len(there.transport.delivered)
    torch.testing.assert_close(train_round(there), first, rtol=0, atol=0)
    assert len(there.transport.delivered) == asked


@pytest.mark.parametrize(
    ("total", "why"),
    [
        ({"squares": -5.0, "rows": 4.0}, "squares is below 0"),
        ({"squares": 5.0, "rows": -4.0}, "rows is below 0"),
        ({"n": 9.0, "w": torch.ones(4)}, "n is 9, and these sites can have 8 labels"),
        ({"x": 7.0}, "x exceeds 2 times the bound 3"),
        ({"n": 2.0, "w": torch.ones(4) * 1e30}, "the square of w is not finite"),
        (
            {"n": 2.0, "w": torch.ones(4) * 1e7},
            "w has the norm 1e.07, more than 1000 times 2",
        ),
    ],
)
def test_what_totals_cannot_be(total: dict[str, Any], why: str) -> None:
    declarations = {
        "training": declared(FedAvg(bn="local")),
        "annotators": declared(Annotators(secure_sum=True, classes=False)),
    }
    response_check = ResponseCheck(labels={"a": 4, "b": 4}, declared=declarations)
    weights = SiteWeights(response_check, last={"w": 2.0})
    sums = PlausibleSums(SecureSum(), weights, lambda event: None)
    bound = 3.0 if "x" in total else None
    owner = "training" if "n" in total else "annotators"
    function = "score" if owner == "annotators" else "upload"
    fault = sums.find_fault(total, ["a", "b"], owner, function, bound)
    assert fault is not None
    with pytest.raises(ValueError, match=why):
        raise ValueError(fault)


@pytest.mark.long
def test_a_study_with_secure_sums_goes_on_after_one_bad_part(tmp_path: Path) -> None:
    config = replace(TINY, rounds=2, privacy=Privacy(secure_sum=True))
    simulation = tiny(tmp_path, config)
    spoiled: list[str] = []

    def poison(key: str, reply: dict[str, Any]) -> dict[str, Any]:
        if key.startswith("0/train/1/") and "w" in reply and not spoiled:
            spoiled.append(key)
            return {**reply, "w": reply["w"] + FAR}
        return reply

    turn(simulation, "chur", poison)
    assert simulation.program().go()
    assert len(simulation.list_events("implausible")) == 1
    assert simulation.records()[-1]["accuracy"] is not None
