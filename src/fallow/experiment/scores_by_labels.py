"""Points of a learning curve, from the test set, the evaluation set or leave-one-out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Literal, get_args

from fallow.experiment.audit import deviation_of
from fallow.experiment.curve import FEWEST, Point

if TYPE_CHECKING:
    from fallow.experiment.record import Record

Source = Literal["test", "audit", "left-out"]
"""Examples on which a score is measured."""
SOURCES: tuple[Source, ...] = get_args(Source)
WORDS: dict[Source, str] = {
    "test": "test examples",
    "audit": "the evaluation set",
    "left-out": "labeled examples (leave-one-out)",
}


def scores_of(records: Sequence[Record], source: Source) -> list[Point]:
    """Return the points of one run, one for each cycle with a score.

    If several rounds of a cycle count, their mean is used.
    """
    by_cycle: dict[int, list[Record]] = {}
    for record in records:
        if record.get("final", True):
            by_cycle.setdefault(record["cycle"], []).append(record)
    points = []
    for cycle in sorted(by_cycle):
        point = _score_of(by_cycle[cycle], source)
        if point is not None:
            points.append(point)
    return points


def mean_scores(runs: Iterable[Sequence[Record]], source: Source) -> list[Point]:
    """Return the mean points of several runs of one strategy, for cycles that all runs reached."""
    all_points = [scores_of(records, source) for records in runs]
    all_points = [points for points in all_points if points]
    if not all_points:
        return []
    cycles = min(len(points) for points in all_points)
    means = []
    for at in range(cycles):
        points = [points[at] for points in all_points]
        deviations = [point.deviation for point in points]
        deviation = None
        known = [sd for sd in deviations if sd is not None]
        if len(known) == len(points):
            deviation = math.sqrt(sum(sd**2 for sd in known)) / len(points)
        means.append(
            Point(
                labels=fmean(point.labels for point in points),
                error=fmean(point.error for point in points),
                deviation=deviation,
            )
        )
    return means


def choose_source(points: Mapping[Source, Sequence[Point]]) -> Source:
    """Return the default source of scores: the first in `SOURCES` with enough points."""
    for source in SOURCES:
        if len(points[source]) >= FEWEST:
            return source
    for source in SOURCES:
        if points[source]:
            return source
    return SOURCES[0]


def _score_of(records: Sequence[Record], source: Source) -> Point | None:
    """Return the score of a cycle from the records that count, or None.

    A model without any label is no point of a learning curve.
    """
    last = records[-1]
    bought = last.get("labeled")
    if not bought:
        return None
    labels = float(bought)
    is_classes = last.get("accuracy") is not None
    if source == "audit":
        audit = last.get("audit")
        if audit is None or audit["score"] is None or audit["high"] is None:
            return None
        error = audit["score"]
        if last.get("mse") is None:
            error = 1 - error
        deviation = deviation_of(audit, is_share=last.get("mse") is None)
        return Point(labels, error, deviation)
    if source == "left-out":
        left_out = last.get("left_out")
        if left_out is None:
            return None
        error = left_out
        if last.get("mse") is None:
            error = 1 - left_out
        return Point(labels, error)
    name: Literal["accuracy", "mse"] = "mse"
    if is_classes:
        name = "accuracy"
    scores = [record.get(name) for record in records]
    known = [score for score in scores if score is not None]
    if not known:
        return None
    error = fmean(known)
    if is_classes:
        error = 1 - error
    return Point(labels, error)
