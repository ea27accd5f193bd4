"""What a study will cost, before anything starts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fallow.lab.cell import Cell, Setup
from fallow.lab.journal import Journal
from fallow.lab.recipe import Recipe, variant
from fallow.lab.report_words import duration, size
from fallow.lab.run import Run
from fallow.lab.world import World, build_world


@dataclass(frozen=True)
class Estimate:
    """Rows seen in training, seconds on this machine, bytes that cross in both directions."""

    runs: int
    rows: int
    seconds: float
    bytes: int
    jobs: int

    def sentence(self) -> str:
        return (
            f"{self.runs} runs: {self.rows:,} training rows in all, about {duration(self.seconds)} in "
            f"{self.jobs} {'process' if self.jobs == 1 else 'processes'} on this machine, "
            f"{size(self.bytes)} between server and sites. Nothing was started."
        )


def estimate(setup: Setup, cells: Sequence[Cell], jobs: int) -> Estimate:
    """Count what the cells will do, and time one short phase of the first to scale it.

    The first phase is counted once per seed for the strategies that share it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(setup.threads)
    try:
        rate, floor, model = _measured(setup, cells[0])
    finally:
        torch.set_num_threads(before)
    rows = bytes_ = 0
    rounds = 0
    started = set()
    for cell in cells:
        recipe = variant(setup.recipe, cell.query)
        phases = _labelled(recipe, model)
        shared = not cell.query.startswith("bound:")
        skipped = shared and cell.seed in started
        started |= {cell.seed} if shared else set()
        rows += sum(phases[skipped:]) * recipe.rounds * recipe.plan.epochs
        rounds += len(phases[skipped:]) * recipe.rounds
        bytes_ += len(phases) * recipe.rounds * recipe.sites * 3 * 4 * model.layout.d
    seconds = (rows / rate + rounds * floor) / min(jobs, len(cells))
    return Estimate(len(cells), rows, seconds, bytes_, jobs)


def _labelled(recipe: Recipe, world: World) -> list[int]:
    """Labelled rows of each phase."""
    total = sum(world.sizes.values())

    def bought(share: float | int) -> int:
        return share * recipe.sites if isinstance(share, int) else round(share * total)

    return [bought(recipe.initial) + t * bought(recipe.per_cycle) for t in range(recipe.cycles + 1)]


def _measured(setup: Setup, cell: Cell) -> tuple[float, float, World]:
    """Training rows per second, seconds of a round without training, and a world to count with."""
    short = replace(variant(setup.recipe, cell.query), cycles=0, rounds=1, score_rounds=1)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.sqlite")
        world = build_world(short, cell.seed, journal, setup.data_dir)
        run = Run(world, journal)
        run.first_phase()
        run = replace(run, world=replace(world, recipe=short))
        started = time.perf_counter()
        run._train(0, "timed", None)
        spent = time.perf_counter() - started
        labelled = sum(len(site.labelled) for site in world.members.values())
        journal.close()
    floor = 0.1 * spent
    return labelled * short.plan.epochs / max(spent - floor, 1e-6), floor, world
