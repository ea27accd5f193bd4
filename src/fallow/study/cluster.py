"""Execution of a study on a Dask cluster (package `distributed`).

Each task consists of some runs of the study and is executed as in a local process.  Dask assigns
tasks to workers, and reassigns those of lost workers.  All results are written to the folder of the
study, which every machine must be able to access.  A study on a cluster can be resumed as usual.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from fallow.core.events import Event, EventHandler, ignore_event
from fallow.core.optional import import_optional
from fallow.experiment.methods import versions
from fallow.settings.config import config_from
from fallow.storage.errors import sentence
from fallow.study.study import assign_runs, is_from_python, limit_threads, run_all
from fallow.study.study_run import Failure, Setup, StudyRun

if TYPE_CHECKING:
    from types import ModuleType

    from distributed import Client, Future

PATIENCE = 20  # timeout of the scheduler in seconds
SEEN = "cluster.txt"
"""File by which workers prove that they have access to the folder of the study."""


class Report(TypedDict):
    """Result of a task, in plain values."""

    events: list[Event]  # scores, and that a run ended
    failures: list[tuple[str, int, str, str]]  # strategy, seed, why, where


def run_on_cluster(
    setup: Setup,
    cells: Sequence[StudyRun],
    address: str,
    notify: EventHandler = ignore_event,
) -> list[Failure]:
    """Run a study on the cluster at ``address``, such as ``tcp://10.0.0.1:8786``.

    Records and failures equal those of `fallow.study.study.run_study`.  Raises ValueError before any
    run if the cluster cannot execute the study.
    """
    if is_from_python(setup):
        raise ValueError(
            "a study with data or classes from a program cannot run on a cluster; name "
            "its data and its classes in an experiment configuration"
        )
    distributed = import_distributed()
    try:
        client: Client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no Dask scheduler replies at {address} ({sentence(error)}); start one with "
            "'dask scheduler', and give the address that it prints"
        ) from error
    with client:
        n_workers = _check_workers(client, setup.out)
        tasks = assign_runs(cells, n_workers)
        futures = {}
        for task in tasks:
            # not `pure`: the same task is submitted again when a study is resumed
            future = client.submit(run_task, _write_task(setup, task), pure=False)
            futures[future] = task
        try:
            return _collect(
                distributed.as_completed(futures, loop=client.loop), futures, notify
            )
        except KeyboardInterrupt:
            client.cancel(list(futures))
            raise


def import_distributed() -> ModuleType:
    """Return the package of Dask clusters, or raise ValueError with what to install."""
    return import_optional("distributed", "fallow-core[cluster]", "a cluster")


def _check_workers(client: Client, out: Path) -> int:
    """Return the number of workers, or raise ValueError if one of them cannot execute runs."""
    threads: Mapping[str, int] = client.nthreads()
    if not threads:
        raise ValueError(
            "the cluster has no workers; start some with 'dask worker ADDRESS --nthreads 1'"
        )
    for worker, n in threads.items():
        if n != 1:  # runs in threads of one process would share torch's random state
            raise ValueError(
                f"worker {worker} runs {n} tasks at a time, and each run needs its own "
                "process; start it with '--nthreads 1', and with '--nworkers' as its "
                "number of cores"
            )
    token = secrets.token_hex(8)
    (out / SEEN).write_text(token, encoding="utf-8")
    contents = client.run(read_token, str(out.absolute()))
    for worker, content in contents.items():
        if content != token:
            raise ValueError(
                f"worker {worker} cannot access {out.absolute()}; give with --out a "
                "folder that all machines have under the same path"
            )
    own = _own_versions()
    for worker, other in client.run(_own_versions).items():
        if other != own:
            raise ValueError(
                f"worker {worker} has {_list_versions(other)}, and this machine has "
                f"{_list_versions(own)}; install the same versions"
            )
    return len(threads)


def read_token(folder: str) -> str | None:
    """Return the content of the file that proves access to a folder, or None without it."""
    path = Path(folder) / SEEN
    if not path.is_file():
        return None
    return path.read_text(encoding="utf-8")


def _own_versions() -> dict[str, str]:
    """Return the versions that affect results, here and at each worker."""
    return dict(versions())


def _list_versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))


def _write_task(setup: Setup, cells: Sequence[StudyRun]) -> str:
    """Serialize runs and their settings as text for `run_task`."""
    data_dir = setup.data_dir and str(setup.data_dir.absolute())
    task = {
        "config": setup.config.to_dict(),
        "folder": str(Path.cwd()),
        "out": str(setup.out.absolute()),
        "data_dir": data_dir,
        "threads": setup.threads,
        "runtime": setup.runtime,
        "cells": [(cell.strategy, cell.seed) for cell in cells],
    }
    return json.dumps(task)


def run_task(text: str) -> Report:
    """Execute the runs of a task at a worker, without those that are finished."""
    spec: dict[str, Any] = json.loads(text)  # Any: values of JSON
    setup = Setup(
        config_from(spec["config"]),
        Path(spec["out"]),
        spec["data_dir"] and Path(spec["data_dir"]),
        spec["threads"],
        spec["runtime"],
    )
    cells = [StudyRun(strategy, seed) for strategy, seed in spec["cells"]]
    noted: list[Event] = []

    def note(event: Event) -> None:
        if event["event"] in ("scored", "done", "failed"):
            noted.append(event)

    folder = Path(spec["folder"])
    context: AbstractContextManager[None] = nullcontext()
    if folder.is_dir():  # relative paths in a configuration start here
        context = chdir(folder)
    with context, limit_threads(setup.threads):
        failures = run_all(setup, cells, note)
    reported = []
    for failure in failures:
        reported.append(
            (failure.cell.strategy, failure.cell.seed, failure.reason, failure.trace)
        )
    return {"events": noted, "failures": reported}


def _collect(
    completed: Any,  # of Dask, without types: futures in the order of completion
    futures: Mapping[Future, list[StudyRun]],
    notify: EventHandler,
) -> list[Failure]:
    """Forward the results of tasks as they finish."""
    failures = []
    for future in completed:
        error = future.exception()
        if error is not None:
            why = f"{sentence(error)}; run the study with --resume"
            failures += [Failure(cell, why) for cell in futures[future]]
            continue
        report: Report = future.result()
        for event in report["events"]:
            notify(event)
        for strategy, seed, why, trace in report["failures"]:
            failures.append(Failure(StudyRun(strategy, seed), why, trace))
    return failures
