"""Conditions of report sections on a study."""

from __future__ import annotations

from fallow.report.findings import personal
from fallow.report.live import read_live
from fallow.study.records import StudyRecords


def is_live(study: StudyRecords) -> bool:
    """Return whether the study is of real sites."""
    return read_live(study.path) is not None


def has_classes(study: StudyRecords) -> bool:
    """Return whether the task is classification."""
    return not study.is_regression


def has_numbers(study: StudyRecords) -> bool:
    """Return whether the task is regression."""
    return study.is_regression


def has_sites(study: StudyRecords) -> bool:
    """Return whether the study has scores of each site."""
    return not study.is_regression and personal.has_sites(study)


def chooses(study: StudyRecords) -> bool:
    """Return whether strategies select examples.

    If all labels are bought before the first round, strategies differ only in their
    training.
    """
    return study.study.recipe.get("cycles") != 0


def tells_classes(study: StudyRecords) -> bool:
    """Return whether sites report the classes of their examples; real sites do not."""
    return has_classes(study) and not is_live(study)


def buys_classes(study: StudyRecords) -> bool:
    """Return whether the classes of selected examples are recorded."""
    return tells_classes(study) and chooses(study)
