"""AHFAL's Finding 2 (Figure 3): accuracy of a class against how unevenly sites hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fallow.core.streams import seed_of
from fallow.experiment.metrics_counts import count_variation
from fallow.papers.ahfal.families import Family, members
from fallow.study.by_class import class_accuracies
from fallow.study.records import StudyRecords
from fallow.study.statistics import Interval

DRAWS = 2000
"""Bootstrap draws."""

LEVEL = 0.95
"""Of an interval."""

FEWEST = 5
"""Fewer runs than this are not drawn from."""

BINS = 6
"""Means that show how straight a line is."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """The least-squares line of one family: accuracy in per cent against CV_c."""

    queries: tuple[str, ...]
    slope: float
    intercept: float
    interval: (
        Interval | None
    )  # of the slope, over runs drawn again; None for fewer than five
    points: int
    bins: tuple[
        tuple[float, float], ...
    ]  # mean CV_c and mean accuracy of equally many points


@dataclass(frozen=True)
class Slopes:
    """The lines of two families or more.  ``steeper``: slope minus the local-only family's, with
    its interval, for each other family."""

    lines: dict[Family, Line]
    steeper: dict[Family, tuple[float, Interval | None]]
    runs: int  # (study, seed) pairs


def least_squares(x: Floats, y: Floats) -> tuple[float, float]:
    """Slope and intercept.

    >>> least_squares(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    (2.0, 1.0)
    """
    slope = _slope(_sums(x, y)[None])[0]
    return float(slope), float(y.mean() - slope * x.mean())


def _sums(x: Floats, y: Floats) -> Floats:
    """What a slope needs of its points: sums over runs are sums of these."""
    return np.array([len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum()])


def _slope(sums: Floats) -> Floats:
    """(B, 5) -> (B,); 0 where x never varies."""
    n, x, y, xx, xy = sums.T
    spread = n * xx - x * x
    varies = spread > 1e-12 * n * xx
    slope: Floats = np.divide(
        n * xy - x * y, spread, out=np.zeros_like(spread), where=varies
    )
    return slope


def slopes(studies: Sequence[StudyRecords]) -> Slopes | None:
    """Lines over all classes, strategies, seeds and studies; ``None`` without two families.

    CV_c is the coefficient of variation of a class's counts over the sites of the seed's own
    partition; a class that no site holds, or that has no test row, is no point.  Intervals are
    percentiles of slopes over runs (study, seed) drawn again with replacement, the same runs for
    every family: the classes of one run are not independent.
    """
    who = members(studies)
    if "local" not in who or len(who) < 2:
        return None
    runs = [
        run
        for study in studies
        for seed in sorted(study.partitions)
        if (run := _run(study, seed, who))
    ]
    if not runs:
        return None
    sums = {kind: np.stack([_sums(*run[kind]) for run in runs]) for kind in who}
    drawn = _drawn(len(runs))
    again = (
        {kind: _slope(s[drawn].sum(1)) for kind, s in sums.items()} if len(drawn) else {}
    )
    lines = {
        kind: _line(who[kind], [r[kind] for r in runs], again.get(kind)) for kind in who
    }
    steeper: dict[Family, tuple[float, Interval | None]] = {
        kind: (
            line.slope - lines["local"].slope,
            _interval(again[kind] - again["local"]) if again else None,
        )
        for kind, line in lines.items()
        if kind != "local"
    }
    return Slopes(lines, steeper, len(runs))


def _drawn(runs: int) -> NDArray[np.int64]:
    """(B, runs) numbers of runs, drawn with replacement; the same for the same number of runs."""
    if runs < FEWEST:
        return np.empty((0, runs), dtype=np.int64)
    gen = np.random.default_rng(seed_of(0, "bootstrap", runs))
    return gen.integers(0, runs, (DRAWS, runs))


def _run(
    study: StudyRecords, seed: int, who: dict[Family, tuple[str, ...]]
) -> dict[Family, tuple[Floats, Floats]] | None:
    """The points of one seed of one study: CV_c and accuracy in per cent, by family."""
    cv = count_variation(study.partitions[seed].matrix)
    found: dict[Family, tuple[Floats, Floats]] = {}
    for kind, queries in who.items():
        scored = [class_accuracies(study, q).get(seed) for q in queries]
        if any(s is None for s in scored):
            return None  # families are compared on the same runs
        spreads: list[float] = []
        accuracies: list[float] = []
        for of_query in scored:
            for v, a in zip(cv, of_query or (), strict=True):
                if v is not None and a is not None:
                    spreads.append(v)
                    accuracies.append(100 * a)
        found[kind] = (np.array(spreads), np.array(accuracies))
    return found


def _line(
    queries: tuple[str, ...], runs: Sequence[tuple[Floats, Floats]], again: Floats | None
) -> Line:
    x, y = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
    slope, intercept = least_squares(x, y)
    interval = None if again is None else _interval(again)
    parts = np.array_split(np.argsort(x, kind="stable"), BINS)
    bins = tuple((float(x[at].mean()), float(y[at].mean())) for at in parts if len(at))
    return Line(queries, slope, intercept, interval, len(x), bins)


def _interval(draws: Floats) -> Interval:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), LEVEL)
