"""Report section on the additional metrics of a study (setting ``metrics``)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from fallow.core.wording import join_some
from fallow.engine.score_metrics import find_metric
from fallow.report.blocks import Block, Blocks, Cells, Note, Table, show_figure
from fallow.report.by_class import name_outcome
from fallow.report.final_table import label_of, number, rank_strategies, spread_of
from fallow.study.names import heading
from fallow.study.records import StudyRecords

if TYPE_CHECKING:
    from fallow.measurements.base import IntervalScores
    from fallow.measurements.metrics import MetricScores

DIGITS = 3
CALIBRATION = "calibration-error"
RELIABILITY = (
    "Each mark is a tenth of the range of predicted probabilities: mean probability, and share "
    "of examples that have the {one}, over all {all} and seeds. Below the diagonal, a {one} is "
    "less frequent than predicted."
)
INTERVALS = (
    "The value of a run is the mean over {all}, over all test examples of all sites. Each cell "
    "has the mean ± standard deviation over seeds, and the mean of the 95 % intervals of the runs, "
    "by bootstrap over test examples. An interval of a perfect value has no width."
)
NUMBERS = (
    "Each cell has the mean ± standard deviation over seeds, and the mean of the 95 % intervals of "
    "the runs over test examples (delta method)."
)


def has_metrics(study: StudyRecords) -> bool:
    """Return whether the study has additional metrics."""
    return bool(study.study.config.get("metrics"))


def metrics(study: StudyRecords, key: str) -> Blocks:
    """Return the table of metrics, and the reliability diagram if there is one."""
    rows: list[Cells] = []
    for strategy in rank_strategies(study):
        cells: dict[str, str | None] = {
            heading(study.study): label_of(strategy, study.study)
        }
        for name in study.study.config["metrics"]:
            seeds = read_metric(study, strategy, name)
            cells[find_metric(name).title] = describe_metric(seeds)
        rows.append(cells)
    blocks: list[Block] = [Table.of("Metrics after the last cycle", rows)]
    one, several = name_outcome(study)
    from fallow.report.figures.reliability import draw_reliability  # needs matplotlib

    points = {
        strategy: pool_groups(read_metric(study, strategy, CALIBRATION))
        for strategy in study.strategies
    }
    figure = draw_reliability(study, points)
    if figure is not None:
        labels = [label_of(strategy, study.study) for strategy in study.strategies]
        alt = f"Reliability diagram of {join_some(labels)}."
        caption = RELIABILITY.format(one=one, all=several)
        blocks.append(show_figure(figure, f"{key}-reliability", caption, alt=alt))
    if study.is_regression:
        return [*blocks, Note(NUMBERS)]
    return [*blocks, Note(INTERVALS.format(all=several))]


def read_metric(study: StudyRecords, strategy: str, name: str) -> list[MetricScores]:
    """Return the values of a metric in the last record of each seed."""
    result = []
    for cell in study.of(strategy):
        if cell.records and cell.cycles[-1] == study.last_cycle(strategy):
            scores = cell.records[-1].get("metrics", {}).get(name)
            if scores is not None and scores["value"] is not None:
                result.append(scores)
    return result


def describe_metric(seeds: Sequence[MetricScores | IntervalScores]) -> str | None:
    """Return mean ± sd over seeds, with the mean interval."""
    if not seeds:
        return None
    text = spread_of([scores["value"] or 0.0 for scores in seeds]).text(DIGITS)
    lows = [scores["low"] for scores in seeds if scores["low"] is not None]
    highs = [scores["high"] for scores in seeds if scores["high"] is not None]
    if lows and highs:
        low = number(fmean(lows), DIGITS)
        text += f" [{low}, {number(fmean(highs), DIGITS)}]"
    return text


def pool_groups(seeds: Sequence[MetricScores]) -> list[tuple[float, float]]:
    """Return mean probability and share of the class of each group, over classes and seeds."""
    sums = np.zeros((10, 3))
    for scores in seeds:
        for diagram in scores.get("reliability", []):
            for mean, share, rows in diagram:
                group = min(int(mean * 10), 9)
                sums[group] += (rows * mean, rows * share, rows)
    return [(mean / n, share / n) for mean, share, n in sums.tolist() if n]
