"""Report section with the extrapolated learning curves, and the reasons of early stops."""

from __future__ import annotations

from statistics import fmean

from fallow.report.blocks import Block, Blocks, Note, Paragraph, Table, show_figure
from fallow.report.columns import NOTHING
from fallow.report.figures.study import draw_forecast
from fallow.report.final_table import label_of, rank_strategies
from fallow.study.forecast import MORE, Forecast, forecast_study
from fallow.study.names import heading
from fallow.study.records import StudyRecords

FIGURES = 1
"""Number of strategies that are drawn, the best first. A table lists all."""
HOW = (
    "The error is modeled as a power of the number of labels plus a constant. Curves are "
    "weighted by their likelihood, so few or scattered scores give wide intervals (95 "
    "%). Extrapolation assumes that examples and annotators stay the same."
)
EVALUATED = (
    "Score on unlabeled examples, estimated from randomly drawn examples; with the 95 % "
    "interval, whose bounds are means over seeds."
)
Ends = tuple[float, float | None, float | None]
"""Score of an evaluation set, and the ends of its interval."""


def has_forecast(study: StudyRecords) -> bool:
    """Return whether a strategy bought labels, so that a forecast is possible."""
    return any(len(cell.cycles) > 1 for cell in study.cells)


def forecast(study: StudyRecords, key: str) -> Blocks:
    """Return forecasts for `MORE` further labels, evaluation sets and runs that ended early."""
    values = [one for one in forecast_study(study) if one.curve is not None]
    ranks = {strategy: at for at, strategy in enumerate(rank_strategies(study))}
    values.sort(key=lambda one: ranks[one.strategy])
    blocks: list[Block] = []
    if values:
        blocks.append(_table(study, values))
        for one in values[:FIGURES]:
            figure = draw_forecast(one)
            name = label_of(one.strategy, study.study)
            if figure is not None:
                output = " ".join(one.sentences())
                caption = f"{name}: scores, and likely learning curves"
                blocks.append(
                    show_figure(
                        figure, f"{key}-forecast", caption, alt=f"{caption}. {output}"
                    )
                )
        blocks.append(Note(HOW))
    evaluation_sets = _evaluation_sets(study)
    if evaluation_sets is not None:
        blocks += [evaluation_sets, Note(EVALUATED)]
    for line in list_stops(study):
        blocks.append(Paragraph(line))
    return blocks


def list_stops(study: StudyRecords) -> list[str]:
    """Describe which runs ended before their last cycle, and why, in one sentence each."""
    lines = []
    for cell in study.cells:
        for record in cell.records:
            if "stopped" not in record:
                continue
            name = label_of(cell.strategy, study.study)
            lines.append(
                f"{name} with seed {cell.seed} stopped after cycle {record['cycle']}: "
                f"{record['stopped']}."
            )
    return lines


def _table(study: StudyRecords, forecasts: list[Forecast]) -> Table:
    rows = []
    for item in forecasts:
        gain = item.gain(MORE)
        if gain is None:
            continue
        name = label_of(item.strategy, study.study)
        output = " ".join(item.sentences(MORE))
        rows.append([name, output.removeprefix(f"Another {MORE:,.0f} labels: ")])
    return Table(
        f"Expected scores with {MORE:.0f} more labels",
        header=[heading(study.study), "Forecast"],
        rows=rows,
        words=2,
    )


def _evaluation_sets(study: StudyRecords) -> Table | None:
    """Return the table of evaluation sets: a row per strategy, a column per cycle."""
    by_strategy: dict[str, dict[int, list[Ends]]] = {}
    for cell in study.cells:
        for record in cell.records:
            evaluation = record.get("evaluation_set")
            if evaluation is None or evaluation["score"] is None:
                continue
            of_strategy = by_strategy.setdefault(cell.strategy, {})
            ends = (evaluation["score"], evaluation["low"], evaluation["high"])
            of_strategy.setdefault(record["cycle"], []).append(ends)
    if not by_strategy:
        return None
    cycles = sorted(set().union(*by_strategy.values()))
    rows = []
    for strategy, result in by_strategy.items():
        row = [label_of(strategy, study.study)]
        for cycle in cycles:
            row.append(_describe_scores(study, result.get(cycle, [])))
        rows.append(row)
    names = [f"Cycle {cycle}" for cycle in cycles]
    caption = "Evaluation sets: accuracy on unlabeled examples, %"
    if study.is_regression:
        caption = "Evaluation sets: mean squared error on unlabeled examples"
    return Table(caption, header=[heading(study.study), *names], rows=rows)


def _describe_scores(study: StudyRecords, ends: list[Ends]) -> str:
    """Return means over seeds of scores, and of interval bounds that all seeds have."""
    if not ends:
        return NOTHING
    digits = 3 if study.is_regression else 1
    scale = 1.0 if study.is_regression else 100.0
    texts = []
    for values in zip(*ends, strict=True):
        known = [scale * value for value in values if value is not None]
        text = NOTHING
        if len(known) == len(ends):
            text = f"{fmean(known):.{digits}f}"
        texts.append(text)
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def describe_forecasts(study: StudyRecords) -> list[str]:
    """Describe every forecast in one line, for a terminal."""
    lines = []
    for item in forecast_study(study):
        name = label_of(item.strategy, study.study)
        lines.append(f"{name}: {' '.join(item.sentences())}")
    return lines
