"""AHFAL's Finding 1 (Figure 2): whether the global model helps depends on how alike sites are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fallow.papers.ahfal.families import Family, members
from fallow.report.findings.sweeps import alpha_of
from fallow.study.records import StudyRecords
from fallow.study.statistics import Interval, t_interval


@dataclass(frozen=True)
class Point:
    """Mean over seeds of (mean of a family - mean of the local-only family), in points."""

    alpha: float
    difference: float
    interval: Interval | None  # Student, over seeds; None below two
    seeds: int


@dataclass(frozen=True)
class Tradeoff:
    """The points of a sweep for each family that reads the global model, and who is in them."""

    points: Mapping[Family, tuple[Point, ...]]
    members: Mapping[Family, tuple[str, ...]]


def tradeoff(sweep: Sequence[StudyRecords]) -> Tradeoff | None:
    """Families against the local-only one at each alpha; ``None`` when there are not two, or where
    errors are scored: the families are about classes."""
    who = members(sweep)
    if "local" not in who or len(who) < 2 or sweep[0].measure != "accuracy":
        return None
    points: dict[Family, tuple[Point, ...]] = {}
    for kind in who:
        if kind != "local":
            found = [_point(study, who[kind], who["local"]) for study in sweep]
            points[kind] = tuple(p for p in found if p)
    return Tradeoff(points, who) if any(len(p) > 1 for p in points.values()) else None


def _point(study: StudyRecords, ours: Sequence[str], theirs: Sequence[str]) -> Point | None:
    """One alpha, over the seeds for which every strategy has a final score."""
    alpha, final = alpha_of(study), {q: study.final(q) for q in (*ours, *theirs)}
    seeds = sorted(set.intersection(*(set(scores) for scores in final.values())))
    gaps = [
        100 * (fmean(final[q][k] for q in ours) - fmean(final[q][k] for q in theirs))
        for k in seeds
    ]
    if not gaps or alpha is None:
        return None
    return Point(alpha, fmean(gaps), t_interval(gaps) if len(gaps) > 1 else None, len(gaps))
