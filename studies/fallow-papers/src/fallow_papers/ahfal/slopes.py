"""AHFAL's Finding 2 (Figure 3): accuracy of a class by its skew over sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fallow.core.streams import seed_of
from fallow.experiment.metrics_counts import count_variation
from fallow.report.by_class import class_accuracies
from fallow.study.records import StudyRecords
from fallow.study.statistics import Interval
from fallow_papers.ahfal.families import Family, members

DRAWS = 2000
"""Bootstrap draws."""

LEVEL = 0.95
"""Confidence level of an interval."""

FEWEST = 5
"""Minimum number of runs for resampling."""

BINS = 6
"""Number of means that show whether the relation is linear."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """The least-squares line of one family: accuracy in percent against CV_c."""

    strategies: tuple[str, ...]
    slope: float
    intercept: float
    interval: Interval | None  # of the slope, over resampled runs; None: fewer than five
    points: int
    bins: tuple[tuple[float, float], ...]  # mean CV_c and accuracy of equally many points


@dataclass(frozen=True)
class Slopes:
    """Lines of two or more families.

    ``steeper``: slope minus that of the local-only family, with its interval, for each
    other family.
    """

    lines: dict[Family, Line]
    steeper: dict[Family, tuple[float, Interval | None]]
    runs: int  # (study, seed) pairs


def least_squares(x: Floats, y: Floats) -> tuple[float, float]:
    """Return slope and intercept.

    >>> least_squares(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    (2.0, 1.0)
    """
    slope = _slope(_sums(x, y)[None])[0]
    return float(slope), float(y.mean() - slope * x.mean())


def _sums(x: Floats, y: Floats) -> Floats:
    """Return the sufficient statistics of a slope, which add up over runs."""
    return np.array([len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum()])


def _slope(sums: Floats) -> Floats:
    """Return slopes, (B, 5) -> (B,); 0 if x never varies."""
    n, x, y, xx, xy = sums.T
    spread = n * xx - x * x
    varies = spread > 1e-12 * n * xx
    slope: Floats = np.divide(
        n * xy - x * y, spread, out=np.zeros_like(spread), where=varies
    )
    return slope


def slopes(studies: Sequence[StudyRecords]) -> Slopes | None:
    """Fit lines over all classes, strategies, seeds and studies; ``None`` without two
    families.

    CV_c is the coefficient of variation of a class's counts over the sites of the seed's
    own partition; classes without training or test examples are excluded. Intervals are
    percentiles of slopes over runs (study, seed) resampled with replacement, because the
    classes of one run are not independent. All families use the same resampled runs.
    """
    strategies_of = members(studies)
    if "local" not in strategies_of or len(strategies_of) < 2:
        return None
    runs = []
    for study in studies:
        for seed in sorted(study.partitions):
            run = _points_of_run(study, seed, strategies_of)
            if run is not None:
                runs.append(run)
    if not runs:
        return None

    drawn = _draw_runs(len(runs))  # (B, runs)
    again: dict[Family, Floats] = {}  # slopes over the runs of each draw, (B,)
    lines: dict[Family, Line] = {}
    for kind, strategies in strategies_of.items():
        points = [run[kind] for run in runs]
        if len(drawn) > 0:
            sums = np.stack([_sums(x, y) for x, y in points])  # (runs, 5)
            again[kind] = _slope(sums[drawn].sum(1))
        lines[kind] = _line(strategies, points, again.get(kind))

    steeper: dict[Family, tuple[float, Interval | None]] = {}
    for kind, line in lines.items():
        if kind == "local":
            continue
        interval = None
        if again:
            interval = _interval(again[kind] - again["local"])
        steeper[kind] = (line.slope - lines["local"].slope, interval)
    return Slopes(lines, steeper, len(runs))


def _draw_runs(runs: int) -> NDArray[np.int64]:
    """Return (B, runs) indices of runs, drawn with replacement; equal for equal numbers of
    runs.
    """
    if runs < FEWEST:
        return np.empty((0, runs), dtype=np.int64)
    gen = np.random.default_rng(seed_of(0, "bootstrap", runs))
    return gen.integers(0, runs, (DRAWS, runs))


def _points_of_run(
    study: StudyRecords, seed: int, strategies_of: dict[Family, tuple[str, ...]]
) -> dict[Family, tuple[Floats, Floats]] | None:
    """Return CV_c and accuracy in percent by family, for one seed of one study."""
    cv = count_variation(study.partitions[seed].matrix)
    result: dict[Family, tuple[Floats, Floats]] = {}
    for kind, strategies in strategies_of.items():
        spreads: list[float] = []
        accuracies: list[float] = []
        for strategy in strategies:
            of_strategy = class_accuracies(study, strategy).get(seed)
            if of_strategy is None:
                return None  # families are compared on the same runs
            for v, a in zip(cv, of_strategy, strict=True):
                if v is not None and a is not None:
                    spreads.append(v)
                    accuracies.append(100 * a)
        result[kind] = (np.array(spreads), np.array(accuracies))
    return result


def _line(
    strategies: tuple[str, ...], runs: Sequence[tuple[Floats, Floats]], again: Floats | None
) -> Line:
    """Fit the line of one family. runs: points (x, y) of each; again: (B,) slopes of
    resampled runs.
    """
    x = np.concatenate([of_run for of_run, _ in runs])
    y = np.concatenate([of_run for _, of_run in runs])
    slope, intercept = least_squares(x, y)

    bins = []
    for rows in np.array_split(np.argsort(x, kind="stable"), BINS):
        if len(rows) > 0:
            bins.append((float(x[rows].mean()), float(y[rows].mean())))
    interval = None
    if again is not None:
        interval = _interval(again)
    return Line(
        strategies=strategies,
        slope=slope,
        intercept=intercept,
        interval=interval,
        points=len(x),
        bins=tuple(bins),
    )


def _interval(draws: Floats) -> Interval:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), LEVEL)
