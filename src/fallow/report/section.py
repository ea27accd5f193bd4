"""What a section of a report is, so that one is added in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from fallow.study.records import StudyRecords

if TYPE_CHECKING:  # blocks draw, and who lists recipes need not load what draws
    from fallow.report.blocks import Blocks


class Place(IntEnum):
    """Where a section stands, in the order a reader asks; sections of one place keep their order,
    those of the report before those of papers."""

    STATE = 0  # how a run at real sites stands
    CURVES = 10
    SCORES = 20
    SITES = 30  # one model per site
    ERRORS = 40  # numbers to predict
    COSTS = 50
    CLASSES = 60
    FINDINGS = 70  # pairs that differ in one thing, and what papers conclude
    RUN = 80  # what left the sites, and how it was run


def always(study: StudyRecords) -> bool:
    """Every study has what the section needs."""
    return True


@dataclass(frozen=True)
class Section:
    """A part of the article about one study.

    ``needs`` says whether it is for studies of this kind at all.  ``render(study, key)`` returns its
    blocks, none where the study has nothing to show; ``key`` starts every id in them, so that
    articles can share a page.
    """

    title: str
    place: Place
    render: Callable[[StudyRecords, str], Blocks]
    needs: Callable[[StudyRecords], bool] = always

    def blocks(self, study: StudyRecords, key: str) -> Blocks:
        """What the section shows of a study; nothing where it is for others."""
        if not self.needs(study):
            return ()
        return self.render(study, key)


def no_study(studies: Sequence[StudyRecords]) -> Sequence[StudyRecords]:
    """No study is covered."""
    return ()


@dataclass(frozen=True)
class Across:
    """A part of the article over several studies: titles and blocks, none where the studies have
    nothing in common.

    ``replaces`` names a section that the studies which ``covers`` returns need not show again.
    """

    render: Callable[[Sequence[StudyRecords], str], Sequence[tuple[str, Blocks]]]
    replaces: str = ""
    covers: Callable[[Sequence[StudyRecords]], Sequence[StudyRecords]] = no_study
