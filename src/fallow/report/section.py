"""What a section of a report is, so that one is added in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from fallow.report.html import Html
from fallow.study.records import StudyRecords


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


@dataclass(frozen=True)
class Section:
    """A part of the article about one study.

    ``render(study, key)`` returns it, or None where the study has nothing of the kind; ``key``
    starts every id in it, so that articles can share a page.
    """

    title: str
    place: Place
    render: Callable[[StudyRecords, str], Html | None]


@dataclass(frozen=True)
class Across:
    """A part of the article over several studies.

    ``replaces`` names a section that the studies which ``covers`` returns need not show again.
    """

    title: str
    render: Callable[[Sequence[StudyRecords], str], Sequence[Html]]
    replaces: str = ""
    covers: Callable[[Sequence[StudyRecords]], Sequence[StudyRecords]] = lambda studies: ()
