"""AHFAL's Finding 1 (Figure 2): benefit of the global model by heterogeneity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fallow.study.records import StudyRecords
from fallow.study.statistics import Interval, t_interval
from fallow_papers.ahfal.families import Family, members
from fallow_papers.sweeps import alpha_of


@dataclass(frozen=True)
class Point:
    """Mean over seeds of (mean of a family - mean of the local-only family), in points."""

    alpha: float
    difference: float
    interval: Interval | None  # Student, over seeds; None below two
    seeds: int

    @property
    def errors(self) -> tuple[float, float]:
        """Return the distances of the interval bounds from the difference; 0 without an
        interval.
        """
        if self.interval is None:
            return 0.0, 0.0
        return self.difference - self.interval.low, self.interval.high - self.difference


@dataclass(frozen=True)
class Tradeoff:
    """Points of a sweep for each family that reads the global model, and its members."""

    points: Mapping[Family, tuple[Point, ...]]
    members: Mapping[Family, tuple[str, ...]]


def tradeoff(sweep: Sequence[StudyRecords]) -> Tradeoff | None:
    """Compare families with the local-only one at each alpha.

    Return ``None`` with fewer than two families, and for errors, because the families are
    about classes.
    """
    strategies_of = members(sweep)
    if (
        "local" not in strategies_of
        or len(strategies_of) < 2
        or not sweep[0].measure.is_percent
    ):
        return None
    points: dict[Family, tuple[Point, ...]] = {}
    for kind in strategies_of:
        if kind == "local":
            continue
        result = [
            _point(study, strategies_of[kind], strategies_of["local"]) for study in sweep
        ]
        points[kind] = tuple(point for point in result if point is not None)
    if all(len(of_kind) < 2 for of_kind in points.values()):  # a line has two points
        return None
    return Tradeoff(points, strategies_of)


def _point(study: StudyRecords, ours: Sequence[str], theirs: Sequence[str]) -> Point | None:
    """Return the point of one alpha, over the seeds with final scores of all strategies."""
    alpha = alpha_of(study)
    final = {strategy: study.final(strategy) for strategy in (*ours, *theirs)}
    seeds = set.intersection(*(set(scores) for scores in final.values()))
    if not seeds or alpha is None:
        return None

    gaps = []
    for seed in sorted(seeds):
        of_ours = fmean(final[strategy][seed] for strategy in ours)
        of_theirs = fmean(final[strategy][seed] for strategy in theirs)
        gaps.append(100 * (of_ours - of_theirs))
    interval = None
    if len(gaps) > 1:
        interval = t_interval(gaps)
    return Point(alpha, difference=fmean(gaps), interval=interval, seeds=len(gaps))
