"""Shared fixtures."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallow.cli import main
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.deployment.site.folder import SiteFolder
from tests.deployment.hosts import Leader, folder
from tests.deployment.ledgers import RUN, STEP, Open
from tests.deployment.mistakes import RunCommand, coordinator_folders, moved, read_out


@pytest.fixture
def open_ledger(tmp_path: Path) -> Iterator[Open]:
    """Open a ledger with 3 classes and labeling tasks for rows 4, 2 and 9 in cycle 0."""
    ledgers = []

    def make(
        rows: tuple[int, ...] = (4, 2, 9),
        limit: int | None = None,
        answers: int = 1,
        **more: Any,
    ) -> Ledger:
        ledger = Ledger(tmp_path / "ledger.sqlite", "north", 3, limit, **more)
        ledgers.append(ledger)
        if ledger.instructions.newest_run() is None:
            ledger.instructions.begin(RUN)
        ledger.requests.ask(
            RUN,
            STEP,
            cycle=0,
            allowed=len(rows),
            deadline=None,
            rows=[SelectedRow(row, answers=answers) for row in rows],
        )
        return ledger

    yield make
    for ledger in ledgers:
        ledger.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cryptography")
    return folder(tmp_path_factory.mktemp("template"), brought=range(6)).path


@pytest.fixture
def site(template: Path, tmp_path: Path) -> SiteFolder:
    """Return a site whose first six rows have their label in the file."""
    return SiteFolder.open(shutil.copytree(template, tmp_path / "SITE"))


@pytest.fixture
def leader(site: SiteFolder) -> Iterator[Leader]:
    outcome = Leader(site)
    yield outcome
    outcome.ledger.close()


@pytest.fixture(scope="session")
def offices_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cryptography")
    return coordinator_folders(tmp_path_factory.mktemp("offices"))


@pytest.fixture
def command(
    offices_template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunCommand:
    """Run the command in a folder made by `coordinator_folders`; return exit code, output and error."""
    monkeypatch.chdir(moved(offices_template, tmp_path))

    def run_command(*words: str) -> tuple[int, str, str]:
        if words[:2] == ("site", "init") and "--digest" not in words:
            words = (*words, "--digest", read_out(Path("study")))
        monkeypatch.setattr(sys, "argv", ["fallow", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, " ".join(err.split())

    return run_command
