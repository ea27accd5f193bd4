"""Report section on closed-form classifiers, from their leave-one-out results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from statistics import fmean
from typing import Literal, NamedTuple

from fallow.core.wording import count_noun, join_words
from fallow.experiment.record import Record
from fallow.report.blocks import Block, Blocks, Cells, Notes, Table
from fallow.report.final_table import digits_of, label_of, rank_strategies, spread_of
from fallow.report.labels import over_cycles
from fallow.report.regression import checkpoints
from fallow.settings.spec import Spec
from fallow.settings.variants import ParsedStrategy
from fallow.study.names import heading
from fallow.study.records import StudyRecords
from fallow.training.parts.closed_form import FEW_A_CLASS, STRONGEST
from fallow.training.parts.ridge import PENALTIES

COLUMNS = 5
"""Maximum number of cycles with a column."""
LEFT_OUT = (
    "Each labeled example is predicted by a classifier that is trained on all others, so "
    "no test example is needed. The score is lower than on all examples if a strategy "
    "prefers hard examples. Mean ± standard deviation over seeds. D is the number of "
    "features; λ (penalty) and T (temperature) are the values in the last cycle. D "
    "matters more than λ."
)


def has_closed_form(study: StudyRecords) -> bool:
    """Return whether any model is a closed-form classifier."""
    records = chain.from_iterable(cell.records for cell in study.cells)
    return any("penalty" in record for record in records)


def closed_form(study: StudyRecords, key: str) -> Blocks:
    """Return leave-one-out choices and estimates of each cycle, with warnings."""
    caption = "Leave-one-out accuracy on labeled examples, %"
    if study.is_regression:
        caption = "Leave-one-out mean squared error on labeled examples"
    blocks: list[Block] = []
    notes = [
        *_warn_of_ends(study),
        *_describe_limits(study),
        *_describe_self_training(study),
        *_describe_site_prior(study),
        *_warn_of_gaps(study),
    ]
    rows = _choices(study)
    if rows:
        blocks.append(Table.of(caption, rows))
        notes = [LEFT_OUT, *notes]
    if notes:
        blocks.append(Notes(notes))
    return blocks


def left_out_score(record: Record) -> float | None:
    """Return the leave-one-out score of a classifier: accuracy in percent, or mean squared
    error.

    Return None if there are too few examples to leave one out.
    """
    value = record.get("left_out")
    if value is None or record.get("accuracy") is None:
        return value
    return 100 * value


def _choices(study: StudyRecords) -> list[Cells]:
    """Return λ and T at the end, and the leave-one-out score in a few cycles."""
    rows: list[Cells] = []
    for strategy in rank_strategies(study):
        scores = over_cycles(study, strategy, left_out_score)
        cells: dict[str, str | None] = {
            heading(study.study): label_of(strategy, study.study),
            "D": _range(study, strategy, "features", digits=6),
            "λ": _range(study, strategy, "penalty"),
            "T": _range(study, strategy, "temperature"),
        }
        for cycle in checkpoints(study, COLUMNS):
            cells[f"Cycle {cycle}"] = None
            if cycle in scores:
                cells[f"Cycle {cycle}"] = spread_of(scores[cycle]).text(digits_of(study))
        if scores:
            rows.append(cells)
    return rows


def _range(
    study: StudyRecords,
    strategy: str,
    name: Literal["features", "penalty", "temperature"],
    digits: int = 2,
) -> str | None:
    """Return the smallest and the largest value over seeds at the end, or one value if all
    are equal.
    """
    values: list[float] = []
    for cell in study.of(strategy):
        value = cell.last.get(name)
        if value is not None:
            values.append(value)
    if not values:
        return None
    low = f"{min(values):.{digits}g}"
    high = f"{max(values):.{digits}g}"
    return " to ".join(dict.fromkeys([low, high]))


# -- penalties at an end of the grid ----------------------------------------------------------


class PenaltiesAtEnd(NamedTuple):
    """Number of classifiers of a strategy with a penalty λ at an end of the grid, and their
    total.
    """

    lowest: int
    highest: int
    heads: int


def find_at_end(study: StudyRecords) -> Mapping[str, PenaltiesAtEnd]:
    """Return strategy -> number of classifiers whose λ is the smallest or largest of the
    grid.

    Classifiers with a fixed λ, or with too few examples to select it, are not counted.
    """
    values = {}
    for strategy in study.study.strategies:
        if is_penalty_given(study, strategy):
            continue
        penalties = []
        for cell in study.of(strategy):
            for record in cell.last_records.values():
                if "left_out" in record:
                    penalties.append(record["penalty"])
        lowest = sum(math.isclose(penalty, PENALTIES[0]) for penalty in penalties)
        highest = sum(math.isclose(penalty, PENALTIES[-1]) for penalty in penalties)
        if lowest or highest:
            values[strategy] = PenaltiesAtEnd(lowest, highest, len(penalties))
    return values


def is_penalty_given(study: StudyRecords, strategy: str) -> bool:
    """Return whether a strategy's training, or that of the study, sets λ."""
    fields: Mapping[str, object] = {}
    usual = study.study.config.get("training")
    if isinstance(usual, Mapping):
        fields = usual.get("fields") or {}
    for setting in ParsedStrategy.parse(strategy).settings:
        key, _, value = setting.partition("=")
        if key == "training":
            fields = Spec.parse(value).fields
    return fields.get("penalty") is not None


def _warn_of_ends(study: StudyRecords) -> list[str]:
    """Warn if λ is at an end of its grid, because the best value may lie beyond it."""
    named = []
    for strategy, (lowest, highest, heads) in find_at_end(study).items():
        ends = []
        if lowest:
            ends.append(f"the low end in {lowest}")
        if highest:
            ends.append(f"the high end in {highest}")
        name = label_of(strategy, study.study)
        named.append(f"{name} ({join_words(ends)} of {heads} classifiers)")
    if not named:
        return []
    return [
        f"λ is at an end of its grid of {PENALTIES[0]:g} to {PENALTIES[-1]:g}: "
        f"{join_words(named)}. The best value may lie beyond it. At the low end, other or "
        "more features may fit better; at the high end, fewer features or more labels."
    ]


def _describe_limits(study: StudyRecords) -> list[str]:
    """Name the strategies whose last λ was limited because labels were few."""
    names = []
    for strategy in study.strategies:
        if any("penalty_limit" in cell.last for cell in study.of(strategy)):
            names.append(label_of(strategy, study.study))
    if not names:
        return []
    return [
        f"λ is at most {STRONGEST:g} / number of labels, because there are fewer than "
        f"{FEW_A_CLASS} labels per class at the end: {join_words(names)}."
    ]


# -- unlabeled examples -----------------------------------------------------------------------


def _describe_self_training(study: StudyRecords) -> list[str]:
    """Describe the weight of unlabeled examples in the last cycle, and why."""
    named = []
    for strategy in study.strategies:
        # by weight, and if it was compared
        gains: dict[tuple[float, bool], list[float]] = {}
        for cell in study.of(strategy):
            last = cell.last
            if "unlabeled" in last:
                gain = last.get("unlabeled_gain")
                key = (round(last["unlabeled"], 2), gain is not None)
                gains.setdefault(key, []).append(gain or 0.0)
        weights = []
        for (weight, is_compared), values in sorted(gains.items(), reverse=True):
            reason = _explain_weight(weight, values, is_compared=is_compared)
            weights.append(f"{weight:g} in {count_noun(len(values), 'seed')} ({reason})")
        if weights:
            named.append(f"{label_of(strategy, study.study)}: {join_words(weights)}")
    if not named:
        return []
    return [
        "Weight of the self-trained model, which also learns from unlabeled examples, in the "
        f"last cycle. {'; '.join(named)}."
    ]


def _describe_site_prior(study: StudyRecords) -> list[str]:
    """Describe the gain by class shares of sites in the last cycle, where it was compared."""
    named = []
    for strategy in study.strategies:
        gains = [
            cell.last["site_prior_gain"]
            for cell in study.of(strategy)
            if "site_prior_gain" in cell.last
        ]
        if gains:
            name = label_of(strategy, study.study)
            named.append(f"{name}: {100 * fmean(gains):+.1f}")
    if not named:
        return []
    return [
        "Gain in held-out accuracy by the class shares of each site, in points, in the last cycle; "
        f"0 if they are not used. {'; '.join(named)}."
    ]


def _explain_weight(weight: float, gains: list[float], *, is_compared: bool) -> str:
    """Explain a weight of the self-trained model; gains: in held-out accuracy."""
    if is_compared and weight:
        return f"by cross-validation, {100 * fmean(gains):+.1f} points in held-out accuracy"
    if is_compared:
        return "by cross-validation"
    if weight:
        return "by the number of labels"
    return "no unlabeled example"


def find_unlabeled(study: StudyRecords) -> Mapping[str, Mapping[int, list[int]]]:
    """Return strategy -> seed -> classes without a label at the end, for closed-form
    classifiers.
    """
    unlabeled: dict[str, dict[int, list[int]]] = {}
    for cell in study.cells:
        if "penalty" in cell.last:
            counts = cell.last.get("labeled_per_class") or []
            absent = [label for label, count in enumerate(counts) if count == 0]
            if absent:
                unlabeled.setdefault(cell.strategy, {})[cell.seed] = absent
    return unlabeled


def _warn_of_gaps(study: StudyRecords) -> list[str]:
    """Describe which classes have no label, so that no classifier predicts them."""
    output = []
    for strategy, by_seed in find_unlabeled(study).items():
        cases = []
        for seed, absent in sorted(by_seed.items()):
            names = list(map(str, absent))
            if seed in study.partitions:
                names = [study.partitions[seed].classes[label] for label in absent]
            cases.append(f"{join_words(names)} under seed {seed}")
        output.append(f"{label_of(strategy, study.study)} ({', '.join(cases)})")
    if not output:
        return []
    return [
        "Classes without a label at the end, which a closed-form classifier never predicts: "
        f"{join_words(output)}."
    ]
