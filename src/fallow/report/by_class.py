"""Final accuracy by class, for figures, gaps and slopes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fallow.experiment.metrics import AccuracyGap, variance_gap
from fallow.study.records import StudyRecords

Accuracies = list[float | None]
"""One accuracy per class in [0, 1]; ``None`` for a class without test rows."""


@dataclass(frozen=True)
class ClassScores:
    """Final accuracy of a query strategy by class (0 to 1), and of the class halves by seed."""

    strategy: str
    mean: tuple[float | None, ...]
    halves: tuple[AccuracyGap, ...]


def class_means(rows: Sequence[Sequence[float | None]]) -> Accuracies:
    """Return the mean of each class over rows, ignoring missing values; None if all are missing.

    >>> class_means([[0.5, None, None], [0.7, 0.4, None]])
    [0.6, 0.4, None]
    """
    means: Accuracies = []
    for column in zip(*rows, strict=True):
        scored = [score for score in column if score is not None]
        mean = None
        if scored:
            mean = fmean(scored)
        means.append(mean)
    return means


def class_accuracies(study: StudyRecords, strategy: str) -> dict[int, Accuracies]:
    """Return, by seed, the accuracy of each class in the last cycle."""
    last = study.last_cycle(strategy)
    done = study.final(strategy)
    accuracies = {}
    for cell in study.of(strategy):
        rows = []
        for record in cell.records:
            scores = record.get("per_class")
            if record.get("cycle") == last and record.get("final") and scores:
                rows.append(scores)
        if rows and cell.seed in done:
            accuracies[cell.seed] = class_means(rows)
    return accuracies


def class_scores(study: StudyRecords) -> list[ClassScores]:
    """Return the accuracy of each class in the last cycle, as the mean over rounds and seeds."""
    outcome = []
    for strategy in study.strategies:
        by_seed = class_accuracies(study, strategy)
        if not by_seed:
            continue
        halves = []
        for seed, scores in by_seed.items():
            if seed not in study.partitions:
                continue
            split = variance_gap(scores, study.partitions[seed].sigma)
            if split is not None:
                halves.append(split)
        mean = class_means(list(by_seed.values()))
        outcome.append(ClassScores(strategy, tuple(mean), tuple(halves)))
    return outcome


def name_outcome(study: StudyRecords) -> tuple[str, str]:
    """Return what accuracies are of, one and several: classes, or labels of each example."""
    return ("label", "labels") if study.study.labels else ("class", "classes")


def class_names(study: StudyRecords) -> tuple[str, ...]:
    """Return the names of several labels, or of the classes in the first seed's partition.

    Those of the classes at real sites are in the study. The result is empty if none is known.
    """
    partitions = study.partitions
    if study.study.labels:
        return study.study.labels
    if not partitions:
        return study.study.classes
    return partitions[min(partitions)].classes
