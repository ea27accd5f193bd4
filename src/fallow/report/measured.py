"""Report section on the measurements of the setting ``measure``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from fallow.core.build import find
from fallow.measurements import named
from fallow.measurements.base import IntervalScores, NamedMeasurement
from fallow.report.blocks import Block, Blocks, Cells, Note, Table
from fallow.report.final_table import label_of, rank_strategies
from fallow.report.metrics import describe_metric
from fallow.study.names import heading
from fallow.study.records import StudyRecords

COLUMNS = (
    "Mean ± standard deviation over seeds, and the mean of the 95 % intervals of the runs."
)


def has_measured(study: StudyRecords) -> bool:
    """Return whether a run has values of a measurement."""
    return any("measured" in cell.last for cell in study.cells)


def measured(study: StudyRecords, key: str) -> Blocks:
    """Return a table for each measurement: a row for each strategy, a column for each value."""
    blocks: list[Block] = []
    for measurement in list_measured(study):
        rows: list[Cells] = []
        for strategy in rank_strategies(study):
            seeds = list(read_measured(study, strategy, measurement.name))
            titles = dict.fromkeys(title for scores in seeds for title in scores)
            cells: dict[str, str | None] = {
                heading(study.study): label_of(strategy, study.study)
            }
            for title in titles:
                known = [
                    scores[title] for scores in seeds if scores[title]["value"] is not None
                ]
                cells[title.capitalize()] = describe_metric(known)
            rows.append(cells)
        blocks.append(Table.of(measurement.title, rows))
        blocks.append(Note(f"{measurement.note} {COLUMNS}"))
    return blocks


def list_measured(study: StudyRecords) -> list[NamedMeasurement]:
    """Return the measurements with values in the last records."""
    names: dict[str, None] = {}
    for cell in study.cells:
        names |= dict.fromkeys(cell.last.get("measured", {}))
    return [find(named, name)() for name in names]


def read_measured(
    study: StudyRecords, strategy: str, name: str
) -> Iterator[dict[str, IntervalScores]]:
    """Yield the values of a measurement in the last record of each seed."""
    for cell in study.of(strategy):
        scores = cell.last.get("measured", {}).get(name)
        if scores is not None:
            yield scores


def describe_measured(study: StudyRecords, strategy: str) -> Iterator[str]:
    """Yield a sentence about each measurement of a strategy: means over seeds."""
    for measurement in list_measured(study):
        seeds = list(read_measured(study, strategy, measurement.name))
        if not seeds:
            continue
        means = {title: _average([scores[title] for scores in seeds]) for title in seeds[0]}
        for line in measurement.describe(means, ()):
            yield f"{line}."


def _average(scores: Sequence[IntervalScores]) -> IntervalScores:
    """Return the means of values and bounds, None where a seed has none."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None

    return {
        "value": mean([item["value"] for item in scores]),
        "low": mean([item["low"] for item in scores]),
        "high": mean([item["high"] for item in scores]),
    }
