"""Test that a coordinator killed at any point resumes and gives the same results."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.deployment.model_card import CARD
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.deployment.simulations import NAMES, Federation, federation, rows
from tests.each import mark_long
from tests.experiment.crash import KILLED, WELL, Points, start_child, wait_for_child

IS_LONG = bool(os.environ.get("FALLOW_SOAK"))
KILLS = {"tiny": 4, "personal": 2, "stopped": 1, "trees": 1}
"""Number of points at which a study is killed; `make soak` uses strides instead."""

STRIDES = {"tiny": 1, "personal": 2, "stopped": 10, "trees": 10}
EXPERIMENT = ExperimentConfig(
    "tiny",
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    strategy=Spec("ahfal"),
    initial=4,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
    dtype="float64",
)
PERSONAL = ExperimentConfig(
    "personal",
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    training=Spec("dpfl", {"budget": 1}),
    strategy=Spec("entropy"),
    initial=4,
    budget=3,
    rounds=2,
    cycles=1,
    validation=0.4,
    restart="continue",
    dtype="float64",
)


STOPPED = ExperimentConfig(
    "stopped",
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    strategy=Spec("entropy"),
    initial=2,
    budget=2,
    rounds=1,
    cycles=6,
    score_rounds=1,
    evaluation_fraction=0.5,
    stop="when another 1 labels bring less than 90 points with 50 % confidence",
    dtype="float64",
)


TREES = ExperimentConfig(
    "trees",
    model=Spec("trees"),
    training=Spec("boosted-trees", {"stages": 2, "depth": 2, "shown": "parts"}),
    strategy=Spec("margin"),
    initial=4,
    budget=3,
    rounds=1,
    cycles=1,
    score_rounds=1,
    dtype="float64",
)


@dataclass(frozen=True)
class Left:
    """Collect the results of a study: labels, weights and records."""

    labels: dict[str, list[Any]]
    weights: dict[str, bytes]
    records: list[dict[str, Any]]
    steps: list[str]


def read_left(simulation: Federation) -> Left:
    run_folder = simulation.program().run_folder
    files = [
        *simulation.coordinator_folder.rglob("*.safetensors"),
        *simulation.folder.glob("*/model.safetensors"),
    ]
    weights = {str(p.relative_to(simulation.folder)): p.read_bytes() for p in sorted(files)}
    left = [
        json.loads(row) for row in (run_folder / "records.jsonl").read_text().splitlines()
    ]
    kept = [{k: v for k, v in row.items() if k != "seconds"} for row in left]
    assert (simulation.coordinator_folder / CARD).exists()
    assert not list(simulation.coordinator_folder.rglob("*.part"))
    with sqlite3.connect(run_folder / "event_log.sqlite") as db:
        steps = [step for (step,) in db.execute("SELECT step FROM finished ORDER BY step")]
        assert db.execute("SELECT count(*) FROM exchange").fetchone() == (0,)
    db.close()
    reopened = Federation(
        simulation.folder,
        simulation.agreement,
        simulation.data,
        simulation.secret,
        simulation.sites,
    )
    labels = reopened.labels()
    reopened.close()
    return Left(labels, weights, kept, steps)


def work(simulation: Federation, deadly: int | None = None) -> int:
    """Run the study in a child that dies at a point; return its exit status."""

    def act() -> None:
        points = Points(simulation.folder, deadly)
        points.install()
        live = Federation(
            simulation.folder,
            simulation.agreement,
            simulation.data,
            simulation.secret,
            simulation.sites,
        )
        live.program().go()
        (simulation.folder / "points").write_text(str(points.seen))

    return wait_for_child(start_child(act))


def choose_points(config: ExperimentConfig, points: int) -> Iterable[int]:
    """Return the points to kill at: the centers of equal parts of the run."""
    if IS_LONG:
        return range(0, points, STRIDES[config.name])
    kills = KILLS[config.name]
    return [points * (2 * part + 1) // (2 * kills) for part in range(kills)]


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    mark_long([EXPERIMENT, PERSONAL, STOPPED, TREES], [PERSONAL, STOPPED, TREES]),
    ids=lambda config: config.name,
)
def test_a_coordinator_killed_anywhere_ends_as_if_nothing_had_happened(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    fresh = federation(tmp_path / "fresh", config, rows(NAMES[:3]))
    fresh.close()
    untouched = fresh.again(tmp_path / "untouched")
    untouched.close()
    assert work(untouched) == WELL
    whole = read_left(untouched)
    points = int((untouched.folder / "points").read_text())
    assert points > 100
    for deadly in choose_points(config, points):
        simulation = fresh.again(tmp_path / f"killed-{deadly}")
        simulation.close()
        assert work(simulation, deadly) == KILLED
        assert work(simulation) == WELL
        assert read_left(simulation) == whole, f"killed at point {deadly}"
    if config.stop is not None:
        assert "stopped" in whole.records[-1]
        assert whole.records[-1]["cycle"] < config.cycles
