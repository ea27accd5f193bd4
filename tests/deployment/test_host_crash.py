"""Test that a site may die at any moment, resumes, and performs each instruction once."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fallow.deployment.site.folder import SiteFolder
from fallow.engine.stacked import Stacked
from fallow.experiment.event_log import EventLog
from fallow.storage.database import Database
from fallow.storage.files import digest_of
from tests.deployment.hosts import Leader, folder
from tests.experiment.crash import KILLED, WELL, Points, start_child, wait_for_child

pytest.importorskip("cryptography")


@dataclass(frozen=True)
class Left:
    """Collect the final state of a site."""

    labels: list[Any]
    tasks: list[Any]
    memory: str
    sent: list[Any]


def describe_end(site: SiteFolder) -> Left:
    ledger = site.open_ledger()
    try:
        questions = [
            (q.row, q.cycle, q.position, dict(q.reasons), q.state) for q in ledger.tasks()
        ]
        memory = digest_of(ledger.store.load_states("north"))
        return Left(
            ledger.store.load_labels("north"),
            questions,
            memory,
            ledger.instructions.traffic(),
        )
    finally:
        ledger.close()


def life(site: SiteFolder, deadly: int | None = None) -> int:
    """Run a process that completes the remaining work, or dies at a point: before or after
    a commit of the ledger, or before or after local training."""

    def act() -> None:
        points = Points(site.path, deadly)
        # in the process that dies
        Database.commit = points.around(Database.commit)  # type: ignore[method-assign]
        Stacked.fit = points.around(Stacked.fit)  # type: ignore[method-assign]
        leader = Leader(site, event_log=EventLog(site.path / "event_log.sqlite"))
        state = leader.round(0, leader.first_model())
        leader.query(state)
        leader.people("ask", "0/query", allowed=3)
        leader.label()
        leader.people("close", "0/query")
        leader.round(0, state, cycle=1)
        (site.path / "points").write_text(str(points.seen))

    return wait_for_child(start_child(act))


def check(tmp_path: Path, every: int) -> None:
    template = folder(tmp_path, brought=range(6)).path
    warm = Leader(SiteFolder.open(shutil.copytree(template, tmp_path / "warm")))
    warm.round(0, warm.first_model())  # import dependencies of child processes once, here
    warm.ledger.close()
    whole = SiteFolder.open(shutil.copytree(template, tmp_path / "whole"))
    assert life(whole) == WELL
    expected, points = describe_end(whole), int((whole.path / "points").read_text())
    assert points > 20 and len(expected.labels) == 9 and len(expected.sent) == 4
    for deadly in range(0, points, every):
        site = SiteFolder.open(shutil.copytree(template, tmp_path / f"point {deadly}"))
        assert life(site, deadly) == KILLED
        assert life(site) == WELL
        assert describe_end(site) == expected, deadly


@pytest.mark.long
def test_a_site_that_dies_ends_as_one_that_never_did(tmp_path: Path) -> None:
    check(tmp_path, every=7)


@pytest.mark.soak
def test_a_site_that_dies_at_any_point_ends_as_one_that_never_did(tmp_path: Path) -> None:
    check(tmp_path, every=1)
