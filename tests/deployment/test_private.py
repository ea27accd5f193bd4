"""Test that all files of a study are private to their owner, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from fallow.deployment.coordinator.folder import CoordinatorFolder, StudyPlan
from fallow.deployment.coordinator.live import Control
from fallow.deployment.folders import tighten
from fallow.deployment.ledger.tables import copy_of
from fallow.deployment.site.labels_files import write_lines
from fallow.deployment.site.serve import serve
from tests.deployment.agreed import table
from tests.deployment.mistakes import RunCommand
from tests.deployment.simulations import TINY, schema_for, tiny
from tests.deployment.test_serve import Wire, north

pytest.importorskip("cryptography")

OPEN_UMASK = 0o022  # the usual default: others may read
FINISHED = 300.0  # seconds in which a study of real processes ends
PATIENT = 120.0  # seconds in which a real process ends


@pytest.fixture(autouse=True)
def others_may_read_by_default() -> Iterator[None]:
    before = os.umask(OPEN_UMASK)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the files of a folder, and the folder itself, that others may access."""
    values = {}
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077 and not path.is_symlink():
            values[str(path.relative_to(folder))] = oct(mode)
    return values


def loosen(folder: Path) -> None:
    """Make folders readable for everybody, as earlier versions did."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def coordinator(tmp_path: Path) -> CoordinatorFolder:
    simulation = tiny(tmp_path / "simulation")
    simulation.close()
    plan = StudyPlan(
        "hospitals", TINY, schema_for(simulation.data), simulation.agreement.sites
    )
    return CoordinatorFolder.create(tmp_path / "office", plan)


def test_a_new_folder_of_a_coordinator_is_its_owners_alone(
    coordinator: CoordinatorFolder,
) -> None:
    assert open_to_others(coordinator.path) == {}


@pytest.mark.long
def test_all_that_a_whole_study_writes_is_its_owners_alone(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    Control(simulation.coordinator_folder / "control").tell("advance")
    assert simulation.program(pages=True).go()
    for ledger in simulation.ledgers.values():
        ledger.backup()
    written = {path.name for path in tmp_path.rglob("*")}
    assert {
        "event_log.sqlite",
        "ledger.sqlite",
        "ledger.sqlite-wal",
        copy_of(Path("ledger.sqlite")).name,
        "model.safetensors",
        "records.jsonl",
        "report.html",
        "live.json",
        "coordinator.lock",
    } <= written
    for folder in (
        simulation.coordinator_folder,
        *(site.path for site in simulation.sites.values()),
    ):
        assert open_to_others(folder) == {}, folder.name
    simulation.close()


def test_a_coordinator_starts_by_tightening_an_open_folder(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    assert simulation.program().go()
    loosen(simulation.coordinator_folder)
    assert simulation.program().go()
    assert open_to_others(simulation.coordinator_folder) == {}
    simulation.close()


def test_tightening_says_how_many_were_open_and_keeps_the_owners_own_rights(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "run"
    notes = tmp_path / "notes"
    script.touch()
    notes.touch()
    script.chmod(0o755)
    notes.chmod(0o640)
    tmp_path.chmod(0o700)
    output = tighten(tmp_path)
    assert output is not None
    assert output == (
        f"{tmp_path}: other users had permissions to 3 files and folders in it, which were removed"
    )
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600
    assert tighten(tmp_path) is None


def test_tightening_follows_no_link_out_of_the_folder(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    folder = tmp_path / "site"
    elsewhere.mkdir()
    (elsewhere / "rows.csv").touch(mode=0o644)
    folder.mkdir(mode=0o700)
    (folder / "rows.csv").symlink_to(elsewhere / "rows.csv")
    (folder / "more").symlink_to(elsewhere)
    assert tighten(folder) is None
    assert stat.S_IMODE((elsewhere / "rows.csv").stat().st_mode) == 0o644
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


def test_what_is_exported_elsewhere_is_its_owners_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    write_lines(shared / "labels.csv", [{"id": "a", "label": "yes"}])
    assert stat.S_IMODE((shared / "labels.csv").stat().st_mode) == 0o600


def test_the_commands_of_real_sites_write_for_their_owner_alone(
    command: RunCommand, tmp_path: Path
) -> None:
    for words in (("coordinate", "status", "study"), ("site", "status", "north")):
        os.umask(OPEN_UMASK)
        command(*words)
        assert os.umask(OPEN_UMASK) == 0o077, words


def test_a_site_that_starts_tightens_its_folder(tmp_path: Path) -> None:
    folder = north(tmp_path)
    with closing(folder.open_ledger()):
        pass
    loosen(folder.path)
    stop = Event()
    stop.set()
    serve(folder, stop, lambda event: None, lambda folder, handle: Wire(handle))
    assert open_to_others(folder.path) == {}


def test_rows_beside_the_site_are_not_touched(tmp_path: Path) -> None:
    data = table(tmp_path / "rows.csv")
    data.chmod(0o644)
    folder = tmp_path / "site"
    folder.mkdir()
    tighten(folder)
    assert stat.S_IMODE(data.stat().st_mode) == 0o644
