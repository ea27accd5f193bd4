"""A coordinator, sites and files, for tests of user errors."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fallow.deployment.coordinator.folder import CoordinatorFolder, StudyPlan
from fallow.deployment.site.folder import SiteFolder
from fallow.settings.config import ExperimentConfig, with_settings
from fallow.storage.files import write_json
from tests.deployment.agreed import HEAD, ROWS, TABLE, TEST_ROWS, table
from tests.deployment.label_queues import RUN, ask

RunCommand = Callable[..., tuple[int, str, str]]  # exit code, output, error
NOBODY = 65534


def coordinator_folders(folder: Path) -> Path:
    """Create coordinators ``study`` and ``other``, sites ``north`` and ``south`` of
    ``study`` (two labels are asked for at ``north``), site ``elsewhere`` of ``other``, and
    files."""
    config = with_settings(ExperimentConfig("tiny"), {"cycles": "1", "rounds": "1"})
    for name in ("study", "other"):
        plan = StudyPlan(name, config, TABLE, ("north", "south"))
        CoordinatorFolder.create(folder / name, plan, "127.0.0.1:9092", ["127.0.0.1"])
    table(folder / "rows.csv")
    table(folder / "test.csv", *TEST_ROWS)
    for path, study, name in (
        ("north", "study", "north"),
        ("south", "study", "south"),
        ("elsewhere", "other", "north"),
    ):
        SiteFolder.create(
            folder / path,
            folder / study / "study.toml",
            name=name,
            data=str(folder / "rows.csv"),
            test=str(folder / "test.csv"),
            address="127.0.0.1:1",
        )
    ledger = SiteFolder.open(folder / "north").open_ledger()
    ledger.instructions.begin(RUN)
    ask(ledger, (2, 3))
    ledger.close()
    _files(folder)
    return folder


def _files(folder: Path) -> None:
    table(folder / "other.csv", head=HEAD.replace("chol", "chols"))
    table(folder / "text.csv", ROWS[0].replace("male", "man"))
    table(folder / "class.csv", ROWS[0].replace("yes", "perhaps"))
    (folder / "head.csv").write_text(f"{HEAD}\n")
    (folder / "nothing.csv").write_text("")
    (folder / "list.json").write_text("[1]")
    (folder / "labels.csv").write_text("id,label\np3,yes\np4,no\n")
    write_json(folder / "empty.json", {})


def moved(template: Path, to: Path) -> Path:
    """Copy `coordinator_folders` and update the paths of data files in the sites' folders."""
    shutil.copytree(template, to, dirs_exist_ok=True)
    for file in to.glob("*/site.toml"):
        file.write_text(file.read_text().replace(str(template), str(to)))
    return to


def read_out(study: Path) -> str:
    """Return the fingerprint of a coordinator's study, or "" if it cannot be read."""
    try:
        return CoordinatorFolder.open(study).agreement.digest
    except ValueError:
        return "0" * 32


def edited(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def refused(done: tuple[int, str, str], message: str, code: int = 2) -> None:
    """Check that the command failed with one sentence that contains this text."""
    exit_code, _, err = done
    assert message in err, err
    assert exit_code == code
    assert err.startswith("error:") and err.count("error:") == 1
    assert "Traceback" not in err and "this is a bug" not in err and "Errno" not in err


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Limit the size of each file that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(source: Path) -> Iterator[Path]:
    """Copy a folder so that this process, even as root, can read but not write it."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = moved(source, Path(folder) / "copy")
        for path in (copy, *copy.rglob("*")):
            if is_root:
                os.chown(path, NOBODY, NOBODY)
            path.chmod(0o500 if path.is_dir() else 0o400)
        if is_root:
            os.seteuid(NOBODY)
        try:
            yield copy
        finally:
            if is_root:
                os.seteuid(0)
            for path in (copy, *copy.rglob("*")):
                path.chmod(0o700)
