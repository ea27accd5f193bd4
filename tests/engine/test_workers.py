"""Sites in several processes train as in one, and the processes end with whoever wants them."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fallow.core.banks import Layout
from fallow.core.local import Batch, Learner, LocalTraining, TrainState
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Fitted, Job, Loop, row_loss
from fallow.engine.workers import Worker, Workers, deal_jobs
from fallow.study.cell import Setup, StudyRun
from fallow.study.study import run_study
from fallow.training import KCFU, FedAvg, FedProx
from tests.engine.jobs import jobs, mlp, norm, over_rounds, with_pools
from tests.engine.methods import Beside, Pupil, Stepping
from tests.experiment.crash import load_outcome, tiny

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = TrainingConfig(
    (TrainingStage(2),), 4, Optimizer("sgd", 0.05, momentum=0.9, persist=True)
)
NORM_ROWS = (12, 6, 4, 0, 8)


def norm32() -> nn.Module:
    return norm().float()


Make = Callable[[], nn.Module]


def built(kind: type, make: Make, **more: Any) -> Any:
    model = make()
    return kind(
        model, Layout.of(model), row_loss("classification"), channels_last=True, **more
    )


@pytest.fixture(scope="module")
def hired() -> Iterator[dict[Make, Workers]]:
    """Two processes for each model; they take seconds to start, so all tests share them."""
    made = {make: built(Workers, make, processes=2) for make in (mlp, norm32)}
    yield made
    for each in made.values():
        each.close()


def given(make: Make, training_config: TrainingConfig = CONFIG) -> list[Job]:
    made = jobs(norm if make is norm32 else make, NORM_ROWS, weighted=True)
    made = with_pools(made) if training_config.mix else made
    return [in_float32(job) for job in made] if make is norm32 else made


def in_float32(job: Job) -> Job:
    start: State = {name: part.float() for name, part in job.start.items()}
    return replace(job, x=job.x.float(), weight=job.weight.float(), start=start)


def same_bits(ours: list[Fitted], theirs: list[Fitted]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.steps == b.steps and a.own.keys() == b.own.keys()
        assert all(torch.equal(a.sent[name], b.sent[name]) for name in ("w", "stats"))
        for name, at in a.own.items():
            assert all(torch.equal(p, q) for p, q in zip(at, b.own[name], strict=True))


@pytest.mark.parametrize(
    ("make", "method", "training_config"),
    [
        (norm32, FedAvg(), CONFIG),
        (norm32, FedAvg(), replace(CONFIG, augment=("flip", "crop2"))),
        (mlp, FedProx(mu=0.5), replace(CONFIG, stop_at=0.5)),
        (mlp, Beside(), CONFIG),
        (mlp, KCFU(), replace(CONFIG, mix=2.0)),
        (mlp, Pupil(), replace(CONFIG, mix=2.0)),
    ],
)
def test_it_is_the_loop_bit_for_bit(
    hired: dict[Make, Workers],
    make: Make,
    method: LocalTraining,
    training_config: TrainingConfig,
) -> None:
    sites = given(make, training_config)
    ours = over_rounds(hired[make], method, training_config, sites, 3)
    for a, b in zip(
        ours, over_rounds(built(Loop, make), method, training_config, sites, 3), strict=True
    ):
        same_bits(a, b)


def test_rows_are_sent_when_they_are_new(
    hired: dict[Make, Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, list[str]]] = []
    ask = Worker.new_rows

    def asked(worker: Worker, job: Job) -> Any:
        new = ask(worker, job)
        sent.append((job.site, sorted(new)))
        return new

    monkeypatch.setattr(Worker, "new_rows", asked)
    sites = [replace(job, site=f"new {job.site}") for job in given(mlp)]
    hired[mlp].fit(FedAvg(), CONFIG, 0, sites)
    assert all(new == ["counts", "u", "weight", "x", "y"] for _, new in sent)
    sent.clear()
    again = [replace(job, x=job.x.clone()) for job in sites]
    again[1] = replace(again[1], x=again[1].x + 1.0)
    ours = hired[mlp].fit(FedAvg(), CONFIG, 0, again)
    assert {site: new for site, new in sent if new} == {"new site-1": ["x"]}
    same_bits(ours, built(Loop, mlp).fit(FedAvg(), CONFIG, 0, again))


def test_no_job_and_fewer_jobs_than_processes(hired: dict[Make, Workers]) -> None:
    assert hired[mlp].fit(FedAvg(), CONFIG, 0, []) == []
    one = given(mlp)[:1]
    ours = hired[mlp].fit(FedAvg(), CONFIG, 0, one)
    same_bits(ours, built(Loop, mlp).fit(FedAvg(), CONFIG, 0, one))


def test_results_and_jobs_share_no_memory(hired: dict[Make, Workers]) -> None:
    sites = given(mlp)
    before = [job.start["w"].clone() for job in sites]
    for done in hired[mlp].fit(FedAvg(), CONFIG, 0, sites):
        done.sent["w"].add_(1.0)
    assert all(torch.equal(job.start["w"], w) for job, w in zip(sites, before, strict=True))


def test_shares_have_as_many_steps_as_each_other() -> None:
    steps = [(7 * site) % 23 + 1 for site in range(100)]
    shares = deal_jobs(steps, 2)
    assert sorted(place for share in shares for place in share) == list(range(100))
    one, two = (sum(steps[place] for place in share) for share in shares)
    assert abs(one - two) <= 1
    assert deal_jobs([], 2) == [[], []]


def fails(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
    raise ValueError(f"a batch of {len(b.x)} rows is not what this step is for")


class Odd(Exception):
    """An error of a method's own module."""


def fails_oddly(w: TrainState, w_t: TrainState, b: Batch, learn: Learner) -> TrainState:
    raise Odd("no step today")


def test_what_a_method_raises_is_raised_and_the_next_jobs_are_trained(
    hired: dict[Make, Workers],
) -> None:
    with pytest.raises(
        ValueError, match="a batch of 4 rows is not what this step is for"
    ) as told:
        hired[mlp].fit(Stepping(fails), CONFIG, 0, given(mlp))
    assert "in fails" in "".join(told.value.__notes__)
    with pytest.raises(RuntimeError, match="Odd: no step today"):
        hired[mlp].fit(Stepping(fails_oddly), CONFIG, 0, given(mlp))
    ours = hired[mlp].fit(FedAvg(), CONFIG, 0, given(mlp))
    same_bits(ours, built(Loop, mlp).fit(FedAvg(), CONFIG, 0, given(mlp)))


def test_a_process_that_was_killed_is_replaced_and_all_end_with_the_executor() -> None:
    before = set(mp.active_children())
    executor = built(Workers, mlp, processes=1)
    executor.fit(FedAvg(), CONFIG, 0, given(mlp))
    (first,) = set(mp.active_children()) - before
    first.kill()
    with pytest.raises(RuntimeError, match="a process that trains sites has ended"):
        executor.fit(FedAvg(), CONFIG, 0, given(mlp))
    executor.fit(FedAvg(), CONFIG, 0, given(mlp))
    (second,) = set(mp.active_children()) - before
    del executor
    gc.collect()
    assert not second.is_alive()


def test_runs_of_a_study_that_train_so_follow_one_another_and_leave_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # a process takes long to start
    before, cells = (
        set(mp.active_children()),
        [StudyRun("random", 0), StudyRun("random", 1)],
    )
    recipe = replace(tiny(tmp_path), cycles=0, executor="loop")
    plain = Setup(recipe, tmp_path / "plain")
    shared = Setup(replace(recipe, executor="workers"), tmp_path / "shared")
    heard: list[int] = []
    assert run_study(plain, cells) == []
    assert (
        run_study(shared, cells, jobs=2, say=lambda event: heard.append(event["seed"]))
        == []
    )
    assert heard == sorted(heard)
    for cell in cells:
        ours, theirs = load_outcome(shared, cell), load_outcome(plain, cell)
        assert ours.ledger == theirs.ledger
        assert ours.weights["cycle-0.safetensors"] == theirs.weights["cycle-0.safetensors"]
        assert {record["executor"] for record in ours.records} == {"workers"}
    gc.collect()
    assert set(mp.active_children()) <= before


PARENT = """
import os, signal
from tests.engine.test_workers import CONFIG, FedAvg, Workers, built, given, mlp

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what nohup starts ignores it
    executor = built(Workers, mlp, processes=1)
    executor.fit(FedAvg(), CONFIG, 0, given(mlp))
    try:
        os.killpg(0, signal.SIGINT)  # Ctrl-C reaches all processes of a terminal
    except KeyboardInterrupt:
        executor.fit(FedAvg(), CONFIG, 0, given(mlp))
        print(executor._staff[0].process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_is_deaf_to_ctrl_c_and_does_not_outlive_its_parent(
    tmp_path: Path,
) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    ended = subprocess.run(
        [sys.executable, tmp_path / "parent.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        start_new_session=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL and ended.stderr == ""
    for _ in range(300):
        if not is_running(int(ended.stdout)):
            return
        time.sleep(0.1)
    raise AssertionError(f"process {ended.stdout} still runs")


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
