"""Runs that die: a forked child works on a cell and kills itself at one point of its work.

A point lies right before and right after every moment at which something becomes durable: a commit
of the journal, and the renaming of a finished file.  A fork is a new process for all that counts
here (nothing but the folder survives it) and starts a thousand times faster.  What the operating
system holds survives a killed process, so children skip the wait for the disk.
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
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec
from fallow.sites.in_process import InProcess
from fallow.storage.database import Database
from fallow.study.cell import Setup, StudyRun
from fallow.study.study import run_cell
from fallow.transport.bytes import Bytes

KILLED = -signal.SIGKILL
WELL = 0

TINY = Recipe(
    name="tiny",
    data="blobs.npz",  # `tiny` writes it
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


def tiny(folder: Path) -> Recipe:
    """The tiny recipe with its data: 90 rows of 6 features in 3 overlapping classes."""
    draw = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = draw.normal(size=(90, 6)) + 1.2 * np.eye(3, 6)[y]
    np.savez(folder / "blobs.npz", x=x[:60], y=y[:60], x_test=x[60:], y_test=y[60:])
    return replace(TINY, data=str(folder / "blobs.npz"))


def start_child(act: Callable[[], object]) -> int:
    """A child that does ``act``.

    Garbage of earlier tests is not collected in the child: objects with threads of their own, such as
    sessions of ONNX Runtime, wait for these threads, which a child does not have.
    """
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12: other threads; none here
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
    """How the child ended: 0, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@dataclass
class Points:
    """Counts the points of a run in a file, and dies at the one called ``deadly``."""

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
        """From here on this process counts, notes its exchanges and can die."""
        patch = pytest.MonkeyPatch()  # never undone: the process dies with it
        patch.setattr(Database, "commit", self.around(Database.commit))
        patch.setattr(os, "replace", self.around(os.replace))
        patch.setattr(os, "fsync", lambda file: None)
        for runtime in (InProcess, Bytes):
            patch.setattr(runtime, "exchange", self.noted(runtime.exchange))

    def noted(self, exchange: Callable[..., Any]) -> Callable[..., Any]:
        def exchanged(carrier: Any, requests: Any, routes: Any = None) -> Any:
            with open(self.folder / "exchanges", "a") as file:
                file.write(f"{next(iter(requests.values())).key}\n")
            return exchange(carrier, requests, routes)

        return exchanged


def worker(setup: Setup, cell: StudyRun, deadly: int | None = None) -> int:
    """A child that runs the cell and dies at a point."""
    setup.out.mkdir(parents=True, exist_ok=True)

    def act() -> None:
        points = Points(setup.out, deadly)
        points.install()
        run_cell(setup, cell)
        (setup.out / "points").write_text(str(points.seen))

    return start_child(act)


def work(setup: Setup, cell: StudyRun, deadly: int | None = None) -> int:
    """Run the cell in a child that dies at a point; how it ended."""
    return wait_for_child(worker(setup, cell, deadly))


def exchanges(out: Path) -> list[str]:
    """The keys of all exchanges that sites were really asked, over all lives of a run."""
    return (out / "exchanges").read_text().split()


def points(out: Path) -> int:
    return int((out / "points").read_text())


@dataclass(frozen=True)
class Left:
    """What a finished run left: the ledgers, the weights, the records."""

    ledger: list[tuple[Any, ...]]
    weights: dict[str, bytes]
    records: list[dict[str, Any]]
    open_exchanges: int
    drafts: list[Path]


def load_outcome(setup: Setup, cell: StudyRun) -> Left:
    folder = cell.folder(setup.out)
    lines = (folder / "records.jsonl").read_text().splitlines()
    db = sqlite3.connect(folder / "journal.sqlite")
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
