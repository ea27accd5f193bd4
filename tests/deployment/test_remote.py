"""Test exchanges with remote sites: waiting, accepted replies and rejected replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.core.events import Event
from fallow.privacy.settings import Privacy
from fallow.privacy.signing import new_signing_key
from fallow.sites.in_process import InProcessChannel
from fallow.strategies import AHFAL, FALE
from fallow.transport.envelope import Reply, open_instruction, sign_message
from fallow.transport.remote import GLANCE
from tests.deployment.loopback import Faults
from tests.deployment.remotes import RUN, Federation, Timeouts, federation
from tests.keys import key_of
from tests.privacy.federation import SECURE, Asker
from tests.simulations import simulation, tables

FOUR = tables(sites=4)


def selected(members: Any) -> dict[str, list[int]]:
    return {
        name: site.memory["selected"]["rows"].tolist() for name, site in members.items()
    }


@pytest.mark.parametrize(
    "strategy", [AHFAL(), FALE(allot="site"), FALE(allot="federation")], ids=str
)
def test_a_query_over_a_link_picks_what_the_simulator_picks(strategy: Any) -> None:
    there = federation(strategy, FOUR)
    here = simulation(FOUR, strategy)
    budget = dict.fromkeys(FOUR, 3)
    strategy.query(there.ask(), budget, {})
    strategy.query(here.ask(), budget, {})
    assert selected(there.simulation.members) == selected(here.members)
    assert there.simulation.shown.bytes_up == here.shown.bytes_up
    assert there.simulation.shown.bytes_down == here.shown.bytes_down


def test_training_over_a_link_ends_at_the_weights_of_the_simulator() -> None:
    there = federation(Asker(), FOUR)
    here = simulation(FOUR, Asker())
    training = here.members["a"].parts.methods["training"]
    state = here.members["a"].memory["global"]
    result = training.round(state, there.ask("0/train/0", "training"))
    expected = training.round(state, here.ask("training"))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_messages_that_are_lost_doubled_late_and_damaged_change_nothing(seed: int) -> None:
    faults = Faults(lost=0.2, twice=0.3, damaged=0.1, late=4.0)
    there = federation(
        AHFAL(), FOUR, Timeouts(500.0), transport={"faults": faults, "seed": seed}
    )
    here = simulation(FOUR, AHFAL())
    AHFAL().query(there.ask(), dict.fromkeys(FOUR, 3), {})
    here.query(3)
    assert selected(there.simulation.members) == selected(here.members)


def test_a_site_that_is_silent_delays_an_exchange_by_the_timeout_and_is_missing_from_it() -> (
    None
):
    there = federation(Asker(), FOUR, Timeouts(10.0, quorum=3), transport={"down": {"b"}})
    total = there.ask().sum(Asker().plain)
    assert float(total["sites"]) == 3
    assert 10.0 <= there.transport.seconds < 15.0
    assert [e for e in there.events if e["event"] == "missing"] == [
        {
            "event": "missing",
            "sites": ["b"],
            "key": "0/query/0",
            "exchange": key_of("0/query/0"),
        }
    ]
    assert there.event_log.read_note("counted/b") is None
    assert there.event_log.read_note("counted/a") == "0/query/0"


def test_a_site_known_to_be_away_is_waited_for_once_and_again_when_it_is_back() -> None:
    there = federation(Asker(), FOUR, Timeouts(10.0, quorum=3), transport={"down": {"b"}})
    ask = there.ask()
    for _ in range(3):
        ask.sum(Asker().plain)
    assert there.transport.seconds < 15.0
    there.transport.down.clear()
    assert float(ask.sum(Asker().plain)["sites"]) == 4
    assert there.event_log.read_note("counted/b") == "0/query/3"
    assert there.remote.absent == set()


def test_too_few_sites_end_the_exchange_after_the_patience_with_who_is_missing() -> None:
    waits = Timeouts(10.0, quorum=3, patience=60.0)
    there = federation(Asker(), FOUR, waits, transport={"down": {"b", "d"}})
    with pytest.raises(
        RuntimeError, match=r"2 of 4 sites .* 3 are necessary; missing: b, d; .*resume"
    ):
        there.ask().sum(Asker().plain)
    assert 60.0 <= there.transport.seconds < 65.0
    assert there.event_log.read_note("place") is None  # none of it counts
    there.transport.down.clear()
    assert float(there.ask().sum(Asker().plain)["sites"]) == 4


def test_a_quorum_that_comes_late_is_enough() -> None:
    there = federation(
        Asker(), FOUR, Timeouts(10.0, quorum=4, patience=100.0), transport={"down": {"b"}}
    )
    seen: list[str] = []

    def notify(event: Event) -> None:
        seen.append(event["event"])
        if event["event"] == "waiting":
            there.transport.down.clear()

    there.remote.notify = notify
    assert float(there.ask().sum(Asker().plain)["sites"]) == 4
    assert "waiting" in seen
    assert there.transport.seconds < 20.0


@pytest.mark.parametrize(
    ("quorum", "asked", "need"),
    [
        (None, 4, 4),
        (None, 1, 1),
        (3, 4, 3),
        (3, 3, 2),
        (3, 1, 1),
        (1, 4, 1),
    ],
)
def test_a_quorum_says_how_many_of_all_sites_may_be_missing(
    quorum: int | None, asked: int, need: int
) -> None:
    assert (
        federation(Asker(), FOUR, Timeouts(quorum=quorum)).remote._find_quorum(asked)
        == need
    )


@pytest.mark.long
def test_fifty_rounds_with_a_third_of_the_sites_away_end_and_none_waits_longer_than_it_may() -> (
    None
):
    there = federation(Asker(), FOUR, Timeouts(10.0, quorum=2, patience=200.0))

    def wake_when_waited_for(event: Event) -> None:
        if event["event"] == "waiting":
            there.transport.down.clear()

    there.remote.notify = wake_when_waited_for
    draw = torch.Generator().manual_seed(0)
    counted = []
    for r in range(50):
        away = (torch.rand(4, generator=draw) < 0.3).tolist()
        there.transport.down = {s for s, removed in zip(FOUR, away, strict=True) if removed}
        before = there.transport.seconds
        counted.append(int(there.ask(f"0/train/{r}").sum(Asker().plain)["sites"]))
        assert there.transport.seconds - before < 20.0
    assert there.event_log.read_note("place") == "50"
    assert set(counted) == {2, 3, 4}


# -- rejections ----------------------------------------------------------------------------


def one_is(there: Federation, site: str, **changes: Any) -> None:
    """Replace the replies of a site."""
    there.signing[site].change = lambda instruction, answer: {**answer, **changes}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"x": torch.full((6,), torch.nan)}, "x is NaN or infinite"),
        (
            {"x": torch.zeros(5)},
            r"x is a tensor of shape \(5,\), but .* a tensor of shape \(6,\)",
        ),
        (
            {"y": 1.0},
            r"its reply has the fields \['n', 'x', 'y'\], but the others have \['n', 'x'\]",
        ),
        ({"x": "much"}, "x is text, but that of other sites is a tensor"),
        ({"x": [1.0]}, r"x is \[1.0\], which is neither a tensor nor a plain value"),
        ({"#epsilon": -1.0}, "#epsilon is -1.0"),
    ],
)
def test_a_bad_answer_is_refused_by_site_and_field_and_the_round_goes_on(
    changes: dict[str, Any], why: str
) -> None:
    there = federation(Asker(), FOUR, Timeouts(quorum=3))
    there.remote.response_check.rows = dict.fromkeys(FOUR, 20)
    one_is(there, "c", **changes)
    assert float(there.ask().sum(Asker().plain)["sites"]) == 3
    assert there.refusals.keys() == {"c"}
    with pytest.raises(ValueError, match=why):
        raise ValueError(there.refusals["c"])
    # the coordinator does not wait for a site that has replied
    assert there.transport.seconds < 1.0


def test_refusals_that_make_a_quorum_impossible_are_waited_for_until_the_patience() -> None:
    there = federation(Asker(), FOUR, Timeouts(quorum=3, patience=300.0))
    for site in "bc":
        one_is(there, site, n=torch.tensor(torch.inf))
    with pytest.raises(
        RuntimeError, match=r"2 of 4 sites replied .* 3 are necessary; .* site b: n is NaN"
    ):
        there.ask().sum(Asker().plain)
    assert 300.0 <= there.transport.seconds < 305.0
    assert there.event_log.read_note("place") is None  # none of it counts
    waiting = [e["sites"] for e in there.events if e["event"] == "waiting"]
    assert waiting and all(sites == ["b", "c"] for sites in waiting)
    refusals = [e["site"] for e in there.events if e["event"] == "refused"]
    assert refusals == ["b", "c"]  # each is said once


@pytest.mark.parametrize("masks", [Privacy(), SECURE], ids=["plain", "masked"])
def test_an_exchange_of_all_sites_ends_when_a_rejected_one_has_recovered(
    masks: Privacy,
) -> None:
    """The first replies of a site are invalid, then its disk is full, then it is well."""
    there = federation(Asker(), FOUR, Timeouts(), privacy=masks)
    site = there.signing["b"]
    keys: list[str] = []

    def handle(blob: bytes) -> bytes:
        instruction = open_instruction(site.public, blob)
        keys.append(str(instruction.key))
        if len(keys) == 3:
            full = Reply(
                RUN, "b", instruction.key, refused="disk full", life=instruction.life
            )
            return sign_message(site.secret, full)
        return site.handle(blob)

    def spoil(instruction: Any, answer: Any) -> Any:
        return {**answer, "n": torch.tensor(torch.nan)} if len(keys) <= 2 else answer

    there.transport.alive["b"] = handle
    site.change = spoil
    total = there.ask().sum(Asker().plain)
    assert float(total["sites"]) == 4
    assert len(set(keys[:4])) == 4  # a site repeats its reply under a known key
    assert there.transport.seconds < 60.0
    (waiting, *_) = [e for e in there.events if e["event"] == "waiting"]
    assert (waiting["sites"], waiting["needed"]) == (["b"], 4)
    assert there.event_log.read_note("counted/b") == keys[-1]


def test_a_study_does_not_start_while_a_site_refuses_it() -> None:
    there = federation(Asker(), FOUR, Timeouts())
    one_is(there, "b", n=torch.tensor(torch.inf))
    with pytest.raises(RuntimeError, match="4 of 4 sites, but 1 replies"):
        there.ask("0/hello").sum(Asker().plain)
    assert there.transport.seconds < 1.0


def test_a_verb_that_fails_at_a_site_is_a_refusal_with_its_sentence() -> None:
    there = federation(Asker(), FOUR, Timeouts(quorum=3))
    none: Any = {}  # a site without the algorithms of the study
    site = there.signing["b"].site
    site.parts = replace(site.parts, methods=none)
    there.ask().sum(Asker().plain)
    assert there.refusals["b"] == "instruction 0/query/0 is of 'query'; this study has []"


def test_a_message_that_another_site_signed_is_never_the_sites_own() -> None:
    there = federation(Asker(), FOUR, Timeouts(quorum=3))
    there.signing["b"].secret = new_signing_key()
    assert float(there.ask().sum(Asker().plain)["sites"]) == 3
    assert "was not signed with its key" in there.refusals["b"]
    assert there.remote.absent == {
        "b"
    }  # it may still reply: the rejected message was not its own


@pytest.mark.parametrize(("run", "key"), [("other run", "0/query/0"), (RUN, "0/query/1")])
def test_an_answer_under_another_key_or_of_another_run_is_not_one(
    run: str, key: str
) -> None:
    there = federation(Asker(), FOUR, Timeouts(quorum=3))
    liar = there.signing["d"]

    def handle(blob: bytes) -> bytes:
        instruction = open_instruction(liar.public, blob)
        answer = liar.answer(instruction)  # a valid reply to another instruction
        return sign_message(liar.secret, Reply(run, "d", key_of(key), answer))

    there.transport.alive["d"] = handle
    assert float(there.ask().sum(Asker().plain)["sites"]) == 3
    assert there.refusals == {}


@pytest.mark.parametrize(("life", "answers"), [("earlier", 4), ("now", 3)])
def test_a_refusal_of_what_an_earlier_process_asked_does_not_count(
    life: str, answers: int
) -> None:
    there = federation(Asker(), FOUR, Timeouts(quorum=3))
    there.remote.life = "now"
    late = Reply(RUN, "b", key_of("0/query/0"), refused="the disk is full", life=life)
    there.transport.comes_late("b", sign_message(there.signing["b"].secret, late))
    assert float(there.ask().sum(Asker().plain)["sites"]) == answers


def test_an_order_that_no_site_can_read_is_refused_in_the_end() -> None:
    there = federation(Asker(), FOUR, Timeouts(quorum=None))
    there.signing["a"].public = there.signing["b"].public[::-1]
    with pytest.raises(
        RuntimeError, match=r"site a: a message in the name of the coordinator"
    ):
        there.ask().sum(Asker().plain)


# -- event log -----------------------------------------------------------------------------


def test_what_counted_and_the_place_are_noted_with_the_exchange_or_not_at_all() -> None:
    there = federation(Asker(), FOUR)
    with pytest.raises(ZeroDivisionError), there.event_log.transaction():
        there.ask().sum(Asker().plain)
        raise ZeroDivisionError
    assert there.event_log.read_note("place") is None
    assert there.event_log.read_note("counted/a") is None
    there.ask().sum(Asker().plain)
    ask = there.ask()
    ask.sum(Asker().plain)  # replayed
    assert there.event_log.read_note("place") == "1"
    ask.sum(Asker().plain)
    assert (there.event_log.read_note("place"), there.event_log.read_note("counted/a")) == (
        "2",
        "0/query/1",
    )


def test_an_order_names_the_exchange_that_counted_last_and_a_place_that_grows() -> None:
    there = federation(Asker(), FOUR, Timeouts(10.0, quorum=3))
    ask = there.ask()
    ask.sum(Asker().plain)
    there.transport.down = {"b"}
    ask.sum(Asker().plain)
    there.transport.down = set()
    ask.sum(Asker().plain)
    public = there.signing["b"].public
    instructions = [
        open_instruction(public, blob)
        for site, blob in there.transport.delivered
        if site == "b"
    ]
    assert [(str(o.key), o.number, o.counted) for o in instructions] == [
        ("0/query/0", 1, None),
        ("0/query/2", 3, "0/query/0"),
    ]


def test_progress_is_told_by_the_sites_that_are_there_and_changes_nothing() -> None:
    there = federation(Asker(), FOUR, Timeouts(600.0), transport={"down": {"c"}})
    values = there.remote.progress()
    assert values == {site: {"asked": 3, "open": 1} for site in "abd"}
    assert GLANCE <= there.transport.seconds < GLANCE + 5.0
    assert there.event_log.read_note("place") is None
    there.remote.progress()
    assert there.transport.seconds < GLANCE + 6.0


def test_a_journal_forgets_no_note_and_keeps_the_newest() -> None:
    there = federation(Asker(), FOUR)
    assert there.event_log.read_note("a") is None
    there.event_log.note("a", "1")
    there.event_log.note("a", "2")
    assert there.event_log.read_note("a") == "2"


def test_in_process_and_remote_are_the_same_kind_of_carrier() -> None:
    there = federation(Asker(), FOUR)
    assert there.remote.sites == InProcessChannel(there.simulation.members, None).sites  # type: ignore[arg-type]
