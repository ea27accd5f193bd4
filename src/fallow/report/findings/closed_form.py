"""Leave-one-out results of closed-form classifiers.

They include the estimated quality, whether the grid of penalties was wide enough, and classes
without labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from fallow.experiment.record import Record
from fallow.settings.spec import Spec
from fallow.study.records import StudyRecords
from fallow.study.strategy import ParsedStrategy
from fallow.training.parts.ridge import PENALTIES
from fallow.training.parts.self_training import FORMS


@dataclass(frozen=True)
class PenaltiesAtEnd:
    """Number of classifiers of a strategy with a penalty λ at an end of the grid, and their
    total.
    """

    lowest: int
    highest: int
    heads: int


def has_closed_form(study: StudyRecords) -> bool:
    """Return whether any model is a closed-form classifier."""
    records = chain.from_iterable(cell.records for cell in study.cells)
    return any("penalty" in record for record in records)


def left_out_score(record: Record) -> float | None:
    """Return the leave-one-out score of a classifier: accuracy in per cent, or mean squared
    error.

    Return None if there are too few examples to leave one out.
    """
    value = record.get("left_out")
    if value is None or record.get("accuracy") is None:
        return value
    return 100 * value


def find_at_end(study: StudyRecords) -> Mapping[str, PenaltiesAtEnd]:
    """Return strategy -> number of classifiers whose λ is the smallest or largest of the
    grid.

    Classifiers with a set λ do not count, nor those with too few examples to select one.
    """
    values = {}
    for strategy in study.study.strategies:
        if is_penalty_given(study, strategy):
            continue
        penalties = []
        for cell in study.of(strategy):
            for cycle in cell.cycles:
                record = cell.last_of(cycle)
                if record is not None and "left_out" in record:
                    penalties.append(record["penalty"])
        lowest = sum(math.isclose(penalty, PENALTIES[0]) for penalty in penalties)
        highest = sum(math.isclose(penalty, PENALTIES[-1]) for penalty in penalties)
        if lowest or highest:
            values[strategy] = PenaltiesAtEnd(lowest, highest, len(penalties))
    return values


def is_penalty_given(study: StudyRecords, strategy: str) -> bool:
    """Return whether a strategy's training, or that of the study, sets λ."""
    fields: Mapping[str, object] = {}
    usual = study.study.recipe.get("training")
    if isinstance(usual, Mapping):
        fields = usual.get("fields") or {}
    for setting in ParsedStrategy.parse(strategy).settings:
        key, _, value = setting.partition("=")
        if key == "training":
            fields = Spec.parse(value).fields
    return fields.get("penalty") is not None


class SelfTraining(NamedTuple):
    """A form of self-training at the end, its number of seeds, and its mean gain in
    held-out accuracy.

    The gain is None without cross-validation.
    """

    form: str
    seeds: int
    gain: float | None


def find_self_training(study: StudyRecords) -> Mapping[str, list[SelfTraining]]:
    """Return strategy -> forms of self-training at the end, if unlabeled examples may be
    used.
    """
    outcome: dict[str, list[SelfTraining]] = {}
    for strategy in study.strategies:
        gains: dict[tuple[int, bool], list[float]] = {}
        for cell in study.of(strategy):
            if not cell.records or "unlabeled" not in cell.records[-1]:
                continue
            last = cell.records[-1]
            gain = last.get("unlabeled_gain")
            key = (int(last["unlabeled"]), gain is not None)
            gains.setdefault(key, []).append(gain or 0.0)
        for (form, is_compared), values in sorted(gains.items(), reverse=True):
            mean = sum(values) / len(values) if is_compared else None
            outcome.setdefault(strategy, []).append(
                SelfTraining(FORMS[form], len(values), mean)
            )
    return outcome


def find_unlabeled(study: StudyRecords) -> Mapping[str, Mapping[int, list[int]]]:
    """Return strategy -> seed -> classes without a label at the end, for closed-form
    classifiers.
    """
    unlabeled: dict[str, dict[int, list[int]]] = {}
    for cell in study.cells:
        if not cell.records or "penalty" not in cell.records[-1]:
            continue
        counts = cell.records[-1].get("labeled_per_class") or []
        absent = [label for label, count in enumerate(counts) if count == 0]
        if absent:
            unlabeled.setdefault(cell.strategy, {})[cell.seed] = absent
    return unlabeled
