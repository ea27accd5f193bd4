"""Text alternatives of figures: the best strategies and their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from fallow.core.wording import join_words
from fallow.report.final_table import (
    FinalTable,
    digits_of,
    label_of,
    number,
    rank_strategies,
)
from fallow.report.findings.labels import minority_share, over_cycles
from fallow.study.by_class import class_means, class_names, class_scores
from fallow.study.records import ClassCounts, StudyRecords

MOST = 4
"""Number of strategies that are named beside the first."""


def _value(study: StudyRecords, strategy: str) -> float:
    """Return the mean final score, accuracies in per cent."""
    return study.scale * fmean(study.final(strategy).values())


def _unit(study: StudyRecords) -> tuple[str, str]:
    """Return the unit of a score and of a difference."""
    if study.measure.is_percent:
        return " %", " points"
    return "", ""


def curves(study: StudyRecords) -> str:
    """Describe the final ranking and the differences from the best strategy."""
    ended = [strategy for strategy in rank_strategies(study) if study.final(strategy)]
    what = study.measure.title
    details = f"Learning curves: test {what} over the labels bought."
    if not ended:
        return f"{details} No strategy has ended yet."

    unit, points = _unit(study)
    digits = digits_of(study)
    best = ended[0]
    rest = ended[1:]
    top = _value(study, best)
    text = (
        f"{details} {label_of(best, study.study)} ends best at {number(top, digits)}{unit}"
    )

    gaps = []
    for strategy in rest[:MOST]:
        gap = number(abs(top - _value(study, strategy)), digits)
        gaps.append(f"{label_of(strategy, study.study)} by {gap}{points}")
    if gaps:
        text += f", ahead of {join_words(gaps)}"
    if len(rest) > MOST:
        text += f"; {len(rest) - MOST} more strategies have lower scores"

    bounds = []
    for strategy in study.bounds:
        if study.final(strategy):
            score = number(_value(study, strategy), digits)
            bounds.append(f"{label_of(strategy, study.study)} at {score}{unit}")
    if bounds:
        text += f". Upper bounds: {join_words(bounds)}"
    return f"{text}."


def differences(final: FinalTable) -> str:
    """Describe which strategies are better or worse than the reference, and which intervals
    contain zero.
    """
    sides: dict[str, list[str]] = {"above zero": [], "below zero": [], "across zero": []}
    for row in final.rows:
        c = row.comparison
        if c is None:
            continue
        side = "across zero"
        if c.interval.low > 0:
            side = "above zero"
        elif c.interval.high < 0:
            side = "below zero"
        shown = number(c.difference, final.digits, "+")
        sides[side].append(f"{row.label} ({shown})")
    against = "the reference"
    reference = final.row(final.reference or "")
    if reference is not None:
        against = reference.label
    parts = [f"{join_words(names)} {side}" for side, names in sides.items() if names]
    return f"Paired differences to {against}, with 95 % intervals: {'; '.join(parts)}."


def classes(study: StudyRecords) -> str:
    """Describe the class with the lowest accuracy, and the best strategy for it."""
    scores = class_scores(study)
    means = class_means([of_strategy.mean for of_strategy in scores])
    known = [(mean, which) for which, mean in enumerate(means) if mean is not None]
    if not known:
        return "Test accuracy of each class."
    names = class_names(study) or tuple(str(which) for which in range(len(means)))

    low, worst = min(known)
    high, best = max(known)
    at_worst = [
        (of_strategy.mean[worst] or 0.0, of_strategy.strategy) for of_strategy in scores
    ]
    ahead, leader = max(at_worst)
    return (
        f"Test accuracy of each class. The lowest mean over strategies is {100 * low:.1f} "
        f"% for class {names[worst]} ({label_of(leader, study.study)} is best there with "
        f"{100 * ahead:.1f} %), the highest {100 * high:.1f} % for class {names[best]}."
    )


def partition(part: ClassCounts) -> str:
    """Describe the site with the most examples, and the class that is distributed most
    unevenly.
    """
    rows = {site: sum(counts) for site, counts in zip(part.sites, part.matrix, strict=True)}
    largest = max(rows, key=rows.__getitem__)
    text = (
        f"Examples of {len(part.classes)} classes at {len(part.sites)} sites. {largest} "
        f"has most examples, {rows[largest]:,}; the smallest site has "
        f"{min(rows.values()):,}"
    )
    if part.sigma:
        uneven = max(range(len(part.classes)), key=part.sigma.__getitem__)
        holders = sum(1 for row in part.matrix if row[uneven])
        text += (
            f". Class {part.classes[uneven]} is distributed most unevenly: {holders} of "
            f"{len(part.sites)} sites have it"
        )
    return f"{text}."


def balance(study: StudyRecords) -> str:
    """Describe which strategies labeled most examples of rare classes."""
    shares = {}
    for strategy in study.strategies:
        last = over_cycles(study, strategy, minority_share)
        if last:
            shares[label_of(strategy, study.study)] = fmean(last[max(last)])
    if not shares:
        return "Balance of the labels over cycles."
    ordered = sorted(shares, key=lambda name: -shares[name])
    return (
        "Balance of the labels over cycles. At the end, the rarer half of the classes "
        f"has {_shares(ordered, shares)} of the labels."
    )


def _shares(names: Sequence[str], shares: Mapping[str, float]) -> str:
    """Return the first and the last of the shares, such as ``45.0 % (a), 40.1 % (b)``."""
    if len(names) > MOST:
        names = [*names[: MOST - 1], names[-1]]
    return join_words([f"{shares[name]:.1f} % ({name})" for name in names])
