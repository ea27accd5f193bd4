"""What a study will cost, before anything starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch

from fallow.core.disclosure import Disclosure, payload
from fallow.core.methods import Choosing, Load
from fallow.core.plan import Segment
from fallow.core.streams import stream
from fallow.core.types import State
from fallow.core.words import duration, size
from fallow.data.dataset import Dataset
from fallow.experiment.evaluate import evaluate
from fallow.experiment.first_phase import INPUTS
from fallow.experiment.journal import Journal
from fallow.experiment.methods import local_plan, methods_of
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.rows import open_data
from fallow.experiment.run import Run
from fallow.experiment.world import World, world_of
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec
from fallow.settings.variants import BOUND, variant
from fallow.sites.view import SiteView
from fallow.study.cell import Cell, Setup

ENOUGH = 600  # rows that tell how fast a round is
TRIES = 7  # that tell how fast a model is tried


@dataclass(frozen=True)
class Estimate:
    """Rows seen in training, seconds on this machine, bytes that cross in both directions.

    Where sites choose collaborators, at most: ``tried`` models on validation rows, and bytes that
    go from site to site (``relayed``, which records count up and down).
    """

    runs: int
    rows: int
    seconds: float
    bytes: int
    jobs: int
    tried: int = 0
    relayed: int = 0

    def sentence(self) -> str:
        processes = "1 process" if self.jobs == 1 else f"{self.jobs} processes"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        tried = (
            f"up to {self.tried:,} models tried on validation rows, " if self.tried else ""
        )
        passed = (
            f" and up to {size(self.relayed)} from site to site" if self.relayed else ""
        )
        return (
            f"{runs}: {self.rows:,} training rows in all, {tried}about "
            f"{duration(self.seconds)} in {processes} on this machine, {size(self.bytes)} between "
            f"server and sites{passed}. Nothing was started."
        )


@dataclass(frozen=True)
class Pace:
    """Seconds of the parts of a run, measured: a round costs ``base + per_row`` x rows trained."""

    base: float
    per_row: float
    scoring: float  # evaluating a model once
    start: float  # reading data, making sites
    per_look: float  # one row of a pool, seen by one model
    per_try: float  # a model averaged and seen with one row, beyond per_look
    pool: int
    model: int  # bytes
    world: World  # that was timed


def estimate(setup: Setup, cells: Sequence[Cell], jobs: int) -> Estimate:
    """Count what the cells will do, and time two short rounds of each kind to scale it.

    The first phase is counted once per seed for the strategies that share it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(setup.threads)
    paces: dict[str, Pace] = {}
    crossing: dict[tuple[str, str], tuple[int, int]] = {}
    try:
        begun = time.perf_counter()
        found = open_data(setup.recipe, cells[0].seed, setup.data_dir)
        reading = time.perf_counter() - begun
        for cell in cells:
            recipe, kind = variant(setup.recipe, cell.query), _kind(cell)
            if kind not in paces:
                pace = _pace(recipe, cell.seed, found)
                paces[kind] = replace(pace, start=pace.start + reading)
            if (way := (kind, str(recipe.training))) not in crossing:
                crossing[way] = _crossing(recipe, paces[kind])
    finally:
        torch.set_num_threads(before)
    total, started = _Sum(), set[tuple[object, ...]]()
    for cell in cells:
        recipe, kind = variant(setup.recipe, cell.query), _kind(cell)
        pace, phases = paces[kind], labelled(recipe, paces[kind].pool)
        is_shared = not cell.query.startswith(BOUND)
        if is_one_pass(recipe):
            phases, is_shared = phases[1:], False
        first = (cell.seed, *(str(getattr(recipe, name)) for name in INPUTS))
        done = is_shared and first in started
        started |= {first} if is_shared else set()
        total.add(recipe, pace, phases, crossing[kind, str(recipe.training)], done)
    jobs = min(jobs, len(cells))
    seconds = total.seconds / jobs
    return Estimate(
        len(cells),
        total.rows,
        seconds,
        round(total.bytes),
        jobs,
        total.tried,
        total.relayed,
    )


@dataclass
class _Sum:
    rows: int = 0
    seconds: float = 0.0
    bytes: float = 0.0
    tried: int = 0
    relayed: int = 0

    def add(
        self,
        recipe: Recipe,
        pace: Pace,
        phases: Sequence[int],
        crossing: tuple[int, int],
        done: bool,
    ) -> None:
        """A cell with so many labelled rows in its phases, the first of which may be done."""
        first, later = crossing
        self.bytes += (
            len(phases) * (first + (recipe.rounds - 1) * later) * recipe.participation
        )
        self.bytes += (
            len(phases[:-1]) * recipe.sites * pace.model
        )  # before a query, to each site
        self.seconds += pace.start + sum(_query(recipe, pace, n) for n in phases[:-1])
        for cycle, n in enumerate(phases):
            chosen = _chosen(recipe, cycle)
            self.relayed += chosen.models * pace.model
            if done and cycle == 0:
                continue
            self.tried += chosen.evaluations
            self.rows += n * recipe.rounds * recipe.plan.epochs
            self.seconds += _phase(recipe, pace, n) + chosen.evaluations * _try(
                recipe, pace, n
            )


def _chosen(recipe: Recipe, cycle: int) -> Load:
    """What choosing collaborators costs in a phase; nothing where nobody does."""
    method = methods_of(recipe)["training"]
    if not isinstance(method, Choosing):
        return Load(0, 0)
    return method.load(
        recipe.sites, recipe.rounds, recipe.restart == "continue" and cycle > 0
    )


def _try(recipe: Recipe, pace: Pace, n: int) -> float:
    """Seconds of a model on the validation rows of a site, of ``n`` labelled rows in all."""
    return pace.per_try + recipe.validation * n / recipe.sites * pace.per_look


def labelled(recipe: Recipe, pool: int) -> list[int]:
    """Labelled rows of each phase."""

    def bought(share: float | int) -> int:
        return share * recipe.sites if isinstance(share, int) else round(share * pool)

    return [
        bought(recipe.initial) + t * bought(recipe.per_cycle)
        for t in range(recipe.cycles + 1)
    ]


def _phase(recipe: Recipe, pace: Pace, n: int) -> float:
    training = pace.base + pace.per_row * n * recipe.plan.epochs * _gradients(recipe)
    scored = min(recipe.rounds, recipe.score_rounds)
    return recipe.rounds * recipe.participation * training + scored * pace.scoring


def _query(recipe: Recipe, pace: Pace, n: int) -> float:
    """Two models look at the pool; a local model of its own is trained to the end."""
    looks = 2 * (pace.pool - n) * pace.per_look
    own = local_plan(recipe, methods_of(recipe)["query"]) is not None
    return looks + own * n * recipe.local_plan.epochs * pace.per_row


def _kind(cell: Cell) -> str:
    """Cells of one kind train at one pace, but for the gradients that a batch takes; pooled rows
    cannot be trained side by side."""
    return cell.query if cell.query == f"{BOUND}pooled" else ""


def _gradients(recipe: Recipe) -> int:
    """Gradients that a batch takes, beside FedAvg's 1."""
    return methods_of(recipe)["training"].contract.gradients_per_batch


def _pace(recipe: Recipe, seed: int, found: Dataset) -> Pace:
    """Two rounds of one epoch over few rows, so that a long recipe takes no long look.

    Training methods that choose collaborators are timed without: as FedAvg.
    """
    tests, first = len(found.x_test), next(filter(None, labelled(recipe, len(found.x))), 1)
    plain = Spec("fedavg") if _chosen(recipe, 0).models else recipe.training
    short = replace(
        recipe,
        protocol="cycles",
        initial_by="random",
        cycles=0,
        rounds=1,
        fresh_first=False,
        participation=1.0,
        training=plain,
        plan=replace(recipe.plan, segments=(Segment(1),)),
        executor="loop"
        if recipe.executor == "workers"
        else recipe.executor,  # starts at once
    )
    few = found.test_rows(min(tests, ENOUGH), stream(seed, "estimate"))
    shares = [min(1.0, times * min(first, ENOUGH) / len(found.x)) for times in (1, 3)]
    _timed(
        replace(short, initial=shares[0]), seed, few
    )  # the first pass of a process is slow
    n, once, pace = _timed(replace(short, initial=shares[0]), seed, few)
    m, more, _ = _timed(replace(short, initial=shares[1]), seed, few)
    per_row = max((more - once) / max(m - n, 1), 0.1 * once / max(n, 1))
    base = max(once - per_row * n, 0.0)
    scoring = pace.scoring * tests / len(few.x_test)
    return replace(pace, base=base, per_row=per_row / _gradients(short), scoring=scoring)


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
    look, pool = scoring / len(found.x_test), sum(world.sizes.values())
    n = sum(len(site.labelled) for site in world.members.values())
    model = payload({name: done["state"][name] for name in ("w", "stats")})
    tried = _tried(world, done["state"])
    pace = Pace(0.0, 0.0, scoring, start, look, tried, pool, model, world)
    return n, max(spent - scoring, 1e-6), pace


def _tried(world: World, state: State) -> float:
    """Seconds of adding a model to an average and running it on one row: the median of a few."""
    site, spent = next(iter(world.members.values())), []
    view, w = SiteView(site, 0), state["w"].double()
    for _ in range(TRIES):
        begun = time.perf_counter()
        mean = ((w + w) / 2 - w / 2).to(state["w"].dtype)
        view.forward({**state, "w": mean}, site.seen[:1])
        spent.append(time.perf_counter() - begun)
    return median(spent)


def _crossing(recipe: Recipe, pace: Pace) -> tuple[int, int]:
    """Bytes between server and sites in the first round of a training method, and in each later
    one, of all sites.  Where sites choose collaborators, only the first model."""
    world, told = pace.world, []
    if _chosen(recipe, 0).models:
        return len(world.members) * pace.model, 0
    for rounds in (1, 2):
        short = replace(
            world.recipe, training=recipe.training, rounds=rounds, score_rounds=1
        )
        methods = methods_of(short)
        for site in world.members.values():
            site.parts = replace(site.parts, methods=methods)
            site.forget()
        done = Run(replace(world, recipe=short, methods=methods), Journal()).train(0, None)
        shown = Disclosure.of(done["revealed"])
        told.append(shown.bytes_up + shown.bytes_down)
    return told[0], told[1] - told[0]
