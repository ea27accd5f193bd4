"""Cycles at which a long run is evaluated, and scores at equal numbers of labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fallow.study.records import StudyRecords


def marks(cycles: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return the cycles at 1/most, 2/most, ..., all of the run; fewer if the run has fewer
    cycles.

    cycles: ascending.  Cycle 0, before any query, is excluded unless it is the only one.

    >>> marks(range(301), 10)
    (30, 60, 90, 120, 150, 180, 210, 240, 270, 300)
    >>> marks([0, 1, 2], 10)
    (1, 2)
    """
    after_queries = [cycle for cycle in cycles if cycle > 0] or list(cycles)
    if not after_queries:
        return ()

    nearest = set()
    for step in range(1, limit + 1):
        wanted = after_queries[-1] * step / limit
        distances = {cycle: abs(cycle - wanted) for cycle in after_queries}
        nearest.add(min(distances, key=distances.__getitem__))
    return tuple(sorted(nearest))


def checkpoints(study: StudyRecords, limit: int) -> tuple[int, ...]:
    """Return the marks among the cycles that every strategy with a final score has."""
    scored = [strategy for strategy in study.strategies if study.final(strategy)]
    if not scored:
        return ()
    cycles = [set(study.curve(strategy)) for strategy in scored]
    common = set.intersection(*cycles)
    return marks(sorted(common), limit)


def is_even(study: StudyRecords) -> bool:
    """Return whether all strategies have equal numbers of labels at the checkpoints (up to
    one).
    """
    labels = [study.labels(strategy) for strategy in study.strategies]
    for cycle in checkpoints(study, 10):
        bought = [by_cycle[cycle] for by_cycle in labels if cycle in by_cycle]
        if bought and max(bought) - min(bought) > 1:
            return False
    return True


def at_labels(study: StudyRecords, strategy: str, labels: float) -> dict[int, float]:
    """Return seed -> score at a number of labels, interpolated linearly on the learning
    curve.

    Only seeds with the whole curve count. The result is empty if the curve is too short.
    """
    curve = study.curve(strategy)
    bought = study.labels(strategy)
    if not curve or not curve.keys() <= bought.keys():
        return {}
    x = [bought[cycle] for cycle in curve]
    if not x[0] <= labels <= x[-1]:
        return {}

    seeds_of_cycles = [set(scores) for scores in curve.values()]
    result = {}
    for seed in sorted(set.intersection(*seeds_of_cycles)):
        y = [scores[seed] for scores in curve.values()]
        result[seed] = float(np.interp(labels, x, y))
    return result
