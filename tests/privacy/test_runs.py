"""Full runs with noise and masks: equal selections without them and after a kill."""

from __future__ import annotations

import os
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.experiment.event_log import EventLog
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, build_environment
from fallow.privacy.settings import Privacy
from fallow.report.costs import MASKED, MASKS, NOISE, disclosure
from fallow.report.render import render_blocks
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites import LocalSite
from fallow.study.reading import read_study
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import KILLED, WELL, points, tiny, work
from tests.experiment.crash import load_outcome as ended
from tests.report.conftest import write_study

BOTH = Privacy(epsilon=1.0, secure_sum=True)
CELL = StudyRun("ahfal", 0)
STEP = 6 if os.environ.get("FALLOW_SOAK") else 13


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ExperimentConfig:
    """Run the tiny configuration once in this process, so that its children need no imports."""
    folder = tmp_path_factory.mktemp("tiny")
    made = replace(tiny(folder), rounds=2)
    run_one(Setup(replace(made, privacy=BOTH), folder / "warm"), CELL)
    return made


def run_all(config: ExperimentConfig, **change: Any) -> tuple[ExperimentRun, list[Record]]:
    """Return a run in memory and its records."""
    event_log = EventLog()
    runtime = change.pop("runtime", "inprocess")
    run = ExperimentRun(
        build_environment(replace(config, **change), 0, event_log, runtime=runtime),
        event_log,
    )
    return run, run.go()


def members(run: ExperimentRun) -> dict[str, LocalSite]:
    """Return the simulated sites of a run."""
    assert isinstance(run.simulation, SimulatedEnvironment)
    return run.simulation.members


def list_bought(run: ExperimentRun) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for site in run.simulation.channel.sites:
        rows[site] = [label.row for label in run.event_log.load_labels(site)]
    return rows


@pytest.mark.parametrize("training", ["fedavg", "fedprox"])
def test_masked_training_gives_the_model_of_plain_training(
    config: ExperimentConfig, training: str
) -> None:
    (plain, records), (masked, others) = (
        run_all(config, privacy=p, training=Spec(training), dtype="float64")
        for p in (Privacy(), Privacy(secure_sum=True))
    )
    assert list_bought(masked) == list_bought(plain)
    assert [r["accuracy"] for r in others] == [r["accuracy"] for r in records]
    ends = [run.event_log.load_step("2/train") for run in (plain, masked)]
    a, b = (torch.as_tensor(end["state"]["w"]) for end in ends if end)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    assert not torch.equal(a, b)  # rounded to 2^-40: fixed point was used


@pytest.mark.long
@pytest.mark.parametrize("privacy", [Privacy(epsilon=0.1), BOTH])
def test_it_does_not_matter_who_carries_the_messages(
    config: ExperimentConfig, privacy: Privacy
) -> None:
    (one, records), (other, others) = (
        run_all(config, privacy=privacy, runtime=runtime)
        for runtime in ("inprocess", "bytes")
    )
    assert list_bought(one) == list_bought(other)
    assert [r["accuracy"] for r in others] == [r["accuracy"] for r in records]


def test_a_record_says_what_was_spent_and_what_was_masked(config: ExperimentConfig) -> None:
    run, records = run_all(config, privacy=BOTH)
    rows = {(row["kind"], row["function"]): row for row in records[-1]["revealed"]}
    assert rows["sum", "share"]["epsilon"] == config.cycles
    assert rows["sum", "share"]["masked"] and rows["sum", "upload"]["masked"]
    assert "epsilon" not in rows["sum", "upload"]
    assert rows["each", "keys"]["exchanges"] == config.cycles + 3 * config.rounds
    assert members(run)["site-0"].spent == {"0/query/0": 1.0, "1/query/0": 1.0}


def test_a_total_that_is_too_small_for_the_run_stops_it_in_words(
    config: ExperimentConfig,
) -> None:
    with pytest.raises(ValueError, match=r"spent epsilon 1 of 1 in 1 releases"):
        run_all(config, privacy=Privacy(epsilon=1.0, total=1.0))


def read_spent(setup: Setup) -> list[Any]:
    db = sqlite3.connect(CELL.folder(setup.out) / "event_log.sqlite")
    try:
        rows = db.execute("SELECT * FROM privacy_spending ORDER BY site, key").fetchall()
        secrets = db.execute("SELECT * FROM secret").fetchall()
    finally:
        db.close()
    assert secrets == []  # a finished run stores no secrets
    return rows


@pytest.mark.long
def test_a_run_killed_at_a_point_spends_and_picks_as_if_nothing_had_happened(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    setup = Setup(replace(config, privacy=BOTH), tmp_path / "whole")
    assert work(setup, CELL) == WELL
    whole = ended(setup, CELL)
    book = read_spent(setup)
    assert len(book) == 3 * config.cycles
    for deadly in range(3, points(setup.out), STEP):
        again = replace(setup, out=tmp_path / "again")
        assert work(again, CELL, deadly) == KILLED
        assert work(again, CELL) == WELL
        assert ended(again, CELL) == whole, f"killed at point {deadly}"
        assert read_spent(again) == book, f"killed at point {deadly}"
        shutil.rmtree(again.out)


# -- the report ------------------------------------------------------------------------


def page(root: Path) -> str:
    return render_blocks(disclosure(read_study(root), "a"))


def test_the_report_says_what_noise_and_masks_cover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.report import conftest

    exchange = conftest._exchange

    def run_protected(
        kind: str, function: str, what: str, size: int, exchanges: int
    ) -> dict[str, Any]:
        row = exchange(kind, function, what, size, exchanges)
        return row | ({"epsilon": 1.0 * exchanges, "masked": True} if kind == "sum" else {})

    plain = page(write_study(tmp_path / "plain", seeds=2))
    assert NOISE not in plain and MASKS not in plain and "ε" not in plain
    monkeypatch.setattr(conftest, "_exchange", run_protected)
    text = page(write_study(tmp_path / "noisy", seeds=2))
    assert "ε per site" in text and MASKED in text
    for words in (NOISE, MASKS):
        assert words.replace("'", "&#39;") in text or words in text
