"""Test how a coordinator reports a run: requests to act and missing sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.deployment.coordinator.event_reporter import EventReporter
from fallow.deployment.coordinator.labels import name_tasks
from fallow.deployment.coordinator.live import Control, StatusFile, utc
from fallow.report.live import describe_standing, read_live, site_columns
from tests.deployment.agreed import agreed
from tests.deployment.mistakes import full_disk
from tests.deployment.simulations import tiny
from tests.keys import step_of

NORTH = {"asked": 4, "answered": 1, "declined": 0, "open": 3, "conflicts": 0}


def asking(step: str, **sites: Any) -> Event:
    return {
        "event": "labels",
        "step": step,
        "tasks": name_tasks(step_of(step)),
        "deadline": utc(9e8),
        "sites": sites,
    }


CUT_SHORT: Event = {
    "event": "labeled",
    "step": "0/query",
    "tasks": "labels of cycle 0",
    "reason": "advance",
}


def teller(folder: Path, now: list[float], events: list[Event]) -> EventReporter:
    live = StatusFile(folder / "live.json", lambda: now[0])
    made = EventReporter(folder, agreed(), live, events.append, pages=False)
    made.begin()
    return made


def read_columns(folder: Path) -> dict[str, dict[str, str]]:
    live = read_live(folder)
    assert live is not None
    columns = site_columns(live)
    plain = [
        [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in c] for c in columns.values()
    ]
    return {
        row[0]: dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)
    }


def test_a_site_that_is_away_keeps_its_last_counts_and_when_they_were(
    tmp_path: Path,
) -> None:
    now = [0.0]
    events = list[Event]()
    tell = teller(tmp_path, now, events)
    tell(asking("0/query", north=NORTH, south=NORTH))
    now[0] = 3600.0
    tell(asking("0/query", south=NORTH | {"answered": 2, "open": 2}))
    assert events[-1]["earlier"] == {"north": (NORTH, utc(0.0))}
    columns = read_columns(tmp_path)
    assert (columns["north"]["Answered"], columns["north"]["Counted, UTC"]) == (
        "1 to 4 of 4",
        "1 Jan 00:00",
    )
    assert (columns["south"]["Answered"], columns["south"]["Counted, UTC"]) == (
        "1 to 4 of 4",
        "1 Jan 01:00",
    )
    again = teller(tmp_path, now, events)  # the coordinator was restarted
    again(asking("0/query"))
    assert set(events[-1]["earlier"]) == {"north", "south"}
    assert read_columns(tmp_path)["north"]["Answered"] == "1 to 4 of 4"


def test_counts_of_an_earlier_step_are_not_shown_for_the_next(tmp_path: Path) -> None:
    events = list[Event]()
    tell = teller(tmp_path, [0.0], events)
    tell(asking("0/initial", north=NORTH, south=NORTH))
    tell(asking("0/query", south=NORTH))
    assert events[-1]["earlier"] == {}
    assert read_columns(tmp_path)["north"]["Answered"] == "–"


def test_labels_that_were_cut_short_are_not_open_any_more(tmp_path: Path) -> None:
    tell = teller(tmp_path, [0.0], [])
    tell(asking("0/query", north=NORTH, south=NORTH | {"open": 2, "conflicts": 1}))
    tell(CUT_SHORT)
    message = "closed at the coordinator's request ('fallow coordinate advance'); 5 open labeling tasks"
    again = teller(tmp_path, [0.0], [])  # restarted with the same state
    again(CUT_SHORT)
    assert message in describe_standing(read_live(tmp_path) or {})
    columns = read_columns(tmp_path)
    assert [columns[site]["Open"] for site in ("north", "south")] == ["0", "0"]
    assert columns["south"]["Conflicts"] == "<5"  # these can still be decided
    again(asking("1/query", north=NORTH))
    assert "closed" not in describe_standing(read_live(tmp_path) or {})
    assert read_columns(tmp_path)["north"]["Open"] == "<5"


@pytest.mark.long
def test_the_page_says_why_labels_are_no_longer_waited_for(tmp_path: Path) -> None:
    simulation = tiny(tmp_path, away={"chur"})
    pages = list[str]()

    def notify(event: Event) -> None:
        if event["event"] == "labels":
            Control(simulation.coordinator_folder / "control").tell("advance")
        if event["event"] == "labeled":
            pages.append((simulation.coordinator_folder / "report.html").read_text())
        simulation.label(event)

    assert simulation.program(notify, pages=True).go()
    assert "The initial labels were closed at the coordinator&#39;s request" in pages[0]
    assert "The labels of cycle 0 were closed" in pages[1]


def test_who_is_waited_for_is_said_at_once_and_each_site_as_it_comes(
    tmp_path: Path,
) -> None:
    events = list[Event]()
    tell = teller(tmp_path, [0.0], events)
    assert events == [{"event": "meeting", "sites": ["north", "south"]}]
    for _ in range(2):
        tell({"event": "replied", "site": "south", "key": "0/hello"})
    come = [event for event in events if event["event"] == "arrived"]
    assert come == [{"event": "arrived", "site": "south", "awaited": ["north"]}]
    tell.note_greetings({})  # as a resumed run remembers it
    assert events[-1]["awaited"] == ["north"]


def test_a_state_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    events = list[Event]()
    tell = teller(tmp_path, [0.0], events)
    with full_disk(10):
        tell(asking("0/query", north=NORTH))
        tell.end("failed", "the disk is full")
    assert events[-1] == {"event": "failed", "reason": "the disk is full"}


def blocked(path: Path) -> None:
    """Put a non-empty folder in the place of a file, which blocks writing even for root."""
    path.unlink(missing_ok=True)
    (path / "taken").mkdir(parents=True)


@pytest.mark.parametrize(
    ("name", "event"), [("report.html", "page"), ("live.json", "state")]
)
def test_what_only_shows_a_run_and_cannot_be_written_is_named_and_ends_none(
    name: str, event: str, tmp_path: Path
) -> None:
    simulation = tiny(tmp_path)
    blocked(simulation.coordinator_folder / name)
    assert simulation.program(pages=True).go()
    assert simulation.records()[-1]["accuracy"] is not None
    why = simulation.list_events(event)[0]["reason"]
    assert f"{name} cannot be written" in why
    assert "the run continues" in why
    assert event == "page" or len(simulation.list_events(event)) == 1


@pytest.mark.long
def test_the_page_says_at_once_that_people_are_asked(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    pages = dict[str, str]()

    def notify(event: Event) -> None:
        if event["event"] == "labels" and event["step"] not in pages:
            pages[event["step"]] = (
                simulation.coordinator_folder / "report.html"
            ).read_text()
        simulation.label(event)

    assert simulation.program(notify, pages=True).go()
    assert list(pages) == ["0/initial", "0/query"]
    assert "Current phase: labeling, initial labels" in pages["0/initial"]
    assert "Current phase: labeling, cycle 0 of 1" in pages["0/query"]


def test_a_refusal_that_comes_again_is_one_line_with_its_newest_time(
    tmp_path: Path,
) -> None:
    times = iter((0.0, 1.0, 60.0, 61.0, 120.0, 121.0))
    live = StatusFile(tmp_path / "live.json", lambda: next(times))
    for site in ("a", "b", "a"):
        live.note_refusal(site, "0/query", "it is older, perhaps from a backup")
    assert [(refusal["site"], refusal["at"][14:16]) for refusal in live.refusals] == [
        ("b", "01"),
        ("a", "02"),
    ]
