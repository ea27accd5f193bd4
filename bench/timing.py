"""A race: reference, ours, reference, ours, ... in one process, and the medians compared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

Clock = Callable[[], float]
CPU: Clock = time.process_time  # one thread: a busy machine does not count
WALL: Clock = time.perf_counter


@dataclass(frozen=True)
class Seconds:
    """What one side of a race took: the median, and from the fastest to the slowest run."""

    median: float
    fastest: float
    slowest: float

    @staticmethod
    def of(runs: list[float]) -> Seconds:
        return Seconds(median(runs), min(runs), max(runs))


@dataclass(frozen=True)
class Result:
    """One row of ``bench/results.json``.

    ratio: median seconds of the reference over ours; bar: what it should be; outputs_equal:
    whether both made the same, as ``compared`` says; machine: also how busy it was before; extra:
    MB that ours needs at most, where that is measured, and limit: what it should stay below.
    """

    name: str
    reference: str
    ratio: float
    bar: float
    outputs_equal: bool
    compared: str
    clock: str
    runs: int
    machine: str
    reference_seconds: Seconds
    seconds: Seconds
    extra: float | None = None
    limit: float | None = None

    @property
    def is_met(self) -> bool:
        is_small = self.extra is None or self.limit is None or self.extra < self.limit
        return self.outputs_equal and self.ratio >= self.bar and is_small

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Entry:
    """One race.  ``prepare(is_quick)`` makes the two sides, and the comparison of their outputs,
    which may run them again in another precision; ``extra(is_quick)`` is the memory of `Result`."""

    name: str
    reference: str
    bar: float
    compared: str
    prepare: Callable[[bool], Race]
    clock: Clock = CPU
    extra: Callable[[bool], float] | None = None
    limit: float | None = None

    def run(self, is_quick: bool = False) -> Result:
        """Race, five runs each; ``is_quick`` is for tests: tiny, one run, times mean nothing."""
        machine = described()
        race = self.prepare(is_quick)
        runs = 1 if is_quick else race.runs
        theirs, ours = interleaved(race.reference, race.ours, runs, self.clock)
        return Result(
            self.name,
            self.reference,
            theirs.median / ours.median,
            self.bar,
            race.outputs_equal(),
            self.compared,
            "CPU" if self.clock is CPU else "wall",
            runs,
            machine,
            theirs,
            ours,
            self.extra and self.extra(is_quick),
            self.limit,
        )


@dataclass(frozen=True)
class Race:
    """Two ways to the same outputs."""

    reference: Callable[[], object]
    ours: Callable[[], object]
    outputs_equal: Callable[[], bool]
    runs: int = 5


def described() -> str:
    """Cores, threads, load of the last minute, and who computes."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    threads = torch.get_num_threads()
    return f"{os.cpu_count()} cores, {threads} threads a process{load}, torch {torch.__version__}"


def interleaved(
    reference: Callable[[], object], ours: Callable[[], object], runs: int, clock: Clock
) -> tuple[Seconds, Seconds]:
    """Seconds of both sides, in turn, so that a slow minute of the machine is slow for both."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for side, seconds in zip((reference, ours), taken, strict=True):
            started = clock()
            side()
            seconds.append(clock() - started)
    return Seconds.of(taken[0]), Seconds.of(taken[1])
