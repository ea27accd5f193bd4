"""Several studies in one table, with strategies as rows and studies as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fallow.report.blocks import Blocks, Note, Table
from fallow.report.columns import NOTHING, with_interval
from fallow.report.final_table import FinalTable, Row, digits_of, final_table
from fallow.report.study_names import names_of
from fallow.study.records import StudyRecords

TITLE = "Final scores side by side"


@dataclass(frozen=True)
class StudyColumn:
    """A study and its final table, by the name of each row."""

    name: str
    study: StudyRecords
    final: FinalTable

    @property
    def rows(self) -> dict[str, Row]:
        """Return label -> row, with separate names for upper bounds."""
        return {row.label: row for row in self.final.rows if row.score}

    @property
    def best(self) -> str | None:
        """Return the strategy with the best mean."""
        for row in self.final.rows:  # the best first
            if row.score and not row.is_bound:
                return row.label
        return None


def side_by_side(studies: Sequence[StudyRecords], key: str) -> list[tuple[str, Blocks]]:
    """Return a table of studies with the same measure, for strategies that two or more
    share.
    """
    columns = []
    for name, study in zip(names_of(studies), studies, strict=True):
        columns.append(StudyColumn(name, study, final_table(study)))
    parts = []
    for measure in ("accuracy", "mse"):
        measured = [column for column in columns if column.study.measure == measure]
        blocks = _score_tables(measured)
        if blocks:
            parts.append((TITLE, blocks))
    return parts


def _score_tables(columns: Sequence[StudyColumn]) -> Blocks:
    """Return the scores of strategies in two or more columns, and their differences."""
    shared = _shared_labels(columns)
    if not shared:
        return []
    columns = [column for column in columns if column.rows.keys() & set(shared)]
    names = [column.name for column in columns]
    unit = columns[0].final.unit
    rows = []
    for label in shared:
        scores_of_label = [_score(column, label) for column in columns]
        rows.append([label, *scores_of_label])
    scores = Table(
        f"Final {unit}, mean ± standard deviation over seeds",
        header=["Strategy", *names],
        rows=rows,
    )
    gaps = _differences(columns, shared, names)
    stars = (
        "* marks the best mean of a study; a study without a mark is led by a strategy "
        "that is in no other study."
    )
    return [scores, Note(stars), *gaps]


def _shared_labels(columns: Sequence[StudyColumn]) -> list[str]:
    """Return strategies of two or more studies, the best first by mean rank, then bounds."""
    ranks: dict[str, list[int]] = {}
    bounds = set()
    for column in columns:
        for rank, (label, row) in enumerate(column.rows.items()):
            ranks.setdefault(label, []).append(rank)
            if row.is_bound:
                bounds.add(label)
    shared = [label for label, outcome in ranks.items() if len(outcome) > 1]

    def sort_key(label: str) -> tuple[bool, float]:
        return label in bounds, fmean(ranks[label])

    return sorted(shared, key=sort_key)


def _score(column: StudyColumn, label: str) -> str:
    row = column.rows.get(label)
    if row is None or row.score is None:
        return NOTHING
    text = row.score.text(column.final.digits)
    if label == column.best:
        return f"{text} *"
    return text


def _differences(
    columns: Sequence[StudyColumn], shared: Sequence[str], names: Sequence[str]
) -> Blocks:
    """Return each study's differences to its own reference, or nothing without tests."""
    rows = []
    for label in shared:
        cells = [_difference(column, label) for column in columns]
        if any(cell != NOTHING for cell in cells):
            rows.append([label, *cells])
    if not rows:
        return []
    references: dict[str, None] = {}  # distinct labels
    for column in columns:
        reference = column.final.row(column.final.reference or "")
        if reference is not None:
            references[reference.label] = None
    table = Table(
        "Minus the reference of the study, paired over seeds, with 95 % interval",
        header=["Strategy", *names],
        rows=rows,
    )
    text = (
        f"References: {', '.join(references)}. ≈ marks differences within chance (Holm p "
        "above 0.05)."
    )
    return [table, Note(text)]


def _difference(column: StudyColumn, label: str) -> str:
    row = column.rows.get(label)
    if row is None or row.comparison is None:
        return NOTHING
    c = row.comparison
    shown = with_interval(c.difference, c.interval, digits_of(column.study))
    if not c.is_distinct:
        return f"≈ {shown}"
    return shown
