"""Test errors while a study runs: disks, clocks, concurrent processes and label files."""

from __future__ import annotations

import json
import shutil
import socket
from contextlib import closing
from datetime import datetime, timedelta, tzinfo
from itertools import product
from pathlib import Path
from threading import Timer
from typing import Self

import pytest

from fallow.core.events import Event
from fallow.deployment.coordinator.live import Control
from fallow.deployment.labeling_page.label_queue import NOTHING, LabelQueue
from fallow.deployment.ledger import Ledger, labeling_tasks
from fallow.deployment.site.folder import SiteFolder
from fallow.storage.errors import StorageError
from fallow.storage.files import only_one
from fallow.transport.address import find_bind_problem
from tests.deployment.agreed import TABLE
from tests.deployment.label_queues import RUN, ask
from tests.deployment.mistakes import RunCommand, edited, full_disk, read_only, refused
from tests.deployment.simulations import tiny
from tests.each import mark_long

pytest.importorskip("cryptography")
STATUS, START = ("site", "status", "north"), ("site", "start", "north")
IMPORT = ("site", "import", "north")


def open_once() -> Ledger:
    return SiteFolder.open("north").open_ledger()


def labels() -> dict[int, list[float | None]]:
    """Return the labels of the rows that were asked for."""
    with closing(open_once()) as ledger:
        return {q.row: [answer.value for answer in q.answers] for q in ledger.tasks()}


# -- labels from files ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*IMPORT, "nowhere.csv"), "nowhere.csv cannot be read"),
        ((*IMPORT, "nothing.csv"), "nothing.csv is empty"),
        ((*IMPORT, "study"), "must end in .csv"),
        ((*IMPORT, "rows.csv"), "2 lines of rows.csv cannot be imported"),
        (
            ("site", "export", "north", "asked.txt"),
            "the name of asked.txt must end in .csv",
        ),
        (
            ("site", "export", "north", "asked.csv", "--tool", "toy-tool"),
            "there is no labeling tool 'toy-tool'; there are cvat, label-studio",
        ),
        (("label", "north", "--no-open", "--port", "65536"), "65536 is not in the range"),
        (
            ("label", "north", "--no-open", "--port", "0", "--annotator", ""),
            "'' is not a valid name",
        ),
    ],
)
def test_a_file_of_labels_that_is_none_is_named(
    words: tuple[str, ...], message: str, command: RunCommand
) -> None:
    refused(command(*words), message)
    assert labels() == {2: [], 3: []}


def test_a_limit_below_what_was_asked_is_said_and_takes_nothing_away(
    command: RunCommand,
) -> None:
    assert command(*IMPORT, "labels.csv")[0] == 0
    edited(Path("north/site.toml"), "# limit = 100", "limit = 1")
    assert (
        "requested over all runs: 2 of 1; no more labels are requested"
        in command(*STATUS)[1]
    )
    with closing(open_once()) as ledger:
        ledger.requests.close(RUN, "0/query", lambda rows: rows)
        ask(ledger, (0,), cycle=1)
        assert ledger.tasks(cycle=1) == []
    assert labels() == {2: [1.0], 3: [0.0]}


# -- disks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 4096, 20_000])
def test_labels_on_a_full_disk_are_all_taken_or_none(
    size: int, command: RunCommand
) -> None:
    shutil.copy("north/ledger.sqlite", "before.sqlite")
    with full_disk(size):
        done = command(*IMPORT, "labels.csv")
    if done[0]:
        refused(done, "free some space", code=1)
        assert labels() == {2: [], 3: []}
    assert command(*IMPORT, "labels.csv")[0] == 0
    assert labels() == {2: [1.0], 3: [0.0]}


@pytest.mark.parametrize("size", [0, 100, 300, 1000])
@pytest.mark.parametrize("folder", ["site", "coordinate"])
def test_a_folder_on_a_full_disk_is_made_when_there_is_space(
    folder: str, size: int, command: RunCommand
) -> None:
    words = {
        "site": (
            "site",
            "init",
            "new",
            "--study",
            "study/study.toml",
            "--name",
            "north",
            "--data",
            "rows.csv",
        ),
        "coordinate": (
            "coordinate",
            "init",
            "new",
            "--config",
            "demo",
            "--sites",
            "a,b",
            "--label",
            "disease",
            "--sums",
            "exact",
            "--example",
            "rows.csv",
        ),
    }[folder]
    with full_disk(size):
        refused(command(*words), "free some space, make the folder writable", code=1)
    assert command(*words)[0] == 0
    done = command(folder, "status", "new")
    assert (done[0], done[2]) == (0, "")


def test_an_export_on_a_full_disk_leaves_the_file_that_was_there(
    command: RunCommand,
) -> None:
    assert command("site", "export", "north", "open.csv")[0] == 0
    before = Path("open.csv").read_bytes()
    with full_disk(10):
        refused(command("site", "export", "north", "open.csv"), "free some space", code=1)
    assert Path("open.csv").read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("when", "size"),
    mark_long(
        product(["met", "labels", "round", "scored"], [2000, 60_000]),
        [
            *(("met", 60_000), ("labels", 2000), ("labels", 60_000)),
            *(("round", 2000), ("round", 60_000), ("scored", 2000), ("scored", 60_000)),
        ],
    ),
)
def test_a_full_disk_ends_a_run_in_one_sentence_and_it_goes_on_when_there_is_space(
    when: str, size: int, tmp_path: Path
) -> None:
    simulation = tiny(tmp_path / "a", seed=3)
    whole = tiny(tmp_path / "b", seed=3)
    assert whole.program().go()
    full = full_disk(size)

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == when and len(simulation.list_events(when)) == 1:
            full.__enter__()

    try:
        simulation.program(notify).go()
    except (StorageError, RuntimeError) as error:
        assert "cannot be written" in str(error) or "cannot be read or written" in str(
            error
        )
        assert "free some space" in str(error)
    finally:
        full.__exit__(None, None, None)
    simulation.close()
    again = simulation.again(
        tmp_path / "again"
    )  # new processes, whose disks have free space
    assert again.program().go()
    assert again.labels() == whole.labels()
    model = again.program().run_folder / "model.safetensors"
    assert model.read_bytes() == (whole.program().run_folder / model.name).read_bytes()


def test_a_damaged_page_of_the_ledger_has_a_way_out(command: RunCommand) -> None:
    with closing(open_once()) as ledger:
        ledger.backup()
    file = Path("north/ledger.sqlite")
    blob = bytearray(file.read_bytes())
    blob[100:4096] = bytes(3996)
    file.write_bytes(blob)
    refused(command(*STATUS), "copy ledger-backup.sqlite", code=1)
    for old in file.parent.glob("ledger.sqlite*"):  # as the message recommends
        old.unlink()
    shutil.copy("north/ledger-backup.sqlite", file)
    assert command(*STATUS)[0] == 0
    assert labels() == {2: [], 3: []}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (STATUS, "make the folder writable"),
        ((*IMPORT, "labels.csv"), "make the folder writable"),
        (START, "north/site.lock cannot be written (Permission denied)"),
        (("site", "export", "north", "out.csv"), "make the folder writable"),
        (
            ("coordinate", "admit", "study", "north/join.json"),
            "sites.lock cannot be written",
        ),
        (("coordinate", "start", "study"), "coordinator.lock cannot be written"),
        (
            (
                "site",
                "init",
                "new",
                "--study",
                "study/study.toml",
                "--name",
                "north",
                "--data",
                "rows.csv",
            ),
            "new cannot be written (Permission denied)",
        ),
        (
            (
                "coordinate",
                "init",
                "new",
                "--config",
                "demo",
                "--sites",
                "a,b",
                "--label",
                "disease",
                "--sums",
                "exact",
                "--example",
                "rows.csv",
            ),
            "new cannot be written (Permission denied)",
        ),
    ],
)
def test_a_folder_that_is_read_only_is_said(
    words: tuple[str, ...],
    message: str,
    command: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # import modules now, because user nobody could not read them later
    assert command(*words[:2], "--help")[0] == 0
    assert command(*STATUS)[0] == 0
    command("coordinate", "admit", "study", "south/join.json")
    if words[:2] == ("coordinate", "start"):
        command("coordinate", "admit", "study", "north/join.json")
        with only_one(Path("study/coordinator.lock")):
            command(*words)
    with read_only(Path.cwd()) as copy:
        monkeypatch.chdir(copy)
        refused(command(*words), message, code=1)


# -- concurrent processes ------------------------------------------------------------------


def test_a_port_that_another_program_uses_is_waited_for_and_then_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert find_bind_problem("127.0.0.1", port) == "another program uses this port"
        Timer(0.2, other.close).start()
        assert find_bind_problem("127.0.0.1", port, patience=30.0) is None


def test_what_runs_already_is_not_started_again_nor_disturbed(command: RunCommand) -> None:
    command("coordinate", "admit", "study", "north/join.json", "south/join.json")
    address = json.loads(Path("study/coordinator.json").read_text())["address"]
    host, _, port = address.rpartition(":")
    with only_one(Path("study/coordinator.lock")), socket.create_server((host, int(port))):
        for function in ("start", "describe"):
            refused(
                command("coordinate", function, "study"),
                "is already running in study",
                code=1,
            )
        assert "Current phase: starting" in command("coordinate", "status", "study")[1]
    assert not Path("study/flower").exists()
    with only_one(Path("north/site.lock")):
        refused(command(*START), "site north is already running in another process", code=1)
        assert command(*START)[1] == ""  # reported before the terms are shown
        assert "was just started" in command(*STATUS)[1]


# -- clocks --------------------------------------------------------------------------------


class Yesterday(datetime):
    """A clock that is one day behind."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) - timedelta(days=1)


def test_a_site_whose_clock_is_set_back_a_day_loses_no_answer_and_can_undo_the_last(
    command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_once()) as ledger:
        queue = LabelQueue("study", "north", TABLE, SiteFolder.open("north").rows, ledger)
        queue.answer(2, 1.0, "Ann", NOTHING)
        monkeypatch.setattr(labeling_tasks, "datetime", Yesterday)
        queue.answer(3, 0.0, "Ann", NOTHING)
        last = queue.undoable("Ann")
        assert last is not None and last[0].row == 3
        assert queue.take_back(3, "Ann", "1").row == 3
        times = [ledger.history(row)[0].at for row in (2, 3)]
    assert times[1] < times[0]
    assert labels() == {2: [1.0], 3: []}
    assert command(*IMPORT, "labels.csv", "--annotator", "Ann")[0] == 0
    assert labels() == {2: [1.0], 3: [0.0]}


@pytest.mark.long
def test_a_deadline_that_passed_while_nobody_ran_closes_the_cycle_with_the_labels_there_are(
    tmp_path: Path,
) -> None:
    now = [1e9]
    simulation = tiny(tmp_path, away={"davos"})

    def notify(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "labels":
            Control(simulation.coordinator_folder / "control").tell("stop")

    while not simulation.program(notify, clock=lambda: now[0]).go():
        now[0] += 86400.0 * 30
    assert {event["reason"] for event in simulation.list_events("labeled")} == {"deadline"}
    assert simulation.records()[0]["labeled_per_site"] == {
        "basel": [4],
        "chur": [4],
        "davos": [0],
    }
