"""Stopping criterion of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fallow.experiment.curve import FEWEST, fit_curve
from fallow.experiment.finished import FinishedStop
from fallow.experiment.scores_by_labels import (
    SOURCES,
    WORDS,
    choose_source,
    scores_of,
)
from fallow.settings.stopping import StopRule

if TYPE_CHECKING:
    from fallow.experiment.record import Record


def decide_stop(rule: StopRule, records: Sequence[Record]) -> FinishedStop:
    """Decide whether a run stops after its latest score, and give the reason.

    ``records`` are those of the run up to the last trained cycle.

    Notes
    -----
    Scores are those on the test set if at least `FEWEST` cycles have one, otherwise those on the
    evaluation set, otherwise leave-one-out scores.  The decision uses the expected learning curve
    without the noise of the next model, since a criterion with this noise would never be met.
    """
    points = {source: scores_of(records, source) for source in SOURCES}
    source = choose_source(points)
    known = len({point.labels for point in points[source]})
    if known < FEWEST:
        why = f"{known} scores so far, and a forecast needs {FEWEST}"
        return {"is_over": False, "chance": None, "why": why}
    chance = fit_curve(points[source]).chance_of_less(rule.more, rule.gain)
    output = (
        f"another {rule.more} labels bring less than {100 * rule.gain:g} points with "
        f"{100 * chance:.0f} % confidence, by {len(points[source])} scores on {WORDS[source]} "
        f"up to {points[source][-1].labels:.0f} labels"
    )
    is_over = chance >= rule.confidence
    wanted = f"{100 * rule.confidence:g} %"
    why = f"{output}; the criterion is {wanted}"
    return {"is_over": is_over, "chance": chance, "why": why}
