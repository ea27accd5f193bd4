"""Test studies that proceed without a site, and retries of failed exchanges."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.events import Event
from fallow.deployment.agreement import Timeouts
from fallow.deployment.building import build_study
from fallow.deployment.coordinator.absences import (
    can_advance,
    describe_key,
    find_absent,
    leave_out,
)
from fallow.deployment.coordinator.live import Control
from fallow.deployment.coordinator.program import find_contracts
from fallow.experiment.event_log import EventLog
from fallow.privacy.settings import Privacy
from fallow.report.live import describe_standing, read_live, without
from tests.deployment.simulations import NAMES, TINY, Federation, tiny
from tests.each import mark_long
from tests.keys import key_of, step_of

THREE = NAMES[:3]
ROUNDS = replace(TINY, rounds=3)
SHORT = Timeouts(timeout=5.0, patience=60.0, deadline=3600.0)


def stops(simulation: Federation, when: Callable[[Event], bool]) -> Callable[[Event], None]:
    """Return a listener that answers labeling tasks and stops the study on ``when``."""

    def notify(event: Event) -> None:
        simulation.label(event)
        if when(event):
            Control(simulation.coordinator_folder / "control").tell("stop")

    return notify


def state(simulation: Federation, cycle: int = 0) -> torch.Tensor:
    from safetensors.torch import load_file

    tree = load_file(
        simulation.program().run_folder / "checkpoints" / f"cycle-{cycle}.safetensors"
    )
    result = [value for name, value in sorted(tree.items()) if value.numel() > 3]
    return torch.cat([value.flatten().double() for value in result])


# -- one round or query --------------------------------------------------------------------


def test_keys_are_said_as_people_count() -> None:
    assert describe_key(step_of("0/query-1")) == "the query of cycle 0 (part 2)"
    assert describe_key(step_of("1/train/targets")) == "1/train/targets"


def test_a_round_keeps_as_many_sites_as_its_method_needs(tmp_path: Path) -> None:
    agreement = tiny(tmp_path, ROUNDS).agreement
    contracts = find_contracts(build_study(agreement))
    event_log = EventLog()
    without_two = ["chur", "davos"]
    leave_out(
        event_log,
        agreement,
        contracts,
        sites=without_two,
        key=key_of("0/train/1/0"),
        at="now",
    )
    assert find_absent(event_log, step_of("0/train/1")) == {"chur", "davos"}
    assert find_absent(event_log, step_of("0/train/2")) == set()
    wanted = r"FedAvg needs 1 sites in round 2 .* only 0 would be left"
    with pytest.raises(ValueError, match=wanted):
        leave_out(
            event_log,
            agreement,
            contracts,
            sites=["basel"],
            key=key_of("0/train/1/0"),
            at="now",
        )
    contracts["training"] = replace(contracts["training"], everyone=True)
    with pytest.raises(ValueError, match="needs every site in every round"):
        leave_out(
            event_log,
            agreement,
            contracts,
            sites=["basel"],
            key=key_of("0/train/2/0"),
            at="now",
        )
    leave_out(
        event_log,
        agreement,
        contracts,
        sites=["basel"],
        key=key_of("0/query/close/0"),
        at="now",
    )
    assert find_absent(event_log, step_of("0/query/close")) == {"basel"}


# -- failures in the server side -----------------------------------------------------------


@pytest.mark.long
def test_an_answer_on_which_the_server_half_stops_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fallow.training import FedAvg

    simulation = tiny(tmp_path / "a", ROUNDS, seed=3)
    honest = tiny(tmp_path / "b", ROUNDS, seed=3)
    whole = FedAvg.round

    def stumbling(self: FedAvg, state: Any, ask: Any) -> Any:
        result = whole(self, state, ask)
        if ask.key == step_of("0/train/1"):
            raise ValueError("nothing can be computed with that")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(FedAvg, "round", stumbling)
        for _ in range(2):
            with pytest.raises(ValueError, match="nothing can be computed with that"):
                simulation.program().go()
    (first, second) = simulation.list_events("taken back")
    assert (first["key"], second["key"]) == ("0/train/1/0", "0/train/1/0")
    assert "are discarded" in first["reason"]
    assert simulation.program().go()
    for site in simulation.sites:  # each start asks the site again
        performed = simulation.ledgers[site].instructions.load_standing_keys(
            str(simulation.ledgers[site].instructions.newest_run())
        )
        assert [key for key in performed if key.request == key_of("0/train/1/0")] == [
            key_of("0/train/1/0~2")
        ]
    assert honest.program().go()
    torch.testing.assert_close(state(simulation), state(honest))


# -- permanent absence of a site -----------------------------------------------------------


def scaling_waits(
    simulation: Federation, then: Callable[[], None]
) -> Callable[[Event], None]:
    """Take a site offline during feature scaling; call ``then`` when it is waited for."""
    waits: list[str] = []  # exchanges that waited

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "met":
            simulation.transport.down = {"davos"}
        if event["event"] == "waiting":
            waits.append(event["key"])
            assert len(waits) < 9, "a site that was left behind is waited for"
            if event["key"].startswith("0/initial/features"):
                then()

    return notify


def test_scaling_goes_on_without_a_silent_site_when_somebody_says_so(
    tmp_path: Path,
) -> None:
    simulation = tiny(tmp_path, waits=replace(SHORT, patience=6e5))
    seen: list[str] = []

    def advance() -> None:
        seen.append(describe_standing(read_live(simulation.coordinator_folder) or {}))
        Control(simulation.coordinator_folder / "control").tell("advance")

    assert simulation.program(scaling_waits(simulation, advance)).go()
    assert simulation.transport.seconds < 60.0
    for word in ("Waiting for davos since", "at the latest", "coordinate advance"):
        assert word in seen[0]
    assert simulation.bought(-1) == {"basel": 4, "chur": 4, "davos": 0}
    live = read_live(simulation.coordinator_folder)
    assert live is not None
    assert without(live)[0].startswith("The study proceeds without davos since")
    assert live["waiting"] is None
    assert sorted(simulation.records()[-1]["per_site"]) == ["basel", "chur"]


@pytest.mark.long
def test_a_site_that_left_stays_out_after_a_restart(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, ROUNDS, waits=replace(SHORT, patience=6e5))
    on = scaling_waits(
        simulation,
        lambda: Control(simulation.coordinator_folder / "control").tell("advance"),
    )

    def notify(event: Event) -> None:
        on(event)
        if event["event"] == "round" and event["cycle"] == 0:
            Control(simulation.coordinator_folder / "control").tell("stop")

    assert not simulation.program(notify).go()
    simulation.transport.down = set()
    assert simulation.program().go()
    assert simulation.bought(0) == {"basel": 3, "chur": 3, "davos": 0}


def away_after(
    simulation: Federation, event: str, then: Callable[[Event], None], **more: Any
) -> Callable[[Event], None]:
    """Take a site offline after an event; call ``then`` when an exchange waits for it."""
    happened: list[Event] = []

    def notify(shown: Event) -> None:
        simulation.label(shown)
        if shown["event"] == event and shown.items() >= more.items() and not happened:
            happened.append(shown)  # a run that rolls back repeats this event
            simulation.transport.down = {"davos"}
        if shown["event"] == "waiting" and not shown["key"].startswith("progress/"):
            then(shown)

    return notify


def advance_in(simulation: Federation) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        simulation.transport.down = set()  # the site is back for later events
        Control(simulation.coordinator_folder / "control").tell("advance")

    return tell


EXCHANGES = [
    ("round", {"cycle": 0, "round": 0}, "round 2 of cycle 0"),
    ("query", {"cycle": 0}, "the query of cycle 0"),
    ("labeled", {"step": "0/query"}, "the end of the query of cycle 0"),
    ("labeled", {"step": "0/initial"}, "the end of the initial labeled set"),
    ("round", {"cycle": 1, "round": 2}, "model/finish"),
]


@pytest.mark.parametrize(
    ("begin", "more", "what"),
    mark_long(EXCHANGES, [EXCHANGES[0], *EXCHANGES[2:4]]),
)
def test_any_exchange_goes_on_without_a_silent_site_when_somebody_says_so(
    begin: str, more: dict[str, Any], what: str, tmp_path: Path
) -> None:
    simulation = tiny(tmp_path, ROUNDS, waits=replace(SHORT, patience=6e5))
    assert simulation.program(
        away_after(simulation, begin, advance_in(simulation), **more)
    ).go()
    assert simulation.transport.seconds < 3600.0
    (line,) = without(read_live(simulation.coordinator_folder) or {})
    assert line.lower().startswith(f"{what} proceeds without davos since")
    if what == "round 2 of cycle 0":
        keys = [
            event for event in simulation.list_events("replied") if "/1/0~1" in event["key"]
        ]
        assert {event["site"] for event in keys} == {"basel", "chur"}
    if begin == "round":
        assert sum(simulation.bought(cycle)["davos"] for cycle in (-1, 0)) == 7


@pytest.mark.long
def test_a_wait_says_who_since_when_until_when_and_what_can_be_done(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, ROUNDS, waits=SHORT)
    output: list[dict[str, Any]] = []

    def back(event: Event) -> None:
        output.append(json.loads((simulation.coordinator_folder / "live.json").read_text()))
        simulation.transport.down = set()

    assert simulation.program(away_after(simulation, "round", back, cycle=0, round=0)).go()
    waiting = output[0]["waiting"]
    assert (waiting["sites"], waiting["needed"], waiting["can_advance"]) == (
        ["davos"],
        3,
        True,
    )
    line = describe_standing(output[0])
    for word in (
        "Waiting for davos since",
        "until",
        "0/train/1/0 needs 3 replies",
        "advance",
    ):
        assert word in line


def test_a_study_cannot_begin_without_a_site_and_masked_sums_begin_anew_by_themselves(
    tmp_path: Path,
) -> None:
    agreed = tiny(tmp_path / "a", ROUNDS).agreement
    assert can_advance(agreed, key_of("0/train/1/0"), ["davos"])
    assert not can_advance(agreed, key_of("0/hello/0"), ["davos"])
    assert not can_advance(agreed, key_of("0/train/1/0"), THREE)
    masked = replace(ROUNDS, privacy=Privacy(secure_sum=True))
    assert not can_advance(
        tiny(tmp_path / "b", masked).agreement, key_of("0/train/1/0"), ["davos"]
    )


def test_people_who_are_waited_for_at_a_silent_site_are_named(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, away={"davos"}, waits=replace(SHORT, quorum=2))
    output: list[str] = []

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "labels":
            output.append(describe_standing(read_live(simulation.coordinator_folder) or {}))
            if "davos" in simulation.transport.down:
                Control(simulation.coordinator_folder / "control").tell("advance")
            simulation.transport.down = {"davos"}

    assert simulation.program(notify).go()
    assert "No progress reported by davos (since" in output[1]
    assert "'fallow coordinate advance' proceeds with the available labels" in output[1]


@pytest.mark.long
def test_a_site_without_which_a_cycle_was_closed_takes_part_in_the_next(
    tmp_path: Path,
) -> None:
    simulation = tiny(tmp_path, ROUNDS, waits=replace(SHORT, quorum=2))

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "labeled" and event["step"] == "0/query":
            simulation.transport.down = {"davos"}
        if event["event"] == "round" and event["cycle"] == 1:
            simulation.transport.down = set()

    assert simulation.program(notify).go()
    of_davos = [e["key"] for e in simulation.list_events("replied") if e["site"] == "davos"]
    assert "0/query/close/0" not in of_davos
    assert [key for key in of_davos if key.startswith("1/train")]
