"""A study: a recipe x strategies x seeds, run in parallel, resumable, in one folder."""

from __future__ import annotations

import fcntl
import json
import multiprocessing as mp
import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fallow.lab.cell import Cell, Failure, Setup
from fallow.lab.files import write_json
from fallow.lab.journal import Journal
from fallow.lab.phases import Phases
from fallow.lab.recipe import Recipe, recipe_from, variant
from fallow.lab.run import Run, Say, silent
from fallow.lab.versions import versions
from fallow.lab.world import build_world, partition_of

BOUNDS = ("bound:all-labels", "bound:pooled")


def study_cells(recipe: Recipe, queries: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Strategies and, where the recipe wants them, upper bounds; all cells of a seed together."""
    bounds = BOUNDS if recipe.bounds else ()
    return [Cell(query, seed) for seed in seeds for query in (*queries, *bounds)]


def open_study(
    setup: Setup, queries: Sequence[str], seeds: Sequence[int], command: str, resume: bool
) -> None:
    """Create the study's folder, or make sure that the one there is the same study.

    Raises ValueError when the folder holds a study and ``resume`` is off, or another study.
    """
    path, recipe = setup.out / "study.json", setup.recipe
    for query in queries:
        variant(recipe, query)  # a wrong name is found before anything is written
    if path.exists():
        check_same(path, recipe, resume)
        old = json.loads(path.read_text())
        queries = [*old["queries"], *(q for q in queries if q not in old["queries"])]
        queries = [q for q in queries if q not in BOUNDS]
        seeds = sorted({*old["seeds"], *seeds})
    reference = recipe.reference if recipe.reference in queries else None
    write_json(path, {
        "name": recipe.name, "title": recipe.title, "recipe": recipe.to_dict(),
        "digest": recipe.digest, "reference": reference or "random" * ("random" in queries) or None,
        "queries": [*queries, *(BOUNDS if recipe.bounds else ())], "seeds": list(seeds),
        "command": command, "versions": versions(),
        "published": recipe.to_dict()["published"],
    })  # fmt: skip


def check_same(path: Path, recipe: Recipe, resume: bool) -> None:
    """Raise unless the study at ``path`` may be continued with ``recipe``."""
    try:
        old = json.loads(path.read_text())
        before = recipe_from(old["recipe"])
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); choose another folder with --out"
        ) from error
    if not resume:
        raise ValueError(f"{path.parent} holds a study already; add --resume to go on with it, or "
                         "choose another folder with --out")  # fmt: skip
    if before.digest != recipe.digest:
        now, then = recipe.to_dict(), before.to_dict()
        changed = [k for k in now if now[k] != then[k]]
        raise ValueError(
            f"{path.parent} was started with other settings ({', '.join(changed)} differ); resume it "
            "with the settings in its study.json, or choose another folder with --out"
        )


def run_study(
    setup: Setup, cells: Sequence[Cell], jobs: int = 1, say: Say = silent
) -> list[Failure]:
    """Run every cell that is not finished; returns those that failed, with the reason.

    ``jobs``: processes of ``setup.threads`` threads each.  Results do not depend on it.
    """
    tasks = _tasks(cells, jobs)
    if jobs == 1 or len(tasks) == 1:
        with _threads(setup.threads):
            return [f for task in tasks for f in _run_cells(setup, task, say)]
    context = mp.get_context("spawn")
    events: Any = context.Queue()
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), context, _begin_worker, (events, setup.threads)
    ) as pool:
        futures = [pool.submit(_worker, setup, task) for task in tasks]
        try:
            return _collect(futures, events, say)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in mp.active_children():
                process.terminate()
            raise


def _tasks(cells: Sequence[Cell], jobs: int) -> list[list[Cell]]:
    """Cells of one seed share their first phase, so they stay together if seeds are enough."""
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    if len(seeds) >= jobs:
        return [[cell for cell in cells if cell.seed == seed] for seed in seeds]
    return [[cell] for cell in cells]


def _collect(futures: list[Future[list[Failure]]], events: Any, say: Say) -> list[Failure]:
    """Pass events on while processes work; their failures at the end."""
    waiting = set(futures)
    while waiting:
        try:
            say(events.get(timeout=0.2))
        except queue.Empty:
            waiting = {f for f in waiting if not f.done()}
    while not events.empty():
        say(events.get())
    return [failure for future in as_completed(futures) for failure in future.result()]


_events: Any = None  # the queue of a worker process; set once when it starts


def _begin_worker(events: Any, threads: int) -> None:
    global _events
    _events = events
    torch.set_num_threads(threads)


def _worker(setup: Setup, cells: list[Cell]) -> list[Failure]:
    return _run_cells(setup, cells, _events.put)


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_cells(setup: Setup, cells: Sequence[Cell], say: Say) -> list[Failure]:
    failures = []
    for cell in cells:
        about = {"query": cell.query, "seed": cell.seed}

        def tell(event: dict[str, Any], about: dict[str, Any] = about) -> None:
            say({**about, **event})

        try:
            run_cell(setup, cell, tell)
        except (ValueError, RuntimeError, OSError) as error:
            failures.append(Failure(cell, str(error)))
            tell({"event": "failed", "why": str(error)})
    return failures


def run_cell(setup: Setup, cell: Cell, say: Say = silent) -> None:
    """Run one cell, or go on with it; a finished one is left as it is."""
    folder = cell.folder(setup.out)
    if (folder / "model.safetensors").exists():
        say({"event": "done", "cached": True})
        return
    folder.mkdir(parents=True, exist_ok=True)
    recipe = variant(setup.recipe, cell.query)
    journal = Journal(folder / "journal.sqlite")
    try:
        if journal.about("digest", recipe.digest) != recipe.digest:
            raise ValueError(f"{folder} was started with other settings; choose another --out")
        world = build_world(recipe, cell.seed, journal, setup.data_dir)
        write_json(folder / "partition.json", partition_of(world))
        phases = Phases(setup.out / "phases")
        with only_one(setup.out / "phases" / f"seed-{cell.seed}.lock"):
            run = Run(world, journal, phases, folder, say)
            run.first_phase()
        run.go()
    finally:
        journal.close()
    say({"event": "done", "cached": False})


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """One process at a time; the lock ends with its process, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
