"""Studies: query strategies x seeds, run in parallel and resumable, in one folder."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import queue
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.queues import Queue
from pathlib import Path
from typing import final

import torch

from fallow.core.events import Event, EventHandler, ignore_event, name_run
from fallow.core.names import lend
from fallow.core.wording import count_noun, size
from fallow.data.dataset import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import Phases
from fallow.experiment.one_pass import each_budget, is_one_pass
from fallow.experiment.row_cache import DatasetCache
from fallow.experiment.rows import open_data
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of, partition_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.variants import bounds_of, variant
from fallow.storage.errors import sentence
from fallow.storage.features import FeatureStore
from fallow.storage.files import only_one, sweep, write_json
from fallow.study.study_run import Failure, Setup, StudyRun


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C in processes started in this context; the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change this
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with_parent() -> None:
    """End this process when its parent ends, even by a kill."""
    parent = mp.parent_process()
    if parent is None:
        return

    def end() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


ROOM = 4 * 2**30
"""GPU memory in bytes for each run: its examples, the models of its sites, and CUDA itself."""
FEATURES = "features"
"""Subfolder of a study for the features of encoders, if there are many."""


def list_runs(
    config: ExperimentConfig, strategies: Sequence[str], seeds: Sequence[int]
) -> list[StudyRun]:
    """Return all runs of a study, upper bounds included, grouped by seed."""
    wanted = dict.fromkeys((*strategies, *bounds_of(config)))
    return [
        StudyRun(strategy, seed) for seed in dict.fromkeys(seeds) for strategy in wanted
    ]


def run_study(
    setup: Setup,
    cells: Sequence[StudyRun],
    jobs: int = 1,
    notify: EventHandler = ignore_event,
) -> list[Failure]:
    """Run all unfinished runs of a study, and return those that failed.

    ``jobs`` processes with ``setup.threads`` threads each do not affect the results.  On a GPU, the
    number of parallel runs is limited by its memory.
    """
    if setup.config.device == "cuda" and jobs > 1 and cells:
        free, _ = torch.cuda.mem_get_info()
        fitting = count_fitting(jobs, free)
        if fitting < jobs:
            why = (
                f"the GPU has {size(free)} of free memory, and a run needs up to "
                f"{size(ROOM)}: {count_noun(fitting, 'run')} at once instead of {jobs}"
            )
            event: Event = {"event": "device", "reason": why}
            notify(name_run(event, cells[0].strategy, cells[0].seed))
            jobs = fitting
    tasks = assign_runs(cells, jobs)
    context = None
    if jobs > 1 and len(tasks) > 1:
        context = find_context(setup)
    if context is None:
        with limit_threads(setup.threads):
            return run_all(setup, list(chain.from_iterable(tasks)), notify)
    events: Queue[Event] = context.Queue()
    with ProcessPoolExecutor(
        max_workers=min(jobs, len(tasks)),
        mp_context=context,
        initializer=_begin_worker,
        initargs=(events, setup),
    ) as pool:
        with ignore_interrupts(), warnings.catch_warnings():
            # about forking with threads; see `find_context`
            warnings.filterwarnings(
                "ignore", "This process .* is multi-threaded", DeprecationWarning
            )
            futures = {pool.submit(_worker, task): task for task in tasks}
        try:
            return _collect(futures, events, notify)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in mp.active_children():
                process.terminate()
            raise


def count_fitting(jobs: int, free: int) -> int:
    """Return the number of runs that fit into ``free`` bytes of GPU memory, from 1 to ``jobs``.

    >>> [count_fitting(4, gigabytes * 2**30) for gigabytes in (1, 9, 80)]
    [1, 2, 4]
    """
    return max(1, min(jobs, free // ROOM))


def is_from_python(setup: Setup) -> bool:
    """Return whether the study contains objects of the calling program."""
    return bool(setup.classes) or setup.dataset is not None


def find_context(setup: Setup) -> BaseContext | None:
    """Return the multiprocessing context of a study, or None to stay in this process.

    With "fork", the `Setup` is inherited without serialization, and imports are not repeated, which
    would take longer than a short run.  A forked process cannot use the thread pool of its parent.
    It therefore has one thread (`_begin_worker`), and studies with more threads use "spawn".

    A spawned process imports classes by name.  This is not possible for classes in notebooks, nor in
    scripts without running them again.  Threads are not an alternative: a custom model may use torch's
    global random state, which threads share.  Fork is only reliable on Linux without a GPU.
    Elsewhere, studies with custom classes run sequentially in this process.
    """
    can_copy = sys.platform == "linux" and not torch.cuda.is_available()
    if can_copy and (is_from_python(setup) or setup.threads == 1):
        return mp.get_context("fork")
    if setup.classes:
        return None
    return mp.get_context("spawn")


def assign_runs(cells: Sequence[StudyRun], jobs: int) -> list[list[StudyRun]]:
    """Distribute runs over processes; runs of one seed share their initial training."""
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    if len(seeds) >= jobs:
        return [[cell for cell in cells if cell.seed == seed] for seed in seeds]
    return [[cell] for cell in cells]


def _collect(
    futures: dict[Future[list[Failure]], list[StudyRun]],
    events: Queue[Event],
    notify: EventHandler,
) -> list[Failure]:
    """Forward the events of all processes, and return their failures."""
    is_done = False
    while True:
        try:
            notify(events.get(timeout=0.2))
        except queue.Empty:
            if is_done:
                break
            is_done = all(future.done() for future in futures)
    failures = []
    for future, cells in futures.items():
        try:
            failures += future.result()
        except BrokenExecutor:
            why = (
                "a process of the study was killed, possibly by the system for lack of "
                "memory; run it with --resume"
            )
            failures += [Failure(cell, why) for cell in cells]
    return failures


_events: Queue[Event] | None = None  # of a worker process; set once when it starts
_setup: Setup | None = None  # its study; set once when it starts
_shared: Shared | None = None  # by its runs; set once when it starts


def _begin_worker(events: Queue[Event], setup: Setup) -> None:
    global _events, _setup, _shared
    gc.freeze()  # objects of the parent may wait for its threads when they are freed
    _events = events
    _setup = setup
    _shared = Shared(FeatureStore(setup.out / FEATURES))
    threads = setup.threads
    if is_from_python(setup):  # a copy of this process, see `find_context`
        threads = 1
    torch.set_num_threads(threads)
    end_with_parent()


def _worker(cells: list[StudyRun]) -> list[Failure]:
    if _setup is None or _events is None:
        raise RuntimeError("a worker received runs before its setup")
    return run_all(_setup, cells, _events.put, _shared)


@contextmanager
def limit_threads(n: int) -> Iterator[None]:
    """Limit torch to ``n`` threads within a context."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@final
@dataclass
class Shared:
    """Data shared by the runs of one process: encoded features, the dataset and the last partition."""

    features: FeatureStore
    cache: DatasetCache = field(default_factory=DatasetCache)
    of_seed: dict[int, Dataset] = field(default_factory=dict)


def run_all(
    setup: Setup,
    cells: Sequence[StudyRun],
    notify: EventHandler,
    shared: Shared | None = None,
) -> list[Failure]:
    """Run several runs sequentially in this process, and return those that failed."""
    shared = shared or Shared(FeatureStore(setup.out / FEATURES))
    failures = []
    for cell in cells:

        def tell(event: Event, cell: StudyRun = cell) -> None:
            notify(name_run(event, cell.strategy, cell.seed))

        try:
            with lend(setup.classes):
                run_one(setup, cell, tell, shared)
        except Exception as error:  # also errors in custom algorithms: other runs continue
            failures.append(Failure(cell, sentence(error), traceback.format_exc()))
            tell({"event": "failed", "reason": sentence(error)})
    return failures


def run_one(
    setup: Setup,
    cell: StudyRun,
    notify: EventHandler = ignore_event,
    shared: Shared | None = None,
) -> None:
    """Start or resume one run; a finished run is skipped.

    ``shared`` contains data of other runs.
    """
    folder = cell.folder(setup.out)
    with only_one(folder / "run.lock", wait=False):
        if all((folder / name).exists() for name in ("records.jsonl", "model.safetensors")):
            notify({"event": "done", "cached": True})
            return
        sweep(folder)
        shared = shared or Shared(FeatureStore(setup.out / FEATURES))
        _run_unfinished(setup, cell, notify, shared)
    notify({"event": "done", "cached": False})


def _run_unfinished(
    setup: Setup, cell: StudyRun, notify: EventHandler, shared: Shared
) -> None:
    folder = cell.folder(setup.out)
    config = variant(setup.config, cell.strategy)
    if cell.seed not in shared.of_seed:
        shared.of_seed.clear()
        shared.of_seed[cell.seed] = open_data(
            config,
            cell.seed,
            setup.data_dir,
            setup.dataset,
            kept_in=setup.out / "rows",
            cache=shared.cache,
        )

    def open_run(path: Path) -> AbstractContextManager[ExperimentRun]:
        return _open_run(setup, cell, config, path, notify, shared)

    def budget(path: Path, cycle: int) -> None:
        with open_run(path) as run:
            run.one_pass(cycle)

    if is_one_pass(config):
        each_budget(config, folder, budget)
        return
    with open_run(folder) as run:
        with only_one(setup.out / "phases" / f"seed-{cell.seed}.lock"):
            run.first_phase()
        run.go()


@contextmanager
def _open_run(
    setup: Setup,
    cell: StudyRun,
    config: ExperimentConfig,
    folder: Path,
    notify: EventHandler,
    shared: Shared,
) -> Iterator[ExperimentRun]:
    """Open a run with its event log in ``folder``, and check that both match."""
    event_log = EventLog(folder / "event_log.sqlite")
    try:
        if not config.is_digested_as(event_log.note_once("digest", config.digest)):
            raise ValueError(
                f"{folder} was started with other settings, or by a version of Fallow "
                "with other defaults; resume with those, or choose another folder with "
                "--out"
            )
        kept = shared.features
        kept.notify = notify
        dataset = shared.of_seed[cell.seed]
        simulation = environment_of(
            config, cell.seed, dataset, event_log, setup.runtime, kept, notify
        )
        if event_log.note_once("data", simulation.fingerprint) != simulation.fingerprint:
            raise ValueError(
                f"{config.data} has changed since {folder} was started; restore it, or choose "
                "another folder with --out"
            )
        write_json(cell.folder(setup.out) / "partition.json", partition_of(simulation))
        yield ExperimentRun(
            simulation, event_log, Phases(setup.out / "phases"), folder, notify
        )
    finally:
        event_log.close()
