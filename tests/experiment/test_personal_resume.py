"""DPFL in repeated or killed runs: all sites keep bitwise equal models."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fallow.training.personal
from fallow.core.build import names
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, build_environment
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.files import raw
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from tests.each import mark_long
from tests.experiment.crash import KILLED, WELL, exchanges, load_outcome, points, tiny, work

CELL = StudyRun("random", 0)
STEP = 11 if os.environ.get("FALLOW_SOAK") else 31
DPFL: dict[str, Any] = {
    "training": Spec("dpfl", {"budget": 2, "tau_init": 1}),
    "strategy": Spec("random"),
    "validation": 0.4,
    "test": "own",
    "cycles": 1,
    "sites": 4,
    "initial": 0.5,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ExperimentConfig:
    return replace(tiny(tmp_path_factory.mktemp("tiny")), **DPFL)


def hash_retained_models(simulation: SimulatedEnvironment) -> str:
    """Hash the models kept by all sites."""
    h = hashlib.sha256()
    for name in sorted(simulation.members):
        best = simulation.members[name].memory["best"]
        h.update(name.encode() + raw(best["w"]) + raw(best["stats"]))
    return h.hexdigest()


ALGORITHMS = ("FedAvg", *names(fallow.training.personal))


def run_to_the_end(config: ExperimentConfig, seed: int = 0, **more: Any) -> tuple[str, Any]:
    """Return the hash of the kept models at the end, and the last record."""
    event_log = EventLog()
    simulation = build_environment(config, seed, event_log, **more)
    rows = ExperimentRun(simulation, event_log).go()
    return hash_retained_models(simulation), {
        k: v for k, v in rows[-1].items() if k != "seconds"
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "training",
    mark_long(ALGORITHMS, [name for name in ALGORITHMS if name not in ("DPFL", "Ditto")]),
)
def test_two_runs_retain_the_same_models(config: ExperimentConfig, training: str) -> None:
    if training != "DPFL":
        config = replace(config, training=Spec(training))
    once = run_to_the_end(config)
    assert run_to_the_end(config) == once
    assert run_to_the_end(config, seed=1)[0] != once[0]


@pytest.mark.long
def test_a_byte_boundary_between_sites_changes_nothing(config: ExperimentConfig) -> None:
    (there, row), (here, plain) = (
        run_to_the_end(config, runtime="bytes"),
        run_to_the_end(config),
    )
    assert there == here
    assert row["per_site"] == plain["per_site"] and row["graph"] == plain["graph"]


@pytest.mark.long
def test_dpfl_killed_at_points_all_over_a_run_ends_as_if_nothing_had_happened(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    setup = Setup(config, tmp_path / "whole")
    run_one(Setup(config, tmp_path / "warm"), CELL)
    assert work(setup, CELL) == WELL
    whole = load_outcome(setup, CELL)
    asked = exchanges(setup.out)
    assert len(set(asked)) == len(asked)
    for deadly in range(1, points(setup.out), STEP):
        again = replace(setup, out=tmp_path / "again")
        assert work(again, CELL, deadly) == KILLED
        assert work(again, CELL) == WELL
        assert load_outcome(again, CELL) == whole, f"killed at point {deadly}"
        repeated = Counter(exchanges(again.out)) - Counter(asked)
        assert set(exchanges(again.out)) == set(asked) and repeated.total() <= 1
        shutil.rmtree(again.out)
