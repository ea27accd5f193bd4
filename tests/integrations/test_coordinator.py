"""Trackers at the coordinator of real sites receive only what the coordinator sees."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fallow.core.events import Event
from fallow.study.callbacks import SCORES, CallbackList
from tests.cli.conftest import Command
from tests.deployment.simulations import tiny
from tests.integrations.test_callbacks import Notes


@pytest.mark.long
def test_the_coordinators_tracker_hears_scores_and_costs_and_nothing_of_a_site(
    tmp_path: Path,
) -> None:
    simulation = tiny(tmp_path)
    notes = Notes()
    run = simulation.program().cell
    with CallbackList(
        [notes], simulation.agreement.config, [run], print, "heart"
    ) as output:
        track = output.follow(run)

        def notify(event: Event) -> None:
            simulation.label(event)
            track(event)

        assert simulation.program(notify).go()
    simulation.close()
    assert [run.study for run in notes.runs] == ["heart"]
    assert [scores["accuracy"] for scores in notes.scores] == [
        record["accuracy"] for record in simulation.records()
    ]
    assert notes.scores[-1]["labeled"] == simulation.records()[-1]["labeled"]
    assert all(set(scores) <= set(SCORES) for scores in notes.scores)
    assert notes.messages[-2:] == [f"end {notes.runs[0].name}: None", "over"]
    told_words = f"{notes.runs[0].parameters} {notes.scores}"
    assert not any(site in told_words for site in simulation.agreement.sites)


def test_a_coordinator_hears_that_a_trackers_package_is_missing_before_anything_begins(
    fallow: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    (tmp_path / "coordinator.json").touch()
    refused = fallow("coordinate", "start", str(tmp_path), "--track", "mlflow")
    assert "pip install 'fallow-trackers[mlflow]'" in refused.says()
