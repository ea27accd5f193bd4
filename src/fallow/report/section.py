"""Sections of a report, and the studies to which they apply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from fallow.configs.papers import Paper
from fallow.report.blocks import Blocks
from fallow.report.live import read_live
from fallow.study.records import DISTANCE, StudyRecords


class SectionPosition(IntEnum):
    """Position of a section; sections with equal position keep their order, papers last."""

    STATE = 0  # state of a run at real sites
    CURVES = 10
    SCORES = 20
    SITES = 30  # one model per site
    ERRORS = 40  # regression
    CLASSES = 60
    FINDINGS = 70  # pairs that differ in one setting, and findings of papers
    RUN = 80  # disclosures, costs and settings of the run


def always(study: StudyRecords) -> bool:
    """Return True: the section applies to every study."""
    return True


def is_live(study: StudyRecords) -> bool:
    """Return whether the study is of real sites."""
    return read_live(study.path) is not None


def has_classes(study: StudyRecords) -> bool:
    """Return whether the task is classification."""
    return not study.is_regression


def has_class_scores(study: StudyRecords) -> bool:
    """Return whether models predict classes; nothing is predicted without training."""
    has_scores = has_classes(study) and study.measure != DISTANCE
    return has_scores and not study.study.labels


def has_label_scores(study: StudyRecords) -> bool:
    """Return whether models predict several labels of each example."""
    return has_classes(study) and bool(study.study.labels)


def has_numbers(study: StudyRecords) -> bool:
    """Return whether the task is regression."""
    return study.is_regression


def chooses(study: StudyRecords) -> bool:
    """Return whether strategies select examples.

    If all labels are bought before the first round, strategies differ only in their
    training.
    """
    return study.study.config.get("cycles") != 0


def tells_classes(study: StudyRecords) -> bool:
    """Return whether sites report the classes of their examples.

    Real sites do not, and several labels per example are no classes.
    """
    return has_classes(study) and not is_live(study) and not study.study.labels


def buys_classes(study: StudyRecords) -> bool:
    """Return whether the classes of selected examples are recorded."""
    return tells_classes(study) and chooses(study)


@dataclass(frozen=True)
class Section:
    """Section of the article about one study.

    ``needs`` returns whether it applies to a study.  ``render(study, key)`` returns its blocks,
    possibly none; ``key`` is the prefix of all ids.
    """

    title: str
    position: SectionPosition
    render: Callable[[StudyRecords, str], Blocks]
    needs: Callable[[StudyRecords], bool] = always

    def blocks(self, study: StudyRecords, key: str) -> Blocks:
        """Return the blocks of a study, none if the section does not apply."""
        if not self.needs(study):
            return ()
        return self.render(study, key)


@dataclass(frozen=True)
class Across:
    """Section of the article about several studies, possibly empty.

    ``replaces`` names a section that is omitted for the studies returned by ``covers``.
    """

    render: Callable[[Sequence[StudyRecords], str], Sequence[tuple[str, Blocks]]]
    replaces: str = ""
    covers: Callable[[Sequence[StudyRecords]], Sequence[StudyRecords]] = lambda studies: ()


@dataclass(frozen=True)
class Sections:
    """Report sections of one paper: about one study, and about several."""

    of_one: tuple[Section, ...] = ()
    of_several: tuple[Across, ...] = ()


def sections_of(papers: Iterable[Paper]) -> Sections:
    """Return the sections of all papers, in the order of the papers."""
    of_one: list[Section] = []
    of_several: list[Across] = []
    for paper in papers:
        if paper.sections is not None:
            sections: Sections = paper.sections()
            of_one += sections.of_one
            of_several += sections.of_several
    return Sections(tuple(of_one), tuple(of_several))
