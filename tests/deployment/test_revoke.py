"""Test that a revoked site's keys become invalid and the study continues without it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.core.refusal import RunHalted
from fallow.deployment.agreement import Timeouts
from fallow.deployment.coordinator.absences import Revocation, load_left, revoke
from fallow.deployment.coordinator.folder import REVOKED, CoordinatorFolder
from fallow.deployment.coordinator.live import (
    Control,
    RevocationRequested,
    StatusFile,
    WatchedTransport,
)
from fallow.deployment.coordinator.program import Program
from fallow.deployment.site.folder import SiteFolder
from fallow.experiment.event_log import EventLog
from fallow.privacy.settings import Privacy
from fallow.report.live import read_live, without
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.files import write_json
from fallow.transport.envelope import open_instruction
from tests.deployment.mistakes import RunCommand, refused
from tests.deployment.simulations import NAMES, TINY, Federation, federation, rows, tiny
from tests.deployment.test_closed_form import CLOSED
from tests.each import mark_long
from tests.keys import key_of

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
LEAVING = "davos"
LONGER = replace(TINY, rounds=2, cycles=2)
WAITS = Timeouts(timeout=5.0, patience=60.0, deadline=3600.0)
MOMENTS = [
    ("met", {}),
    ("labeled", {"step": "0/initial"}),
    ("round", {"cycle": 0, "round": 0}),
    ("round", {"cycle": 0, "round": 1}),
    ("query", {"cycle": 0}),
    ("labels", {"step": "0/query"}),
    ("labeled", {"step": "0/query"}),
    ("round", {"cycle": 1, "round": 1}),
    ("scored", {"cycle": 1}),
]
LONG = [MOMENTS[0], MOMENTS[3], *MOMENTS[5:9]]


class Revoking:
    """Run a study whose coordinator revokes the keys of one site at an event."""

    def __init__(self, simulation: Federation, event: str, more: dict[str, Any]) -> None:
        self.simulation = simulation
        self.event = event
        self.more = more
        self.revoked: set[str] = set()
        self.looks = 0  # number of waits for its labels after revocation
        self.delivered = 0  # messages to any site before revocation

    def notify(self, event: Event) -> None:
        self.simulation.label(event)
        if self.revoked and LEAVING in event.get("open", ()):
            self.looks += 1
            assert self.looks < 10, "its labels are waited for"
        is_it = event["event"] == self.event and event.items() >= self.more.items()
        if is_it and not self.revoked:
            self.revoked.add(LEAVING)
            self.delivered = len(self.simulation.transport.delivered)

    def program(self, notify: Callable[[Event], None] | None = None) -> Program:
        return self.simulation.program(
            notify or self.notify, revoked=lambda: set(self.revoked)
        )

    def keys_after(self) -> set[str]:
        """Return the exchanges sent to the site after revocation."""
        public = self.simulation.agreement.coordinator
        later = self.simulation.transport.delivered[self.delivered :]
        return {
            str(open_instruction(public, blob).key)
            for site, blob in later
            if site == LEAVING
        }


def four(folder: Path, *settings: Any, **more: Any) -> Federation:
    config = replace(LONGER, **more)
    return federation(folder, config, rows(NAMES[:4]), waits=WAITS)


@pytest.mark.long
@pytest.mark.parametrize(("event", "more"), mark_long(MOMENTS, LONG), ids=str)
def test_a_study_goes_on_without_a_revoked_site_from_any_moment_on(
    event: str, more: dict[str, Any], tmp_path: Path
) -> None:
    there = Revoking(tiny(tmp_path, LONGER, waits=WAITS), event, more)
    assert there.program().go()
    assert there.revoked == {LEAVING}
    assert there.keys_after() == set()
    assert LEAVING in there.simulation.transport.revoked
    (line,) = without(read_live(there.simulation.coordinator_folder) or {})
    assert line.startswith(f"The study proceeds without {LEAVING} since")
    last = there.simulation.records()[-1]
    assert sorted(last["per_site"]) == ["basel", "chur"]
    assert there.simulation.transport.seconds < WAITS.deadline


@pytest.mark.long
@pytest.mark.parametrize(
    ("event", "more"),
    mark_long(
        [
            ("round", {"cycle": 0, "round": 0}),
            ("query", {"cycle": 0}),
            ("labels", {"step": "0/query"}),
            ("scored", {"cycle": 1}),
        ],
        [
            ("round", {"cycle": 0, "round": 0}),
            ("labels", {"step": "0/query"}),
            ("scored", {"cycle": 1}),
        ],
    ),
    ids=lambda value: str(value),
)
def test_a_study_with_secure_sums_goes_on_without_a_revoked_site(
    event: str, more: dict[str, Any], tmp_path: Path
) -> None:
    there = Revoking(four(tmp_path, privacy=Privacy(secure_sum=True)), event, more)
    assert there.program().go()
    assert there.revoked == {LEAVING}
    assert there.keys_after() == set()
    assert [
        line
        for line in without(read_live(there.simulation.coordinator_folder) or {})
        if LEAVING in line
    ]


@pytest.mark.long
def test_a_closed_form_study_goes_on_without_a_revoked_site(tmp_path: Path) -> None:
    config = ExperimentConfig(
        "hospitals",
        **CLOSED,
        training=Spec("closed-form"),
        privacy=Privacy(secure_sum=True),
    )
    simulation = federation(tmp_path, config, rows(NAMES[:4]), waits=WAITS)
    there = Revoking(simulation, "labels", {"step": "0/query"})
    assert there.program().go()
    assert there.revoked and there.keys_after() == set()
    assert simulation.records()[-1]["cycle"] == config.cycles


@pytest.mark.long
def test_a_revocation_while_the_coordinator_is_stopped_counts_at_its_next_start(
    tmp_path: Path,
) -> None:
    there = Revoking(tiny(tmp_path, LONGER, waits=WAITS), "never", {})

    def stop_in_round(event: Event) -> None:
        there.notify(event)
        if event["event"] == "round" and event["cycle"] == 1:
            Control(there.simulation.coordinator_folder / "control").tell("stop")

    assert not there.program(stop_in_round).go()
    there.revoked.add(LEAVING)
    there.delivered = len(there.simulation.transport.delivered)
    assert there.program().go()
    assert there.keys_after() == set()
    assert sorted(there.simulation.records()[-1]["per_site"]) == ["basel", "chur"]


@pytest.mark.long
def test_a_revoked_site_stays_out_after_restarts_also_with_new_keys(tmp_path: Path) -> None:
    there = Revoking(tiny(tmp_path, LONGER, waits=WAITS), "labels", {"step": "0/query"})

    def stop_later(event: Event) -> None:
        there.notify(event)
        if event["event"] == "round" and event["cycle"] == 1:
            Control(there.simulation.coordinator_folder / "control").tell("stop")

    assert not there.program(stop_later).go()
    there.revoked = set()  # its new keys were admitted
    asked = len(there.simulation.transport.delivered)
    assert there.simulation.program().go()
    public = there.simulation.agreement.coordinator
    later = there.simulation.transport.delivered[asked:]
    instructions = [
        open_instruction(public, blob) for site, blob in later if site == LEAVING
    ]
    assert {instruction.purpose for instruction in instructions} <= {"progress"}
    assert sorted(there.simulation.records()[-1]["per_site"]) == ["basel", "chur"]


def test_messages_to_and_from_a_revoked_site_are_dropped(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    simulation.coordinator_folder.mkdir(exist_ok=True)
    live = StatusFile(simulation.coordinator_folder / "live.json")
    transport = WatchedTransport(
        simulation.transport,
        live,
        Control(simulation.coordinator_folder / "control"),
        lambda: {LEAVING},
        {LEAVING},
    )
    transport.send({LEAVING: b"order", "basel": b"order"})
    transport.receive(100.0)
    assert {site for site, _ in simulation.transport.delivered} == {"basel"}
    simulation.transport.comes_late(LEAVING, b"late")
    simulation.transport.comes_late("basel", b"late")
    assert LEAVING not in {site for site, _ in transport.receive(100.0)}
    transport.removed = set()
    with pytest.raises(RevocationRequested, match=LEAVING):
        transport.receive(1.0)


@pytest.mark.long
def test_a_study_ends_in_a_sentence_where_it_needs_the_revoked_site(tmp_path: Path) -> None:
    agreed = tiny(tmp_path / "a", LONGER).agreement
    event_log = EventLog()
    arguments: dict[str, Any] = {"sites": [LEAVING], "at": "2026-11-26T00:00:00+00:00"}
    with pytest.raises(RunHalted, match="a study starts with all its sites"):
        revoke(event_log, agreed, {}, key=key_of("0/hello/0"), **arguments)
    masked = replace(LONGER, privacy=Privacy(secure_sum=True))
    with pytest.raises(
        RunHalted, match="2 of 3 sites would be left, but the study needs 3"
    ):
        revoke(
            event_log,
            tiny(tmp_path / "b", masked).agreement,
            {},
            key=key_of("0/query/0"),
            **arguments,
        )
    assert load_left(event_log) == {}


def test_a_revoked_site_belongs_to_its_step_until_that_is_finished() -> None:
    event_log = EventLog()
    line = {"at": "2026-11-26T00:00:00+00:00", "step": "0/query"}
    event_log.note("revoked", json.dumps({LEAVING: line}))
    assert Revocation(**line).step == "0/query"
    assert load_left(event_log) == {}
    event_log.finish("0/query", {})
    assert load_left(event_log) == {LEAVING: line["at"]}


# -- command -------------------------------------------------------------------------------


ADMIT = ("coordinate", "admit", "study")
REVOKE = ("coordinate", "revoke", "study")


def test_a_site_is_revoked_by_one_command_and_again_changes_nothing(
    command: RunCommand,
) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    coordinator_folder = CoordinatorFolder.open("study")
    assert coordinator_folder.revoked == frozenset()
    code, out, _ = command(*REVOKE, "south")
    assert code == 0
    assert "revoked the keys of south: its messages are no longer accepted" in out
    assert coordinator_folder.revoked == {"south"}
    file = Path("study", REVOKED).read_bytes()
    code, out, _ = command(*REVOKE, "south")
    assert code == 0
    assert "were revoked before" in out
    assert Path("study", REVOKED).read_bytes() == file
    _, out, _ = command(*REVOKE, "south", "--json")
    assert json.loads(out) == {"site": "south", "again": True, "reason": None}


def test_the_command_says_where_the_study_needs_the_site(command: RunCommand) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    command(*REVOKE, "south")
    _, out, _ = command(*REVOKE, "north")
    assert "The study cannot proceed: 0 of 2 sites would be left" in " ".join(out.split())


def test_an_unknown_site_and_one_without_keys_cannot_be_revoked(
    command: RunCommand,
) -> None:
    unknown = "'{}' is not a site of this study; {}"
    refused(command(*REVOKE, "sout"), unknown.format("sout", "did you mean 'south'?"))
    refused(command(*REVOKE, "basel"), unknown.format("basel", "known: north, south"))
    refused(command(*REVOKE, "south"), "south is not admitted, so it has no key to revoke")
    assert CoordinatorFolder.open("study").revoked == frozenset()


def test_revoked_keys_are_not_admitted_again_and_new_ones_are(command: RunCommand) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    command(*REVOKE, "south")
    again = command(*ADMIT, "south/join.json", "--replace")
    refused(again, "has revoked keys of south")
    SiteFolder.create(
        Path("fresh"), Path("study/study.toml"), name="south", data="rows.csv"
    )
    assert command(*ADMIT, "fresh/join.json", "--replace")[0] == 0
    assert CoordinatorFolder.open("study").revoked == frozenset()
    refused(command(*ADMIT, "south/join.json", "--replace"), "has revoked keys of")


def spellings(key: str) -> list[str]:
    """Return other texts that Python decodes to the bytes of a base64 text of 32 bytes."""
    texts = [f" {key}", f"{key}\n", f"{key[:20]} {key[20:]}"]
    for letter in ALPHABET:
        text = f"{key[:-2]}{letter}="
        if text != key and b64decode(text) == b64decode(key):
            texts.append(text)
    return texts


def test_a_revoked_key_is_refused_in_every_spelling(command: RunCommand) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    command(*REVOKE, "south")
    file = Path("south/join.json")
    joining = json.loads(file.read_bytes())
    texts = spellings(joining["verify"])
    assert len(texts) == 6
    for text in texts:
        file.write_text(json.dumps(joining | {"verify": text}))
        refused(command(*ADMIT, "south/join.json", "--replace"), "verify is ")
        assert CoordinatorFolder.open("study").revoked == {"south"}


def test_a_key_stays_revoked_where_a_file_spells_it_otherwise(command: RunCommand) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    command(*REVOKE, "south")
    sites = Path("study", "sites.json")
    known = json.loads(sites.read_bytes())
    for text in spellings(known["south"]["verify"]):
        write_json(sites, known | {"south": known["south"] | {"verify": text}})
        assert CoordinatorFolder.open("study").revoked == {"south"}
        assert "south" not in CoordinatorFolder.open("study").end.keys


def test_a_revoked_key_is_not_admitted_for_another_site(command: RunCommand) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    command(*REVOKE, "south")
    SiteFolder.create(
        Path("fresh"), Path("study/study.toml"), name="south", data="rows.csv"
    )
    command(*ADMIT, "fresh/join.json", "--replace")
    joining = json.loads(Path("south/join.json").read_bytes())
    Path("south/join.json").write_text(json.dumps(joining | {"name": "north"}))
    refused(command(*ADMIT, "south/join.json", "--replace"), "has revoked keys")


def test_a_damaged_list_of_revoked_keys_is_said(command: RunCommand) -> None:
    command(*ADMIT, "north/join.json", "south/join.json")
    write_json(Path("study", REVOKED), ["south"])
    refused(command(*REVOKE, "south"), f"{REVOKED} is missing or damaged", code=1)
    assert json.loads(Path("study", REVOKED).read_bytes()) == ["south"]
    write_json(Path("study", REVOKED), {"south": "a key"})
    refused(command(*REVOKE, "south"), f"{REVOKED} is damaged: it.south is", code=1)
    write_json(Path("study", REVOKED), {"south": ["a key"]})
    refused(command(*REVOKE, "south"), f"{REVOKED} is damaged: a key of south", code=1)
