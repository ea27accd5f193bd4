"""What a study will cost, before anything starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fallow.core.disclosure import Disclosure
from fallow.core.plan import Segment
from fallow.core.streams import stream
from fallow.data.dataset import Dataset
from fallow.lab.cell import Cell, Setup
from fallow.lab.evaluate import evaluate
from fallow.lab.journal import Journal
from fallow.lab.one_pass import is_one_pass
from fallow.lab.recipe import Recipe
from fallow.lab.report_words import duration, size
from fallow.lab.rows import open_data
from fallow.lab.run import Run
from fallow.lab.variants import BOUND, variant
from fallow.lab.world import local_plan, methods_of, world_of

ENOUGH = 600  # rows that tell how fast a round is


@dataclass(frozen=True)
class Estimate:
    """Rows seen in training, seconds on this machine, bytes that cross in both directions."""

    runs: int
    rows: int
    seconds: float
    bytes: int
    jobs: int

    def sentence(self) -> str:
        processes = "1 process" if self.jobs == 1 else f"{self.jobs} processes"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return (
            f"{runs}: {self.rows:,} training rows in all, about "
            f"{duration(self.seconds)} in {processes} on this machine, {size(self.bytes)} between "
            "server and sites. Nothing was started."
        )


@dataclass(frozen=True)
class Pace:
    """Seconds of the parts of a run, measured: a round costs ``base + per_row`` x rows trained."""

    base: float
    per_row: float
    scoring: float  # evaluating a model once
    start: float  # reading data, making sites
    per_look: float  # one row of a pool, seen by one model
    pool: int
    bytes: int  # of a round of all sites


def estimate(setup: Setup, cells: Sequence[Cell], jobs: int) -> Estimate:
    """Count what the cells will do, and time two short rounds of each kind to scale it.

    The first phase is counted once per seed for the strategies that share it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(setup.threads)
    paces: dict[str, Pace] = {}
    try:
        begun = time.perf_counter()
        found = open_data(setup.recipe, cells[0].seed, setup.data_dir)
        reading = time.perf_counter() - begun
        for cell in cells:
            if _kind(cell) not in paces:
                pace = _pace(variant(setup.recipe, cell.query), cell.seed, found)
                paces[_kind(cell)] = replace(pace, start=pace.start + reading)
    finally:
        torch.set_num_threads(before)
    jobs = min(jobs, len(cells))
    rows, seconds, crossed, started = 0, 0.0, 0.0, set()
    for cell in cells:
        recipe, pace = variant(setup.recipe, cell.query), paces[_kind(cell)]
        phases = labelled(recipe, pace.pool)
        is_shared = not cell.query.startswith(BOUND)
        if is_one_pass(recipe):
            phases, is_shared = phases[1:], False
        trained = phases[1:] if is_shared and cell.seed in started else phases
        started |= {cell.seed} if is_shared else set()
        rows += sum(trained) * recipe.rounds * recipe.plan.epochs
        crossed += len(phases) * recipe.rounds * pace.bytes * recipe.participation
        seconds += pace.start + sum(_phase(recipe, pace, n) for n in trained)
        seconds += sum(_query(recipe, pace, n) for n in phases[:-1])
    return Estimate(len(cells), rows, seconds / jobs, round(crossed), jobs)


def labelled(recipe: Recipe, pool: int) -> list[int]:
    """Labelled rows of each phase."""

    def bought(share: float | int) -> int:
        return share * recipe.sites if isinstance(share, int) else round(share * pool)

    return [bought(recipe.initial) + t * bought(recipe.per_cycle) for t in range(recipe.cycles + 1)]


def _phase(recipe: Recipe, pace: Pace, n: int) -> float:
    training = pace.base + pace.per_row * n * recipe.plan.epochs
    scored = min(recipe.rounds, recipe.score_rounds)
    return recipe.rounds * recipe.participation * training + scored * pace.scoring


def _query(recipe: Recipe, pace: Pace, n: int) -> float:
    """Two models look at the pool; a local model of its own is trained to the end."""
    looks = 2 * (pace.pool - n) * pace.per_look
    own = local_plan(recipe, methods_of(recipe)["query"]) is not None
    return looks + own * n * recipe.local_plan.epochs * pace.per_row


def _kind(cell: Cell) -> str:
    """Cells of one kind train at one pace; pooled rows cannot be trained side by side."""
    return cell.query if cell.query == f"{BOUND}pooled" else ""


def _pace(recipe: Recipe, seed: int, found: Dataset) -> Pace:
    """Two rounds of one epoch over few rows, so that a long recipe takes no long look."""
    tests, first = len(found.x_test), next(filter(None, labelled(recipe, len(found.x))), 1)
    short = replace(
        recipe,
        protocol="cycles",
        initial_by="random",
        cycles=0,
        rounds=1,
        participation=1.0,
        plan=replace(recipe.plan, segments=(Segment(1),)),
        executor="loop" if recipe.executor == "workers" else recipe.executor,  # starts at once
    )
    few = found.test_rows(min(tests, ENOUGH), stream(seed, "estimate"))
    shares = [min(1.0, times * min(first, ENOUGH) / len(found.x)) for times in (1, 3)]
    _timed(replace(short, initial=shares[0]), seed, few)  # the first pass of a process is slow
    n, once, pace = _timed(replace(short, initial=shares[0]), seed, few)
    m, more, _ = _timed(replace(short, initial=shares[1]), seed, few)
    per_row = max((more - once) / max(m - n, 1), 0.1 * once / max(n, 1))
    scoring = pace.scoring * tests / len(few.x_test)
    return replace(pace, base=max(once - per_row * n, 0.0), per_row=per_row, scoring=scoring)


def _timed(recipe: Recipe, seed: int, found: Dataset) -> tuple[int, float, Pace]:
    """Rows and seconds of the round of a short recipe, and the other parts."""
    begun, journal = time.perf_counter(), Journal()
    world = world_of(recipe, seed, found, journal)
    start = time.perf_counter() - begun
    run = Run(world, journal)
    run.initial()
    begun = time.perf_counter()
    done = run.train(0, None)
    spent = time.perf_counter() - begun
    begun = time.perf_counter()
    evaluate(world, done["state"])
    scoring = time.perf_counter() - begun
    journal.close()
    shown, pool = Disclosure.of(done["revealed"]), sum(world.sizes.values())
    look = scoring / len(found.x_test)
    n = sum(len(site.labelled) for site in world.members.values())
    crossed = shown.bytes_up + shown.bytes_down
    return n, max(spent - scoring, 1e-6), Pace(0.0, 0.0, scoring, start, look, pool, crossed)
