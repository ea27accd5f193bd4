"""Section of a page that compares all its studies."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.report.blocks import Blocks
from fallow.report.excess import excess_across
from fallow.report.render import Article, parts_of
from fallow.report.section import Across
from fallow.report.side_by_side import side_by_side
from fallow.study.records import StudyRecords

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
