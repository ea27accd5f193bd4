"""Runs that crash: a forked child works on a cell and kills itself at one point.

Points are right before and after each durable write: a commit of the event log, and the
renaming of a finished file. A fork is a new process for all that matters here, since only
the folder survives it, and starts a thousand times faster. The operating system keeps
written data when a process is killed, so children skip fsync.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.in_process import InProcessChannel
from fallow.storage.database import Database
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from fallow.transport.serialized import SerializingChannel

KILLED = -signal.SIGKILL
WELL = 0

TINY = ExperimentConfig(
    name="tiny",
    data="blobs.npz",  # written by `tiny`
    partition=Spec("dirichlet", {"alpha": 1.0}),
    sites=3,
    model=Spec("linear"),
    training_config=TrainingConfig(
        (TrainingStage(1),), 8, Optimizer(lr=0.05, momentum=0.9)
    ),
    strategy=Spec("ahfal"),
    initial=0.1,
    budget=0.1,
    rounds=3,
    cycles=2,
    score_rounds=2,
    bounds=(),
)


def tiny(folder: Path) -> ExperimentConfig:
    """Return the tiny configuration: 90 examples, 6 features, 3 overlapping classes."""
    draw = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = draw.normal(size=(90, 6)) + 1.2 * np.eye(3, 6)[y]
    np.savez(folder / "blobs.npz", x=x[:60], y=y[:60], x_test=x[60:], y_test=y[60:])
    return replace(TINY, data=str(folder / "blobs.npz"))


def start_child(act: Callable[[], object]) -> int:
    """Start a child that calls ``act``.

    The child does not collect garbage of earlier tests: objects with threads, such as
    sessions of ONNX Runtime, wait for these threads, which a child does not have.
    """
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 warns about other threads; there are none here
        child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    gc.unfreeze()
    return child


def wait_for_child(child: int) -> int:
    """Return the child's exit status: 0, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@dataclass
class Points:
    """Count the points of a run in a file, and crash at the point ``deadly``."""

    folder: Path
    deadly: int | None = None
    seen: int = 0

    def __call__(self) -> None:
        if self.seen == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*args: Any, **more: Any) -> Any:
            self()
            result = act(*args, **more)
            self()
            return result

        return acted

    def install(self) -> None:
        """Count points and exchanges of this process from now on and enable crashes."""
        patch = pytest.MonkeyPatch()  # never undone: the process ends with it
        patch.setattr(Database, "commit", self.around(Database.commit))
        patch.setattr(os, "replace", self.around(os.replace))
        patch.setattr(os, "fsync", lambda file: None)
        for runtime in (InProcessChannel, SerializingChannel):
            patch.setattr(runtime, "exchange", self.noted(runtime.exchange))

    def noted(self, exchange: Callable[..., Any]) -> Callable[..., Any]:
        def exchanged(channel: Any, requests: Any, routes: Any = None) -> Any:
            with open(self.folder / "exchanges", "a") as file:
                file.write(f"{next(iter(requests.values())).key}\n")
            return exchange(channel, requests, routes)

        return exchanged


def worker(setup: Setup, cell: StudyRun, deadly: int | None = None) -> int:
    """Run the cell in this child and crash at a point."""
    setup.out.mkdir(parents=True, exist_ok=True)

    def act() -> None:
        points = Points(setup.out, deadly)
        points.install()
        run_one(setup, cell)
        (setup.out / "points").write_text(str(points.seen))

    return start_child(act)


def work(setup: Setup, cell: StudyRun, deadly: int | None = None) -> int:
    """Run the cell in a child that crashes at a point; return its exit status."""
    return wait_for_child(worker(setup, cell, deadly))


def exchanges(out: Path) -> list[str]:
    """Return the keys of all exchanges sent to sites, over all restarts of a run."""
    return (out / "exchanges").read_text().split()


def points(out: Path) -> int:
    return int((out / "points").read_text())


@dataclass(frozen=True)
class Left:
    """Results of a finished run: ledgers, weights and records."""

    ledger: list[tuple[Any, ...]]
    weights: dict[str, bytes]
    records: list[dict[str, Any]]
    open_exchanges: int
    drafts: list[Path]


def load_outcome(setup: Setup, cell: StudyRun) -> Left:
    folder = cell.folder(setup.out)
    lines = (folder / "records.jsonl").read_text().splitlines()
    db = sqlite3.connect(folder / "event_log.sqlite")
    try:
        ledger = db.execute("SELECT * FROM label ORDER BY site, row").fetchall()
        (open_exchanges,) = db.execute("SELECT count(*) FROM exchange").fetchone()
    finally:
        db.close()
    return Left(
        ledger,
        {path.name: path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))},
        [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines],
        open_exchanges,
        sorted(setup.out.rglob("*.part")),
    )
