"""Going on without an answer, or without a site: what is struck out stays out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fallow.cli import main
from fallow.core.events import Event
from fallow.federation.agreement import Waits
from fallow.federation.coordinator.folder import CoordinatorFolder
from fallow.federation.coordinator.live import Control
from fallow.federation.coordinator.program import strike_out
from fallow.federation.coordinator.strikes import can_advance, describe_key, parse_round
from fallow.privacy import Privacy
from fallow.report.live import describe_standing, read_live, without
from fallow.settings.recipe import with_settings
from fallow.storage.errors import Failed
from fallow.storage.files import only_one
from tests.federation.hostile import turn
from tests.federation.worlds import NAMES, TINY, Federation, tiny

THREE = NAMES[:3]
ROUNDS = replace(TINY, rounds=3)
SHORT = Waits(timeout=5.0, patience=60.0, deadline=3600.0)


def stops(world: Federation, when: Callable[[Event], bool]) -> Callable[[Event], None]:
    """People answer, and the coordinator is told to stop where ``when`` says."""

    def say(event: Event) -> None:
        world.label(event)
        if when(event):
            Control(world.place / "control").tell("stop")

    return say


def run_until_round(world: Federation, cycle: int, number: int) -> None:
    """Run until a round is over."""
    here = {"event": "round", "cycle": cycle, "round": number}
    assert not world.program(stops(world, lambda event: event == here)).go()


def strike_answer(world: Federation, site: str, key: str | None) -> None:
    strike_out(world.place, world.agreement, site, key)


def poison(key: str, answer: dict[str, Any]) -> dict[str, Any]:
    """A model that is 100 times too long, which nothing here refuses."""
    if key.startswith("0/train/1/") and "w" in answer:
        return {**answer, "w": 100 * answer["w"]}
    return answer


def state(world: Federation, cycle: int = 0) -> torch.Tensor:
    from safetensors.torch import load_file

    tree = load_file(world.program().place / "checkpoints" / f"cycle-{cycle}.safetensors")
    found = [value for name, value in sorted(tree.items()) if value.numel() > 3]
    return torch.cat([value.flatten().double() for value in found])


def heard(world: Federation, site: str) -> list[str]:
    """What people at a site were told by the coordinator."""
    return world.ledgers[site].orders.load_news()


# -- an answer -----------------------------------------------------------------------------------


def test_a_run_goes_back_to_a_round_and_on_without_the_answer_of_a_site(
    tmp_path: Path,
) -> None:
    honest = tiny(tmp_path / "a", ROUNDS, seed=3)
    world = tiny(tmp_path / "b", ROUNDS, seed=3)
    turn(world, "chur", poison)
    run_until_round(world, 0, 1)
    strike_answer(world, "chur", "0/train/1/0")
    assert world.program().go()
    assert honest.program().go()
    assert float(state(world).norm()) < 3 * float(state(honest).norm())
    asked = [event for event in world.said("answered") if event["key"] == "0/train/1/0~1"]
    assert {event["site"] for event in asked} == {"basel", "davos"}
    assert world.bought(0) == honest.bought(0)


def test_what_is_struck_out_is_named_and_told_and_stays_out_after_a_restart(
    tmp_path: Path,
) -> None:
    world = tiny(tmp_path, ROUNDS)
    run_until_round(world, 0, 1)
    strike_answer(world, "chur", parse_round("0/2"))
    said = "The answers of chur in round 2 of cycle 0 were struck out on"
    assert said in without(read_live(world.place) or {})[0]
    run_until_round(world, 0, 2)
    assert world.program(pages=True).go()
    assert said in without(read_live(world.place) or {})[0]
    assert said in (world.place / "report.html").read_text()
    heard = world.ledgers["chur"].orders.load_news()
    assert len(heard) == 1
    assert "round 2 of cycle 0: it does not count" in heard[0]
    assert world.ledgers["basel"].orders.load_news() == []


def test_a_phase_whose_labels_were_not_asked_for_yet_may_be_repeated(
    tmp_path: Path,
) -> None:
    world = tiny(tmp_path, ROUNDS)
    turn(world, "chur", poison)
    assert not world.program(stops(world, lambda event: event["event"] == "query")).go()
    strike_answer(world, "chur", "0/train/1")
    assert world.program().go()
    assert world.bought(0) == dict.fromkeys(THREE, 3)
    asked = {event["key"] for event in world.said("answered")}
    assert {"0/train/0/0", "0/train/0/0~1", "0/train/1/0~1", "0/query/0~1"} <= asked


def test_a_query_may_be_repeated_without_a_site_which_buys_nothing_then(
    tmp_path: Path,
) -> None:
    world = tiny(tmp_path, with_settings(TINY, {"query": "ahfal"}))
    first = {"event": "answered", "site": "davos", "key": "0/query/0"}
    assert not world.program(
        stops(world, lambda event: first.items() <= event.items())
    ).go()
    strike_answer(world, "chur", "0/query/0")
    assert world.program().go()
    assert world.bought(0) == {"basel": 3, "chur": 0, "davos": 3}


def test_where_a_run_stopped_with_an_error_needs_no_key(tmp_path: Path) -> None:
    world = tiny(tmp_path, ROUNDS, waits=SHORT)

    def away(event: Event) -> None:
        world.label(event)
        if event["event"] == "round" and event["round"] == 0 and event["cycle"] == 0:
            world.link.down = {"davos"}

    with pytest.raises(RuntimeError, match="missing: davos"):
        world.program(away).go()
    strike_answer(world, "davos", None)
    world.link.down = set()
    assert world.program().go()
    lines = without(read_live(world.place) or {})
    assert lines[0].startswith("The answers of davos in round 2 of cycle 0 were struck out")


@pytest.mark.parametrize(
    ("site", "key", "why"),
    [
        ("bern", "0/train/0", "'bern' is no site of this study; it has basel, chur, davos"),
        ("chur", "0/train/2", "the run has not come to round 3 of cycle 0 yet"),
        ("chur", "1/train/0", "the run has not come to round 1 of cycle 1 yet"),
        ("chur", "0/initial/0", "the first labels is over: its rows were shown to people"),
        ("chur", "0/initial/features/0", "the first labels is over|agree on units"),
        ("chur", None, "the run did not stop with an error, so say which answer"),
    ],
)
def test_what_cannot_be_struck_out_is_refused_in_a_sentence(
    site: str, key: str | None, why: str, tmp_path: Path
) -> None:
    world = tiny(tmp_path, ROUNDS)
    run_until_round(world, 0, 1)
    with pytest.raises(ValueError, match=why):
        strike_answer(world, site, key)
    assert read_live(world.place) is not None
    assert world.program().go()


def test_a_round_whose_model_chose_rows_that_are_asked_for_is_over(tmp_path: Path) -> None:
    world = tiny(tmp_path, ROUNDS)
    asking = stops(world, lambda e: e["event"] == "labels" and e["step"] == "0/query")
    assert not world.program(asking).go()
    for key in ("0/train/1", "0/query/0"):
        with pytest.raises(
            ValueError, match=r"is over: .* labels are being bought or were"
        ):
            strike_answer(world, "chur", key)
    assert world.program().go()
    with pytest.raises(ValueError, match="the study is finished"):
        strike_answer(world, "chur", "1/train/0")


def test_nothing_is_struck_out_of_secure_sums(tmp_path: Path) -> None:
    world = tiny(tmp_path, replace(ROUNDS, privacy=Privacy(secure_sum=True)))
    run_until_round(world, 0, 0)
    with pytest.raises(
        ValueError, match="with secure sums the coordinator sees totals alone"
    ):
        strike_answer(world, "chur", "0/train/0")


def test_nothing_is_struck_out_twice_or_before_the_start_or_beside_a_coordinator(
    tmp_path: Path,
) -> None:
    world = tiny(tmp_path, ROUNDS)
    with pytest.raises(ValueError, match="was not started"):
        strike_answer(world, "chur", "0/train/0")
    run_until_round(world, 0, 1)
    strike_answer(world, "chur", "0/train/1")
    with pytest.raises(
        ValueError, match="chur is struck out of round 2 of cycle 0 already"
    ):
        strike_answer(world, "chur", "0/train/1/0")
    strike_answer(world, "davos", "0/train/1/0")
    with pytest.raises(
        ValueError, match=r"0 sites would be left in round 2 .* FedAvg needs 1"
    ):
        strike_answer(world, "basel", "0/train/1/0")
    with (
        only_one(world.place / "coordinator.lock"),
        pytest.raises(Failed, match="coordinator is running"),
    ):
        strike_answer(world, "basel", "0/train/1")


def test_the_command_strikes_an_answer_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = tiny(tmp_path, ROUNDS)
    run_until_round(world, 0, 1)
    office = SimpleNamespace(agreement=world.agreement)
    monkeypatch.setattr(CoordinatorFolder, "open", lambda folder: office)
    about = ["fallow", "coordinate", "strike", str(world.place), "chur", "--round", "0/2"]
    monkeypatch.setattr(sys, "argv", about)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = " ".join(capsys.readouterr().out.split())
    assert "chur is struck out of round 2 of cycle 0; the run goes on from there" in said
    assert world.program().go()


def test_keys_are_said_as_people_count() -> None:
    assert describe_key("0/query-1") == "the query of cycle 0 (part 2)"
    assert describe_key("1/train/targets") == "1/train/targets"
    with pytest.raises(ValueError, match="'4' is no round"):
        parse_round("4")


# -- what the server half stops on ---------------------------------------------------------------


def test_an_answer_on_which_the_server_half_stops_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fallow.training import FedAvg

    world = tiny(tmp_path / "a", ROUNDS, seed=3)
    honest = tiny(tmp_path / "b", ROUNDS, seed=3)
    whole = FedAvg.round

    def stumbling(self: FedAvg, state: Any, ask: Any) -> Any:
        found = whole(self, state, ask)
        if ask.key == "0/train/1":
            raise ValueError("nothing can be computed with that")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FedAvg, "round", stumbling)
        for _ in range(2):
            with pytest.raises(ValueError, match="nothing can be computed with that"):
                world.program().go()
    (first, second) = world.said("taken back")
    assert (first["key"], second["key"]) == ("0/train/1/0", "0/train/1/0")
    assert "does not count" in first["why"]
    assert world.program().go()
    for site in world.sites:  # each start asked it anew
        performed = world.ledgers[site].orders.load_standing_keys(
            str(world.ledgers[site].orders.newest_run())
        )
        assert [key for key in performed if key.startswith("0/train/1/0")] == [
            "0/train/1/0~2"
        ]
    assert honest.program().go()
    torch.testing.assert_close(state(world), state(honest))


# -- a site --------------------------------------------------------------------------------------


def scaling_waits(world: Federation, then: Callable[[], None]) -> Callable[[Event], None]:
    """A site is away while columns are scaled; ``then`` happens when it is waited for."""

    def say(event: Event) -> None:
        world.label(event)
        if event["event"] == "met":
            world.link.down = {"davos"}
        if event["event"] == "waiting" and event["key"].startswith("0/initial/features"):
            then()

    return say


def test_scaling_goes_on_without_a_silent_site_when_somebody_says_so(
    tmp_path: Path,
) -> None:
    world = tiny(tmp_path, waits=replace(SHORT, patience=6e5))
    seen: list[str] = []

    def advance() -> None:
        seen.append(describe_standing(read_live(world.place) or {}))
        Control(world.place / "control").tell("advance")

    assert world.program(scaling_waits(world, advance)).go()
    assert world.link.seconds < 60.0
    for word in ("Waiting for davos since", "at the latest until", "coordinate advance"):
        assert word in seen[0]
    assert world.bought(-1) == {"basel": 4, "chur": 4, "davos": 0}
    live = read_live(world.place) or {}
    assert without(live)[0].startswith("The study goes on without davos since")
    assert live["waiting"] is None
    assert sorted(world.records()[-1]["per_site"]) == ["basel", "chur"]


def test_a_site_that_left_stays_out_after_a_restart(tmp_path: Path) -> None:
    world = tiny(tmp_path, ROUNDS, waits=replace(SHORT, patience=6e5))
    on = scaling_waits(world, lambda: Control(world.place / "control").tell("advance"))

    def say(event: Event) -> None:
        on(event)
        if event["event"] == "round" and event["cycle"] == 0:
            Control(world.place / "control").tell("stop")

    assert not world.program(say).go()
    world.link.down = set()
    assert world.program().go()
    assert world.bought(0) == {"basel": 3, "chur": 3, "davos": 0}
    (said,) = heard(world, "davos")
    assert "the study goes on without this site since" in said
    assert heard(world, "basel") == []


def away_after(
    world: Federation, event: str, then: Callable[[Event], None], **more: Any
) -> Callable[[Event], None]:
    """A site is away from an event on; ``then`` happens when an exchange waits for it."""
    happened: list[Event] = []

    def say(found: Event) -> None:
        world.label(found)
        if found["event"] == event and found.items() >= more.items() and not happened:
            happened.append(found)  # a run that goes back comes there again
            world.link.down = {"davos"}
        if found["event"] == "waiting" and not found["key"].startswith("progress/"):
            then(found)

    return say


def advance_in(world: Federation) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        world.link.down = set()  # it is back for what comes later
        Control(world.place / "control").tell("advance")

    return tell


@pytest.mark.parametrize(
    ("begin", "more", "what"),
    [
        ("round", {"cycle": 0, "round": 0}, "round 2 of cycle 0"),
        ("query", {"cycle": 0}, "the query of cycle 0"),
        ("labelled", {"step": "0/query"}, "the end of the query of cycle 0"),
        ("labelled", {"step": "0/initial"}, "the end of the first labels"),
        ("round", {"cycle": 1, "round": 2}, "model/finish"),
    ],
)
def test_any_exchange_goes_on_without_a_silent_site_when_somebody_says_so(
    begin: str, more: dict[str, Any], what: str, tmp_path: Path
) -> None:
    world = tiny(tmp_path, ROUNDS, waits=replace(SHORT, patience=6e5))
    assert world.program(away_after(world, begin, advance_in(world), **more)).go()
    assert world.link.seconds < 3600.0
    lines = without(read_live(world.place) or {})
    assert [line for line in lines if f"The answers of davos in {what} were" in line]
    if begin == "round":
        assert sum(world.bought(cycle)["davos"] for cycle in (-1, 0)) == 7


def test_a_wait_says_who_since_when_until_when_and_what_can_be_done(tmp_path: Path) -> None:
    world = tiny(tmp_path, ROUNDS, waits=SHORT)
    told: list[dict[str, Any]] = []

    def back(event: Event) -> None:
        told.append(json.loads((world.place / "live.json").read_text()))
        world.link.down = set()

    assert world.program(away_after(world, "round", back, cycle=0, round=0)).go()
    waiting = told[0]["waiting"]
    assert (waiting["sites"], waiting["needed"], waiting["can_advance"]) == (
        ["davos"],
        3,
        True,
    )
    line = describe_standing(told[0])
    for word in (
        "Waiting for davos since",
        "until",
        "0/train/1/0 needs 3 answers",
        "advance",
    ):
        assert word in line


def test_a_study_cannot_begin_without_a_site_and_masked_sums_begin_anew_by_themselves(
    tmp_path: Path,
) -> None:
    agreed = tiny(tmp_path / "a", ROUNDS).agreement
    assert can_advance(agreed, "0/train/1/0", ["davos"])
    assert not can_advance(agreed, "0/hello/0", ["davos"])
    assert not can_advance(agreed, "0/train/1/0", THREE)
    masked = replace(ROUNDS, privacy=Privacy(secure_sum=True))
    assert not can_advance(tiny(tmp_path / "b", masked).agreement, "0/train/1/0", ["davos"])


def test_people_who_are_waited_for_at_a_silent_site_are_named(tmp_path: Path) -> None:
    world = tiny(tmp_path, away={"davos"}, waits=replace(SHORT, quorum=2))
    told: list[str] = []

    def say(event: Event) -> None:
        world.label(event)
        if event["event"] == "labels":
            told.append(describe_standing(read_live(world.place) or {}))
            if "davos" in world.link.down:
                Control(world.place / "control").tell("advance")
            world.link.down = {"davos"}

    assert world.program(say).go()
    assert "No word from davos (since" in told[1]
    assert "'fallow coordinate advance' goes on with the labels" in told[1]


# -- what a site that was left behind hears ------------------------------------------------------


def test_a_site_without_which_a_cycle_was_closed_hears_so_with_its_next_order(
    tmp_path: Path,
) -> None:
    world = tiny(tmp_path, ROUNDS, waits=replace(SHORT, quorum=2))
    before: list[list[str]] = []

    def say(event: Event) -> None:
        world.label(event)
        if event["event"] == "labelled" and event["step"] == "0/query":
            world.link.down = {"davos"}
        if event["event"] == "round" and event["cycle"] == 1 and not before:
            before.append(heard(world, "davos"))
            world.link.down = set()

    assert world.program(say).go()
    assert before == [[]]
    (said,) = heard(world, "davos")
    assert "closed the query of cycle 0 without this site" in said
    assert heard(world, "basel") == []


def test_people_whose_labelling_was_cut_short_hear_so_at_once(tmp_path: Path) -> None:
    world = tiny(tmp_path, ROUNDS, away={"davos"})
    looks: list[str] = []

    def say(event: Event) -> None:
        world.label(event)
        if event["event"] == "labels":
            looks.append(event["step"])
            if looks.count(event["step"]) == 2:  # by now the others are done
                Control(world.place / "control").tell("advance")

    assert world.program(say).go()
    (said,) = [line for line in heard(world, "davos") if "query of cycle 0" in line]
    assert "ended the labelling of the query of cycle 0 before its deadline" in said
    assert [line for line in heard(world, "basel") if "query" in line] == []
