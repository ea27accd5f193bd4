"""Report section with the extrapolated learning curves, and the reasons of early stops."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from fallow.report.blocks import (
    NOTHING,
    Block,
    Blocks,
    Cells,
    Note,
    Paragraph,
    Table,
    show_figure,
)
from fallow.report.final_table import label_of, rank_strategies
from fallow.study.forecast import MORE, forecast_study
from fallow.study.names import heading
from fallow.study.records import StudyRecords

HOW = (
    "The error is modeled as a power of the number of labels plus a constant. Curves are "
    "weighted by their likelihood, so few or scattered scores give wide intervals (95 "
    "%). Extrapolation assumes that examples and annotators stay the same."
)
EVALUATED = (
    "Score on unlabeled examples, estimated from randomly drawn examples; with the 95 % "
    "interval, whose bounds are means over seeds."
)


def has_forecast(study: StudyRecords) -> bool:
    """Return whether a strategy bought labels, so that a forecast is possible."""
    return any(len(cell.cycles) > 1 for cell in study.cells)


def forecast(study: StudyRecords, key: str) -> Blocks:
    """Return forecasts for `MORE` further labels, evaluation sets and runs that ended early.

    The forecast of the best strategy is drawn.
    """
    from fallow.report.figures.study import draw_forecast  # needs matplotlib

    values = [one for one in forecast_study(study) if one.curve is not None]
    ranks = rank_strategies(study)
    values.sort(key=lambda one: ranks.index(one.strategy))
    rows: list[Cells] = []
    for one in values:
        sentence = " ".join(one.sentences(MORE))
        rows.append(
            {
                heading(study.study): label_of(one.strategy, study.study),
                "Forecast": sentence.removeprefix(f"Another {MORE:,.0f} labels: "),
            }
        )
    blocks: list[Block] = []
    if values:
        title = f"Expected scores with {MORE:.0f} more labels"
        blocks.append(Table.of(title, rows, words=2))
        figure = draw_forecast(values[0])
        name = label_of(values[0].strategy, study.study)
        caption = f"{name}: scores, and likely learning curves"
        if figure is not None:
            alt = f"{caption}. {' '.join(values[0].sentences())}"
            blocks.append(show_figure(figure, f"{key}-forecast", caption, alt=alt))
        blocks.append(Note(HOW))
    evaluation_sets = _evaluation_sets(study)
    if evaluation_sets is not None:
        blocks += [evaluation_sets, Note(EVALUATED)]
    return [*blocks, *map(Paragraph, list_stops(study))]


def list_stops(study: StudyRecords) -> Iterator[str]:
    """Describe which runs ended before their last cycle, and why, in one sentence each."""
    for cell in study.cells:
        for record in cell.records:
            if "stopped" in record:
                name = label_of(cell.strategy, study.study)
                yield (
                    f"{name} with seed {cell.seed} stopped after cycle {record['cycle']}: "
                    f"{record['stopped']}."
                )


def _evaluation_sets(study: StudyRecords) -> Table | None:
    """Return the table of evaluation sets: a row per strategy, a column per cycle."""
    caption = "Evaluation sets: accuracy on unlabeled examples, %"
    scale = 100.0
    digits = 1
    if study.is_regression:
        caption = "Evaluation sets: mean squared error on unlabeled examples"
        scale = 1.0
        digits = 3
    cycles = sorted(set[int]().union(*(cell.cycles for cell in study.cells)))
    rows: list[Cells] = []
    for strategy in study.study.strategies:
        cells: dict[str, str | None] = {
            heading(study.study): label_of(strategy, study.study)
        }
        for cycle in cycles:
            seeds = []
            for cell in study.of(strategy):
                row = cell.last_of(cycle)
                scores = row.get("evaluation_set") if row else None
                if scores is not None and scores["score"] is not None:
                    seeds.append([scores["score"], scores["low"], scores["high"]])
            texts = []
            for numbers in zip(*seeds, strict=True):
                known = [scale * number for number in numbers if number is not None]
                texts.append(NOTHING)
                if len(known) == len(seeds):  # a bound that all seeds have
                    texts[-1] = f"{fmean(known):.{digits}f}"
            cells[f"Cycle {cycle}"] = None
            if texts:
                cells[f"Cycle {cycle}"] = f"{texts[0]} [{texts[1]}, {texts[2]}]"
        if any(list(cells.values())[1:]):
            rows.append(cells)
    if not rows:
        return None
    return Table.of(caption, rows)


def describe_forecasts(study: StudyRecords) -> Iterator[str]:
    """Describe every forecast in one line, for a terminal."""
    for item in forecast_study(study):
        name = label_of(item.strategy, study.study)
        yield f"{name}: {' '.join(item.sentences())}"
