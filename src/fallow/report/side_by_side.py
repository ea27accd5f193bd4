"""Several studies on one page: their names, and a table with studies as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from fallow.report.blocks import NOTHING, Block, Blocks, Note, Table
from fallow.report.costs import set_words
from fallow.report.final_table import FinalTable, Row, final_table, with_interval
from fallow.report.regression import excess_across
from fallow.report.render import Article, parts_of
from fallow.report.section import Across
from fallow.settings.config import OUTSIDE
from fallow.study.records import Measure, StudyManifest, StudyRecords

MAX_NAMED = 2
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
    values: dict[str, set[str | None]] = {}  # by setting
    settings = list(map(_settings, alike))
    for key in dict.fromkeys(chain.from_iterable(settings)):
        values[key] = {of_study.get(key) for of_study in settings}
    differing = [key for key, of_studies in values.items() if len(of_studies) > 1]
    if len(differing) > MAX_NAMED:
        return ""
    own = _settings(study)
    return "".join(f", {key}={own.get(key, 'none')}" for key in differing)


def _settings(study: StudyManifest) -> dict[str, str]:
    """Return the settings of a run as text. A class and each of its fields are separate."""
    words: dict[str, str] = {}
    for key, value in study.config.items():
        if key in OUTSIDE:
            continue
        if isinstance(value, Mapping) and value.keys() == {"name", "fields"}:
            value = {"": value["name"], **value["fields"]}
        for name, text in set_words(key, value):
            words[name.rstrip(".")] = text
    return words


@dataclass(frozen=True)
class StudyColumn:
    """A study and its final table, by the name of each row."""

    name: str
    final: FinalTable

    @property
    def rows(self) -> dict[str, Row]:
        """Return label -> row, with separate names for upper bounds."""
        return {row.label: row for row in self.final.rows if row.score}


def side_by_side(studies: Sequence[StudyRecords], key: str) -> list[tuple[str, Blocks]]:
    """Return a table of studies with the same measure, for strategies that two or more
    share.
    """
    by_measure: dict[Measure, list[StudyColumn]] = {}
    for name, study in zip(names_of(studies), studies, strict=True):
        column = StudyColumn(name, final_table(study))
        by_measure.setdefault(study.measure, []).append(column)
    parts = []
    for columns in by_measure.values():
        blocks = _score_tables(columns)
        if blocks:
            parts.append(("Final scores side by side", blocks))
    return parts


def _score_tables(columns: Sequence[StudyColumn]) -> Blocks:
    """Return the scores of strategies in two or more columns, and their differences to the
    reference of each study.
    """
    shared = _shared_labels(columns)
    if not shared:
        return []
    columns = [column for column in columns if column.rows.keys() & set(shared)]
    scores = []
    gaps = []
    for label in shared:
        scores.append([label, *(_score(column, label) for column in columns)])
        differences = [_difference(column, label) for column in columns]
        if set(differences) != {NOTHING}:
            gaps.append([label, *differences])
    header = ["Strategy", *(column.name for column in columns)]
    caption = (
        f"Final {columns[0].final.measure.heading}, mean ± standard deviation over seeds"
    )
    stars = (
        "* marks the best mean of a study; a study without a mark is led by a strategy "
        "that is in no other study."
    )
    blocks: list[Block] = [Table(caption, header, scores), Note(stars)]
    if gaps:
        caption = "Minus the reference of the study, paired over seeds, with 95 % interval"
        references: dict[str, None] = {}  # a set that keeps its order
        for column in columns:
            if any(row.comparison for row in column.rows.values()):
                references[column.final.reference_label] = None
        text = (
            f"References: {', '.join(references)}. ≈ marks differences within chance (Holm p "
            "above 0.05)."
        )
        blocks += [Table(caption, header, gaps), Note(text)]
    return blocks


def _shared_labels(columns: Sequence[StudyColumn]) -> list[str]:
    """Return strategies of two or more studies, the best first by mean rank, then bounds."""
    ranks: dict[str, list[tuple[bool, int]]] = {}
    for column in columns:
        for rank, (label, row) in enumerate(column.rows.items()):
            ranks.setdefault(label, []).append((row.is_bound, rank))
    shared = [label for label, of_studies in ranks.items() if len(of_studies) > 1]

    def sort_key(label: str) -> tuple[bool, float]:
        are_bounds, places = zip(*ranks[label], strict=True)
        return any(are_bounds), fmean(places)

    return sorted(shared, key=sort_key)


def _score(column: StudyColumn, label: str) -> str:
    row = column.rows.get(label)
    if row is None or row.score is None:
        return NOTHING
    text = row.score.text(column.final.digits)
    best = next((row for row in column.rows.values() if not row.is_bound), None)
    if row is best:
        text += " *"
    return text


def _difference(column: StudyColumn, label: str) -> str:
    row = column.rows.get(label)
    if row is None or row.comparison is None:
        return NOTHING
    c = row.comparison
    shown = with_interval(c.difference, c.interval, column.final.digits)
    if not c.is_distinct:
        shown = f"≈ {shown}"
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
