"""The article over all studies of a page: what they show together."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.report.beside import side_by_side
from fallow.report.render import Article, parts_of
from fallow.report.section import Across
from fallow.study.records import StudyRecords

GENERAL = (Across(side_by_side),)


def across(
    studies: Sequence[StudyRecords], key: str, sections: Sequence[Across] = ()
) -> Article | None:
    """The article over all studies; nothing when no two of them belong together."""
    found = [
        part for section in (*GENERAL, *sections) for part in section.render(studies, key)
    ]
    parts = parts_of(key, found)
    return Article(key, "Across studies", parts=parts) if parts else None
