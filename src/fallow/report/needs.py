"""Which studies a section is for."""

from __future__ import annotations

from fallow.report.findings import personal
from fallow.report.live import read_live
from fallow.study.records import StudyRecords


def is_live(study: StudyRecords) -> bool:
    """Whether the study is of real sites."""
    return read_live(study.path) is not None


def has_classes(study: StudyRecords) -> bool:
    """Whether there are classes to predict."""
    return study.higher_is_better


def has_numbers(study: StudyRecords) -> bool:
    """Whether there are numbers to predict."""
    return not study.higher_is_better


def has_sites(study: StudyRecords) -> bool:
    """Whether the study has scores of each site alone."""
    return study.higher_is_better and personal.has_sites(study)


def chooses(study: StudyRecords) -> bool:
    """Whether strategies choose rows; where all labels are bought before the first round they
    differ by how they train alone."""
    return study.study.recipe.get("cycles") != 0


def tells_classes(study: StudyRecords) -> bool:
    """Whether sites tell of which classes their rows are: real ones do not."""
    return has_classes(study) and not is_live(study)


def buys_classes(study: StudyRecords) -> bool:
    """Whether the classes of what strategies buy are told."""
    return tells_classes(study) and chooses(study)
