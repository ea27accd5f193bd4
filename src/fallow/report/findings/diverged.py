"""Runs with a diverged model: an error far above that of predicting the mean."""

from __future__ import annotations

from collections.abc import Mapping

from fallow.experiment.record import Record
from fallow.study.records import RunRecords, StudyRecords

FAR = 10.0
"""Ten times the variance of the training targets."""


def has_diverged(row: Record) -> bool:
    """Return whether a record reports divergence, or its error implies it (in target
    variances).
    """
    if row.get("diverged"):
        return True
    error = row.get("mse")
    if error is None or not row.get("final"):
        return False
    is_scaled = row.get("target_variance") is not None
    return is_scaled and not error <= FAR  # NaN counts as diverged, too


def _first_cycle(cell: RunRecords) -> int | None:
    """Return the first cycle in which the run diverged, or None."""
    for row in cell.records:
        if has_diverged(row):
            return int(row["cycle"])
    return None


def find_diverged(study: StudyRecords) -> Mapping[str, Mapping[int, int]]:
    """Return strategy -> seed -> first cycle in which the run diverged, for diverged runs."""
    diverged: dict[str, dict[int, int]] = {}
    for cell in study.cells:
        cycle = _first_cycle(cell)
        if cycle is not None:
            diverged.setdefault(cell.strategy, {})[cell.seed] = cycle
    return diverged


def ends_diverged(study: StudyRecords, strategy: str) -> bool:
    """Return whether a seed of the strategy has no usable model at its end."""
    rows = (cell.records[-1] for cell in study.of(strategy) if cell.records)
    return any(has_diverged(row) for row in rows)


def has_diverged_at(study: StudyRecords, strategy: str, cycle: int) -> bool:
    """Return whether a seed of the strategy has no usable model in this cycle."""
    rows = (cell.last_of(cycle) for cell in study.of(strategy))
    return any(has_diverged(row) for row in rows if row)
