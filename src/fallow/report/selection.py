"""Report section of a study without training: how well selected examples cover all."""

from __future__ import annotations

from statistics import fmean

from fallow.experiment.record import Record
from fallow.report.blocks import Blocks, Cells, Note, Table
from fallow.report.final_table import label_of, rank_strategies, spread_of
from fallow.study.names import heading
from fallow.study.records import DISTANCE, StudyRecords

DIGITS = 3
MEANING = (
    "Distance is the sum over all examples of the squared distance to the nearest selected one of "
    "their site, in units of the sum of squared distances to the mean of the site: 1 without "
    "selected examples, 0 if each example equals a selected one. Random selections have as many "
    "examples, and are the mean of five draws at each site."
)
CLASSES = " Classes are those with a selected example."


def has_selections(study: StudyRecords) -> bool:
    """Return whether the study selects examples and trains nothing."""
    return study.measure == DISTANCE


def selection(study: StudyRecords, key: str) -> Blocks:
    """Return the distances of each strategy beside those of random selections."""
    rows: list[Cells] = []
    note = MEANING
    for strategy in rank_strategies(study):
        last = [cell.last for cell in study.of(strategy) if cell.records]
        distances = [record.get("distance") or 0.0 for record in last]
        at_random = [record.get("random_distance") or 0.0 for record in last]
        cells: dict[str, str | None] = {
            heading(study.study): label_of(strategy, study.study),
            "Selected": f"{fmean(record.get('labeled') or 0 for record in last):,.0f}",
            "Distance": spread_of(distances).text(DIGITS),
            "Random selections": spread_of(at_random).text(DIGITS),
        }
        classes = [count_classes(record) for record in last]
        known = [count for count in classes if count is not None]
        if known:
            cells["Classes"] = f"{fmean(known):.1f}"
            note = MEANING + CLASSES
        rows.append(cells)
    return [Table.of("Selected examples after the last cycle", rows), Note(note)]


def count_classes(record: Record) -> int | None:
    """Return the number of classes with a selected example; None if there are no classes."""
    counts = record.get("labeled_per_class") or []
    return sum(count > 0 for count in counts) if len(counts) > 1 else None
