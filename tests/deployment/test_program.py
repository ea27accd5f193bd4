"""Test how the coordinator waits for annotators and sites, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.core.events import Event
from fallow.deployment.agreement import Timeouts
from fallow.deployment.coordinator.live import Control
from fallow.deployment.coordinator.program import is_running
from fallow.report.live import read_live
from fallow.storage.errors import StorageError
from fallow.storage.files import only_one
from tests.deployment.simulations import NAMES, TINY, Federation, tiny
from tests.each import mark_long

# -- annotators ----------------------------------------------------------------------------


@pytest.mark.long
def test_after_the_deadline_the_run_goes_on_with_the_labels_there_are(
    tmp_path: Path,
) -> None:
    now = [1e9]
    simulation = tiny(
        tmp_path, away={"chur"}, waits=Timeouts(timeout=9.0, patience=9.0, deadline=100.0)
    )

    def notify(event: Event) -> None:
        simulation.label(event)
        now[0] += 30.0 if event["event"] == "labels" else 0.0

    assert simulation.program(notify, clock=lambda: now[0]).go()
    assert simulation.bought(0) == {"basel": 3, "chur": 0, "davos": 3}
    assert [event["reason"] for event in simulation.list_events("labeled")] == [
        "deadline",
        "deadline",
    ]
    assert (
        len(simulation.list_events("labels")) == 8
    )  # 0, 30, 60 and 90 seconds are below 100
    assert simulation.records()[-1]["labeled_per_site"]["chur"] == [0]


@pytest.mark.long
def test_unanswered_questions_are_given_back_and_may_be_asked_again(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, replace(TINY, cycles=2), away={"chur"})
    answered = [0]

    def notify(event: Event) -> None:
        if event["event"] == "labels":
            simulation.away = {"chur"} if event["step"] != "1/query" else set()
            Control(simulation.coordinator_folder / "control").tell(
                "advance"
            ) if simulation.away else None
            answered[0] += 1
        simulation.label(event)

    assert simulation.program(notify).go()
    assert {cycle: simulation.bought(cycle)["chur"] for cycle in (-1, 0, 1)} == {
        -1: 0,
        0: 0,
        1: 3,
    }


@pytest.mark.long
def test_advance_cuts_the_wait_short(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, away={"davos"})

    def notify(event: Event) -> None:
        simulation.label(event)
        if len(simulation.list_events("labels")) in (3, 6):
            Control(simulation.coordinator_folder / "control").tell("advance")

    assert simulation.program(notify).go()
    assert [event["reason"] for event in simulation.list_events("labeled")] == [
        "advance",
        "advance",
    ]
    assert simulation.bought(-1) == {"basel": 4, "chur": 4, "davos": 0}


@pytest.mark.long
def test_an_answer_cannot_tell_costs_a_label_and_trains_nothing(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    first: dict[str, int] = {}

    def annotate(site: str, row: int) -> float | None:
        is_hard = first.setdefault(site, row) == row
        return None if is_hard else simulation.truth(site, row)

    simulation.annotate = annotate
    assert simulation.program().go()
    assert simulation.bought(-1) == dict.fromkeys(NAMES[:3], 3)
    assert simulation.records()[0]["labeled"] == 9
    for site, row in first.items():
        questions = simulation.ledgers[site].tasks()
        assert [q.cycle for q in questions if q.row == row] == [
            -1
        ]  # and is not asked again


@pytest.mark.long
def test_labels_that_sites_bring_are_counted_and_cost_nothing(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, labeled={"basel": 5})
    assert simulation.program().go()
    assert simulation.records()[0]["labeled_per_site"] == {
        "basel": [9],
        "chur": [4],
        "davos": [4],
    }
    assert len(simulation.ledgers["basel"].tasks()) == 7


# -- sites ---------------------------------------------------------------------------------


@pytest.mark.long
def test_a_site_that_is_away_for_a_cycle_comes_back(tmp_path: Path) -> None:
    waits = Timeouts(timeout=5.0, quorum=2, patience=60.0, deadline=3600.0)
    simulation = tiny(tmp_path, replace(TINY, cycles=2), waits=waits)

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "query":
            simulation.transport.down = {"chur"} if event["cycle"] == 0 else set()
        if event["event"] == "labels" and simulation.transport.down:
            simulation.transport.down.clear()

    assert simulation.program(notify).go()
    assert {cycle: simulation.bought(cycle)["chur"] for cycle in (-1, 0, 1)} == {
        -1: 4,
        0: 0,
        1: 3,
    }
    assert {cycle: simulation.bought(cycle)["basel"] for cycle in (-1, 0, 1)} == {
        -1: 4,
        0: 3,
        1: 3,
    }
    assert any("chur" in event["sites"] for event in simulation.list_events("missing"))


@pytest.mark.long
def test_too_few_sites_end_the_program_with_their_names_and_it_goes_on_later(
    tmp_path: Path,
) -> None:
    simulation = tiny(tmp_path, waits=Timeouts(timeout=5.0, patience=20.0, deadline=3600.0))

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "query":
            simulation.transport.down = {"davos"}

    with pytest.raises(RuntimeError, match=r"missing: davos.*start again"):
        simulation.program(notify).go()
    live = read_live(simulation.coordinator_folder)
    assert live is not None and live["state"] == "failed"
    assert "davos" in str(live["reason"])
    simulation.transport.down.clear()
    assert simulation.program().go()
    assert simulation.bought(0) == dict.fromkeys(NAMES[:3], 3)


def test_a_refusal_is_shown_with_its_reason(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    simulation.agreement = replace(
        simulation.agreement, seed=5
    )  # sites have another agreement
    with pytest.raises(RuntimeError, match="has agreed to study"):
        simulation.program().go()
    live = read_live(simulation.coordinator_folder)
    assert live is not None and live["refusals"]
    assert {line["site"] for line in live["refusals"]} <= set(NAMES[:3])


# -- folder --------------------------------------------------------------------------------


def run_until(
    simulation: Federation, when: Callable[[Event], bool]
) -> Callable[[Event], None]:
    def notify(event: Event) -> None:
        simulation.label(event)
        if when(event):
            Control(simulation.coordinator_folder / "control").tell("stop")

    return notify


@pytest.mark.long
def test_a_stop_before_the_first_exchange_counts_once(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    Control(simulation.coordinator_folder / "control").tell("stop")
    assert not simulation.program().go()
    assert simulation.program().go()


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", mark_long(["met", "labels", "round", "query"], ["met", "query"])
)
def test_stop_ends_in_order_and_start_goes_on(kind: str, tmp_path: Path) -> None:
    simulation = tiny(tmp_path / "a", seed=3)
    whole = tiny(tmp_path / "b", seed=3)
    assert not simulation.program(
        run_until(simulation, lambda event: event["event"] == kind)
    ).go()
    live = read_live(simulation.coordinator_folder)
    assert live is not None and live["state"] == "stopped"
    assert simulation.program().go()
    assert whole.program().go()
    assert simulation.labels() == whole.labels()
    for file in ("model.safetensors", "checkpoints/cycle-1.safetensors"):
        assert (simulation.program().run_folder / file).read_bytes() == (
            whole.program().run_folder / file
        ).read_bytes()


def test_a_second_coordinator_is_refused(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    assert not is_running(simulation.coordinator_folder)
    with only_one(simulation.coordinator_folder / "coordinator.lock"):
        assert is_running(simulation.coordinator_folder)
        with pytest.raises(StorageError, match="coordinator is already running"):
            simulation.program().go()


@pytest.mark.long
def test_a_changed_study_is_refused_and_other_waits_are_not(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    assert not simulation.program(
        run_until(simulation, lambda event: event["event"] == "round")
    ).go()
    agreed = simulation.agreement
    simulation.agreement = replace(agreed, config=replace(agreed.config, budget=5))
    with pytest.raises(ValueError, match=r"study.toml has changed"):
        simulation.program().go()
    simulation.agreement = replace(agreed, waits=replace(agreed.waits, timeout=7.0))
    assert simulation.program().go()


@pytest.mark.long
def test_a_study_without_a_query_is_trained_and_finished(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, replace(TINY, cycles=0))
    assert simulation.program().go()
    assert [record["cycle"] for record in simulation.records()] == [0]
