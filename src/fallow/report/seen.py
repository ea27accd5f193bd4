"""What a figure shows, in words for those who cannot see it: who is ahead, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from fallow.core.words import listed
from fallow.report.final_table import FinalTable, digits_of, label_of, number, rank_queries
from fallow.report.findings.labels import minority_share, over_cycles
from fallow.study.by_class import class_means, class_scores
from fallow.study.records import Partition, StudyRecords

MOST = 4
"""So many strategies are named beside the first."""


def _value(study: StudyRecords, query: str) -> float:
    """The mean final score, accuracies in per cent."""
    scale = 100 if study.measure == "accuracy" else 1
    return scale * fmean(study.final(query).values())


def _unit(study: StudyRecords) -> tuple[str, str]:
    """What stands behind a score, and behind a difference."""
    return (" %", " points") if study.measure == "accuracy" else ("", "")


def curves(study: StudyRecords) -> str:
    """Who ends best, and how far behind the others end."""
    ended = [q for q in rank_queries(study) if study.final(q)]
    what = "accuracy" if study.measure == "accuracy" else "error"
    if not ended:
        return f"Learning curves: test {what} over the labels bought. No strategy has ended yet."
    unit, points = _unit(study)
    digits = digits_of(study)
    names = {q: label_of(q, study.study) for q in (*ended, *study.bounds)}
    best, *rest = ended
    top = _value(study, best)
    said = (
        f"Learning curves: test {what} over the labels bought. {names[best]} ends best at "
        f"{number(top, digits)}{unit}"
    )
    gaps = [
        f"{names[q]} by {number(abs(top - _value(study, q)), digits)}{points}"
        for q in rest[:MOST]
    ]
    if gaps:
        said += f", ahead of {listed(gaps)}"
    if len(rest) > MOST:
        said += f"; {len(rest) - MOST} more end behind"
    bounds = [
        f"{names[q]} at {number(_value(study, q), digits)}{unit}"
        for q in study.bounds
        if study.final(q)
    ]
    if bounds:
        said += f". Upper bounds: {listed(bounds)}"
    return f"{said}."


def differences(final: FinalTable) -> str:
    """Which strategies are above, below or across zero."""
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
    reference = final.row(final.reference or "")
    against = reference.label if reference else "the reference"
    said = [f"{listed(names)} {side}" for side, names in sides.items() if names]
    return f"Paired differences to {against}, with 95 % intervals: {'; '.join(said)}."


def classes(study: StudyRecords) -> str:
    """The class that is learned worst, and who learns it best."""
    scores = class_scores(study)
    middle = class_means([s.mean for s in scores])
    known = [(value, c) for c, value in enumerate(middle) if value is not None]
    if not known:
        return "Test accuracy of each class."
    parts = study.partitions
    names = parts[min(parts)].classes if parts else study.study.classes
    called = names or tuple(map(str, range(len(middle))))
    worst, best = min(known), max(known)
    by = [(s.mean[worst[1]] or 0.0, s.query) for s in scores]
    ahead = max(by)
    return (
        f"Test accuracy of each class. The worst learned is {called[worst[1]]} with "
        f"{100 * worst[0]:.1f} % over all strategies ({label_of(ahead[1], study.study)} is best "
        f"there with {100 * ahead[0]:.1f} %), the best learned {called[best[1]]} with "
        f"{100 * best[0]:.1f} %."
    )


def partition(part: Partition) -> str:
    """Which site holds most rows, and which class is held most unevenly."""
    rows = {site: sum(counts) for site, counts in zip(part.sites, part.matrix, strict=True)}
    said = (
        f"Rows of {len(part.classes)} classes at {len(part.sites)} sites. {_most(rows)} holds most "
        f"rows, {max(rows.values()):,}; the smallest site holds {min(rows.values()):,}"
    )
    if part.sigma:
        uneven = max(range(len(part.classes)), key=lambda c: part.sigma[c])
        held = sum(1 for row in part.matrix if row[uneven])
        said += (
            f". Class {part.classes[uneven]} is held most unevenly: {held} of "
            f"{len(part.sites)} sites have it"
        )
    return f"{said}."


def _most(counts: Mapping[str, int]) -> str:
    return max(counts, key=lambda name: counts[name])


def balance(study: StudyRecords) -> str:
    """Who bought most of the rarer classes."""
    shares = {}
    for query in study.strategies:
        last = over_cycles(study, query, minority_share)
        if last:
            shares[label_of(query, study.study)] = fmean(last[max(last)])
    if not shares:
        return "How even the labels are over cycles."
    ordered = sorted(shares, key=lambda name: -shares[name])
    return (
        "How even the labels are over cycles. At the end the rarer half of the classes has "
        f"{_shares(ordered, shares)} of the labels."
    )


def _shares(names: Sequence[str], shares: Mapping[str, float]) -> str:
    """``45.0 % (a), 40.1 % (b)``, the first and the last of many."""
    shown = list(names) if len(names) <= MOST else [*names[: MOST - 1], names[-1]]
    return listed([f"{shares[name]:.1f} % ({name})" for name in shown])
