"""The article over all studies of a page: what they show together."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.report.html import Html, el
from fallow.report.section import Across
from fallow.study.records import StudyRecords


def across(
    studies: Sequence[StudyRecords], key: str, sections: Sequence[Across]
) -> Html | None:
    """The article over all studies; nothing when no two of them belong together."""
    parts = [part for section in sections for part in section.render(studies, key)]
    return el("article", el("h2", "Across studies"), *parts, id=key) if parts else None
