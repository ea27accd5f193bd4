"""The cycles at which a long run is looked at, and scores at equal numbers of labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fallow.study.records import StudyRecords


def marks(cycles: Sequence[int], most: int) -> tuple[int, ...]:
    """The cycles at 1/most, 2/most, ..., all of the way to the last one; fewer if there are fewer.

    cycles: ascending.  Cycle 0, before any query, is none unless it is the only one.

    >>> marks(range(301), 10)
    (30, 60, 90, 120, 150, 180, 210, 240, 270, 300)
    >>> marks([0, 1, 2], 10)
    (1, 2)
    """
    after = [c for c in cycles if c > 0] or list(cycles)
    if not after:
        return ()
    wanted = [after[-1] * k / most for k in range(1, most + 1)]
    return tuple(sorted({min(after, key=lambda c: abs(c - w)) for w in wanted}))


def checkpoints(study: StudyRecords, most: int) -> tuple[int, ...]:
    """The marks among the cycles that every strategy with a final score has."""
    curves = [set(study.curve(q)) for q in study.strategies if study.final(q)]
    return marks(sorted(set.intersection(*curves)), most) if curves else ()


def is_even(study: StudyRecords) -> bool:
    """Whether all strategies have bought as many labels at the checkpoints (to within one)."""
    for cycle in checkpoints(study, 10):
        bought = [
            n for q in study.strategies if (n := study.labels(q).get(cycle)) is not None
        ]
        if bought and max(bought) - min(bought) > 1:
            return False
    return True


def at_labels(study: StudyRecords, query: str, labels: float) -> dict[int, float]:
    """Seed -> score where the learning curve, joined linearly, has so many labels.

    Only seeds with the whole curve; empty where the curve does not reach.
    """
    curve, x = study.curve(query), study.labels(query)
    at = [x[c] for c in curve if c in x]
    if len(at) != len(curve) or not at or not at[0] <= labels <= at[-1]:
        return {}
    whole = set.intersection(*(set(scores) for scores in curve.values()))
    return {
        k: float(np.interp(labels, at, [s[k] for s in curve.values()]))
        for k in sorted(whole)
    }
