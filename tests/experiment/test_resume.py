"""A run killed at any point ends with the same selections, weights and records."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.experiment.simulation import Runtime
from fallow.settings.budgets import allocate_budget
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.errors import StorageError
from fallow.storage.files import only_one
from fallow.study.study import run_one, run_study
from fallow.study.study_run import Setup, StudyRun
from tests.each import mark_long
from tests.experiment.crash import (
    KILLED,
    WELL,
    Left,
    exchanges,
    load_outcome,
    points,
    start_child,
    tiny,
    wait_for_child,
    work,
    worker,
)

CELL = StudyRun("ahfal", 0)
IS_LONG = bool(os.environ.get("FALLOW_SOAK"))
PERSISTENT = Optimizer(lr=0.05, momentum=0.9, persist=True)
SIMULATIONS: dict[str, dict[str, Any]] = {
    "as the demo": {},
    "half of the sites": {
        "training_config": TrainingConfig((TrainingStage(1),), 8, PERSISTENT),
        "participation": 0.5,
        "local_source": "scratch",
        "local_training_config": TrainingConfig((TrainingStage(3),), 8, stop_at=0.99),
        "restart": "continue",
    },
    "bytes": {"cycles": 1},
    "an evaluation set": {
        "evaluation_fraction": 0.3,
        "cycles": 1,
        "strategy": Spec("entropy"),
        "initial": 0.2,
    },
    "labels held back": {
        "training": Spec("tests.experiment.alone:Alone"),
        "validation": 0.4,
        "test": "own",
        "flip": 1,
        "cycles": 1,
    },
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ExperimentConfig:
    """Run the tiny configuration once in this process, so that its children need no imports."""
    folder = tmp_path_factory.mktemp("tiny")
    made = tiny(folder)
    run_one(Setup(made, folder / "warm"), CELL)
    return made


@pytest.fixture(
    scope="module",
    params=mark_long(SIMULATIONS, ["as the demo", "half of the sites", "labels held back"]),
)
def undisturbed(
    request: pytest.FixtureRequest,
    config: ExperimentConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Setup, Left]:
    """Return a setup and the results of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "study"
    runtime: Runtime = "inprocess"
    if request.param == "bytes":
        runtime = "bytes"
    setup = Setup(replace(config, **SIMULATIONS[request.param]), out, runtime=runtime)
    assert work(setup, CELL) == WELL
    return setup, load_outcome(setup, CELL)


@pytest.mark.long
def test_a_run_killed_at_any_point_ends_as_if_nothing_had_happened(
    undisturbed: tuple[Setup, Left], config: ExperimentConfig, tmp_path: Path
) -> None:
    """Kill a run before and after its durable writes.

    Points of even number are before a durable write. The point after the previous one has
    the same state on disk, so it is tested in the first setup only, at every seventh point
    (`make soak`: every third). The other setups use every seventh write (`make soak`: every
    third).
    """
    setup, whole = undisturbed
    step = 6 if IS_LONG else 14
    if setup.config == config:
        step = 3 if IS_LONG else 7
    if (
        setup.config.evaluation_fraction
    ):  # test_program_resume also tests every point of a coordinator
        step = 10 if IS_LONG else 20
    asked = exchanges(setup.out)
    assert len(set(asked)) == len(asked)
    assert points(setup.out) >= 40
    for deadly in range(0, points(setup.out), step):
        again = replace(setup, out=tmp_path / "again")
        assert work(again, CELL, deadly) == KILLED
        assert work(again, CELL) == WELL
        assert load_outcome(again, CELL) == whole, f"killed at point {deadly}"
        repeated = Counter(exchanges(again.out)) - Counter(asked)
        assert set(exchanges(again.out)) == set(asked)
        assert repeated.total() <= 1  # only the open exchange
        shutil.rmtree(again.out)


@pytest.mark.long
def test_a_run_killed_twice_ends_as_if_nothing_had_happened(
    undisturbed: tuple[Setup, Left], config: ExperimentConfig, tmp_path: Path
) -> None:
    setup, whole = undisturbed
    step = 27 if IS_LONG else 53
    if setup.config == config:
        step = 9 if IS_LONG else 27
    for first in range(1, points(setup.out), step):
        for second in (0, 3):
            again = replace(setup, out=tmp_path / "again")
            assert work(again, CELL, first) == KILLED
            then = work(again, CELL, second)
            assert then == KILLED or first + second >= points(setup.out) - 4
            assert work(again, CELL) == WELL
            assert load_outcome(again, CELL) == whole, (
                f"killed at points {first} and {second}"
            )
            shutil.rmtree(again.out)


def test_no_label_is_bought_twice_and_no_budget_is_exceeded(
    undisturbed: tuple[Setup, Left],
) -> None:
    setup, whole = undisturbed
    config = setup.config
    rows = Counter((site, row) for site, row, *_ in whole.ledger)
    assert max(rows.values()) == 1
    partition = json.loads((CELL.folder(setup.out) / "partition.json").read_text())
    sizes = dict(zip(partition["sites"], partition["sizes"], strict=True))
    first, later = (
        allocate_budget(share, config.budget_allocation, sizes)
        for share in (config.initial, config.budget_of(0))
    )
    bought = Counter(site for site, *_ in whole.ledger)
    assert all(bought[s] <= first[s] + config.cycles * later[s] for s in sizes)
    assert whole.open_exchanges == 0
    assert whole.drafts == []


def test_a_finished_run_is_left_as_it_is(undisturbed: tuple[Setup, Left]) -> None:
    setup, _ = undisturbed
    before = exchanges(setup.out)
    events: list[Event] = []
    run_one(setup, CELL, events.append)
    assert events == [{"event": "done", "cached": True}]
    assert exchanges(setup.out) == before


def test_records_that_were_lost_are_written_again_from_the_journal(
    undisturbed: tuple[Setup, Left], tmp_path: Path
) -> None:
    setup, whole = undisturbed
    copy = replace(setup, out=tmp_path / "copy")
    shutil.copytree(setup.out, copy.out)
    (CELL.folder(copy.out) / "records.jsonl").unlink()
    assert work(copy, CELL) == WELL
    assert load_outcome(copy, CELL) == whole
    assert exchanges(copy.out) == exchanges(setup.out)  # nothing was requested again


@pytest.mark.long
def test_a_kill_in_the_shared_first_phase_changes_no_strategy_of_the_seed(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    cells = [StudyRun("random", 0), StudyRun("ahfal", 0)]
    whole = Setup(config, tmp_path / "whole")
    assert wait_for_child(start_child(lambda: _all_well(whole, cells))) == WELL
    expected = [load_outcome(whole, cell) for cell in cells]
    for deadly in (4, 9, 12, 13, 14, 15):
        again = replace(whole, out=tmp_path / f"again-{deadly}")
        assert work(again, cells[0], deadly) == KILLED
        assert wait_for_child(start_child(partial(_all_well, again, cells[::-1]))) == WELL
        assert [load_outcome(again, cell) for cell in cells] == expected, (
            f"killed at point {deadly}"
        )


def _all_well(setup: Setup, cells: list[StudyRun]) -> None:
    assert run_study(setup, cells) == []


def test_two_processes_at_one_seed_do_the_first_phase_once(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    setup = Setup(config, tmp_path)
    children = [worker(setup, StudyRun(name, 0)) for name in ("random", "ahfal")]
    assert [wait_for_child(child) for child in children] == [WELL, WELL]
    first = [key for key in exchanges(tmp_path) if key.startswith("0/train")]
    assert len(first) == len(set(first)) == config.rounds


def test_a_second_process_on_the_same_run_is_refused(
    config: ExperimentConfig, tmp_path: Path
) -> None:
    setup = Setup(config, tmp_path)
    folder = CELL.folder(tmp_path)
    refused = pytest.raises(StorageError, match="another process uses")
    with only_one(folder / "run.lock"), refused:
        run_one(setup, CELL)
    assert not (folder / "event_log.sqlite").exists()


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    def hold_lock() -> None:
        with only_one(tmp_path / "lock"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert wait_for_child(start_child(hold_lock)) == KILLED
    with only_one(tmp_path / "lock", wait=False):
        pass
