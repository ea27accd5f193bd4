"""Several studies on one page: their names, and a table with studies as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fallow.report.blocks import Blocks, Note, Table
from fallow.report.columns import NOTHING, with_interval
from fallow.report.costs import set_words
from fallow.report.excess import excess_across
from fallow.report.final_table import FinalTable, Row, digits_of, final_table
from fallow.report.render import Article, parts_of
from fallow.report.section import Across
from fallow.settings.recipe import OUTSIDE
from fallow.study.records import StudyManifest, StudyRecords

MOST = 2
"""Maximum number of settings that are named."""


def names_of(studies: Sequence[StudyRecords]) -> list[str]:
    """Return a unique name for each study.

    Studies with equal names are named by the settings in which they differ. They are
    numbered if they differ in none, or in too many.
    """
    names = []
    for study in studies:
        name = study.study.name
        alike = [other.study for other in studies if other.study.name == name]
        names.append(f"{name}{_differing_settings(study.study, alike)}")

    numbered = []
    for at, name in enumerate(names):
        if names.count(name) > 1:
            number = names[: at + 1].count(name)
            name = f"{name} ({number})"
        numbered.append(name)
    return numbered


def _differing_settings(study: StudyManifest, alike: Sequence[StudyManifest]) -> str:
    """Return the settings that distinguish a study, such as ``, partition.alpha=0.1``.

    Return "" if there are none or too many.
    """
    settings = [_settings(other) for other in alike]
    keys: dict[str, None] = {}  # a set that keeps its order
    for of_study in settings:
        keys |= dict.fromkeys(of_study)
    differing = []
    for key in keys:
        values = {of_study.get(key) for of_study in settings}
        if len(values) > 1:
            differing.append(key)
    if not differing or len(differing) > MOST:
        return ""
    own = _settings(study)
    return "".join(f", {key}={own.get(key, 'none')}" for key in differing)


def _settings(study: StudyManifest) -> dict[str, str]:
    """Return the settings of a run as text. A class and each of its fields are separate."""
    words: dict[str, str] = {}
    for key, value in study.recipe.items():
        if key in OUTSIDE:
            continue
        if isinstance(value, Mapping) and value.keys() == {"name", "fields"}:
            value = {"": value["name"], **value["fields"]}
        for name, text in set_words(key, value):
            words[name.rstrip(".")] = text
    return words


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
    for measure in dict.fromkeys(study.measure for study in studies):
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


GENERAL = (Across(side_by_side), Across(excess_across))


def across(
    studies: Sequence[StudyRecords], key: str, sections: Sequence[Across] = ()
) -> Article | None:
    """Return the article about all studies, or None if no two of them are comparable."""
    outcome: list[tuple[str, Blocks]] = []
    for section in (*GENERAL, *sections):
        outcome += section.render(studies, key)
    parts = parts_of(key, outcome)
    if not parts:
        return None
    return Article(key, "Across studies", parts=parts)
