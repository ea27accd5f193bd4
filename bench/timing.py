"""Time a reference and Fallow's implementation in turn and compare the medians."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

import torch

Clock = Callable[[], float]
CPU: Clock = time.process_time  # of all threads of this process alone
WALL: Clock = time.perf_counter


class SkippedError(Exception):
    """A benchmark cannot run here; the text is the reason."""


@dataclass(frozen=True)
class Seconds:
    """Times of one side of a benchmark: the median and the range."""

    median: float
    fastest: float
    slowest: float

    @staticmethod
    def of(runs: list[float]) -> Seconds:
        return Seconds(median(runs), min(runs), max(runs))


@dataclass(frozen=True)
class Result:
    """One row of ``bench/results.json``.

    Attributes
    ----------
    ratio
        Median seconds of the reference divided by ours.
    bar
        Required ratio.
    outputs_equal
        Whether both outputs are equal by the comparison ``compared``.
    machine
        Description of the machine, with its load before the benchmark.
    extra
        Peak memory of our implementation in MB, if measured.
    limit
        Largest permitted ``extra``.
    ceiling
        Largest permitted number of seconds of our implementation, if any.
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
    ceiling: float | None = None

    @property
    def misses(self) -> list[str]:
        """The targets that were missed, each with the measured value."""
        misses = []
        if not self.outputs_equal:
            misses.append("outputs differ")
        if self.ratio < self.bar:
            misses.append(f"ratio {self.ratio:.2f} < {self.bar:g}")
        if self.ceiling is not None and self.seconds.median > self.ceiling:
            misses.append(f"{self.seconds.median:.1f} s > {self.ceiling:g} s")
        if self.extra is not None and self.limit is not None and self.extra >= self.limit:
            misses.append(f"{self.extra:.0f} MB >= {self.limit:g} MB")
        return misses

    @property
    def is_met(self) -> bool:
        return not self.misses

    def to_dict(self) -> dict[str, object]:
        """Return the row as plain values, with whether all targets are met."""
        return {**asdict(self), "is_met": self.is_met}


@dataclass(frozen=True)
class Entry:
    """One benchmark.

    ``prepare(is_quick)`` returns the two implementations and the comparison of their
    outputs, which may run them again in another precision. ``extra(is_quick)`` is the
    memory of `Result`.
    """

    name: str
    reference: str
    bar: float
    compared: str
    prepare: Callable[[bool], Race]
    clock: Clock = CPU
    extra: Callable[[bool], float] | None = None
    limit: float | None = None
    ceiling: float | None = None

    def run(self, is_quick: bool = False) -> Result:
        """Run as often as the race states; ``is_quick`` is a single tiny run for tests."""
        machine = describe_machine()
        race = self.prepare(is_quick)
        runs = race.runs
        if is_quick:
            runs = 1
        clock = "wall"
        if self.clock is CPU:
            clock = "CPU"
        try:
            theirs, ours = time_in_turn(race.reference, race.ours, runs, self.clock)
            outputs_equal = race.outputs_equal()
        finally:
            race.close()
        extra = None
        if self.extra is not None:
            extra = self.extra(is_quick)
        return Result(
            name=self.name,
            reference=self.reference,
            ratio=theirs.median / ours.median,
            bar=self.bar,
            outputs_equal=outputs_equal,
            compared=self.compared,
            clock=clock,
            runs=runs,
            machine=machine,
            reference_seconds=theirs,
            seconds=ours,
            extra=extra,
            limit=self.limit,
            ceiling=self.ceiling,
        )


@dataclass(frozen=True)
class Race:
    """Two implementations with equal outputs; ``close`` ends what they started."""

    reference: Callable[[], object]
    ours: Callable[[], object]
    outputs_equal: Callable[[], bool]
    runs: int = 5
    close: Callable[[], object] = bool


def describe_machine() -> str:
    """Describe cores, threads, the load of the last minute, and the version of PyTorch."""
    threads = torch.get_num_threads()
    parts = [f"{os.cpu_count()} cores", f"{threads} threads a process"]
    if hasattr(os, "getloadavg"):
        parts.append(f"load {os.getloadavg()[0]:.1f}")
    parts.append(f"torch {torch.__version__}")
    return ", ".join(parts)


def time_in_turn(
    reference: Callable[[], object], ours: Callable[[], object], runs: int, clock: Clock
) -> tuple[Seconds, Seconds]:
    """Return the seconds of both, measured in turn so that other load affects both."""

    def time_once(side: Callable[[], object]) -> float:
        started = clock()
        side()
        return clock() - started

    of_reference = []
    of_ours = []
    for _ in range(runs):
        of_reference.append(time_once(reference))
        of_ours.append(time_once(ours))
    return Seconds.of(of_reference), Seconds.of(of_ours)
