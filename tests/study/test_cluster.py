"""A study on a cluster has the records of one process, regardless of worker assignment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.data import load
from fallow.study.cluster import SEEN, read_token, run_on_cluster
from fallow.study.preparation import open_study
from fallow.study.study import list_runs, run_study
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import load_outcome, tiny

distributed = pytest.importorskip("distributed")
import dask  # noqa: E402
from distributed.utils import get_mp_context  # noqa: E402

STRATEGIES = ("random", "ahfal")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a scheduler with two workers as processes of this machine.

    They are forked from a process that has imported PyTorch once.
    """
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    context = get_mp_context()
    context.set_forkserver_preload(["distributed", "fallow.study.study"])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as started:
        yield started


def open_new_study(setup: Setup, seeds: tuple[int, ...] = (0, 1)) -> list[StudyRun]:
    cells = list_runs(setup.config, STRATEGIES, seeds)
    open_study(setup, cells, "fallow compare tiny", resume=False)
    return cells


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tiny(tmp_path), tmp_path / "study")


def test_two_workers_give_bit_for_bit_what_one_process_gives(
    setup: Setup, tmp_path: Path, cluster: Any
) -> None:
    spread = replace(setup, out=tmp_path / "spread")
    cells = open_new_study(setup)
    assert run_study(setup, cells) == []
    events: list[Event] = []
    address = cluster.scheduler_address
    assert run_on_cluster(spread, open_new_study(spread), address, events.append) == []
    assert [load_outcome(spread, cell) for cell in cells] == [
        load_outcome(setup, cell) for cell in cells
    ]
    done = [event for event in events if event["event"] == "done"]
    assert {(event["strategy"], event["seed"]) for event in done} == {
        (cell.strategy, cell.seed) for cell in cells
    }
    assert not any(event["cached"] for event in done)


@pytest.mark.long
def test_a_study_goes_on_where_another_call_left_it(
    setup: Setup, tmp_path: Path, cluster: Any
) -> None:
    cells = open_new_study(setup)
    assert run_study(setup, cells[:1]) == []
    before = load_outcome(setup, cells[0])
    events: list[Event] = []
    assert run_on_cluster(setup, cells, cluster.scheduler_address, events.append) == []
    assert load_outcome(setup, cells[0]) == before
    cached = [(event["strategy"], event["seed"]) for event in events if event.get("cached")]
    assert cached == [(cells[0].strategy, cells[0].seed)]


def test_a_cell_that_fails_is_reported_with_its_reason_and_the_others_finish(
    setup: Setup, cluster: Any
) -> None:
    cells = [StudyRun("random", 0), StudyRun("tests.experiment.crash:Nothing", 0)]
    setup.out.mkdir()
    (failure,) = run_on_cluster(setup, cells, cluster.scheduler_address)
    assert failure.cell == cells[1]
    assert "Traceback" in failure.trace
    assert (cells[0].folder(setup.out) / "model.safetensors").exists()


def test_a_cluster_whose_workers_take_several_tasks_at_a_time_is_refused(
    setup: Setup,
) -> None:
    setup.out.mkdir()
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address=":0"
        ) as other,
        pytest.raises(ValueError, match=r"runs 2 tasks at a time.*--nthreads 1"),
    ):
        run_on_cluster(setup, [StudyRun("random", 0)], other.scheduler_address)


def test_an_address_where_nobody_answers_is_refused_in_a_sentence(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow.study.cluster.PATIENCE", 1)
    began = time.monotonic()
    with pytest.raises(ValueError, match="no Dask scheduler replies at tcp"):
        run_on_cluster(setup, [StudyRun("random", 0)], "tcp://127.0.0.1:9")
    assert time.monotonic() - began < 30


def test_a_study_of_rows_at_hand_is_refused(setup: Setup) -> None:
    changed = replace(setup, dataset=load("digits"))
    with pytest.raises(ValueError, match="cannot run on a cluster; name its data"):
        run_on_cluster(changed, [StudyRun("random", 0)], "tcp://127.0.0.1:9")


def test_a_worker_shows_that_it_sees_a_folder_by_what_stands_in_it(tmp_path: Path) -> None:
    assert read_token(str(tmp_path / "elsewhere")) is None
    (tmp_path / SEEN).write_text("abc", encoding="utf-8")
    assert read_token(str(tmp_path)) == "abc"
