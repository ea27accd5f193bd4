"""Report sections on pairs of strategies that differ in one setting.

Each function returns no blocks if the study has no such pair with two common seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from fallow.experiment.record import Record
from fallow.report.blocks import Block, Blocks, Note, Table
from fallow.report.columns import NOTHING, p_text, with_interval
from fallow.report.final_table import digits_of, label_of, spread_of
from fallow.report.findings import pairs as find
from fallow.report.findings.labels import over_cycles
from fallow.study.records import StudyRecords
from fallow.study.statistics import Comparison


def read_number(row: Record, name: str) -> float | None:
    """Return the finite number that a strategy noted as ``name`` in a record, or None.

    A strategy can store any value under any name.  Two strategies can use one name for different
    values, and a report must not fail because of that.

    >>> read_number({"notes": {"nan_sites": 3}}, "nan_sites")
    3.0
    >>> read_number({"notes": {"nan_sites": "three"}}, "nan_sites") is None
    True
    """
    value = (row.get("notes") or {}).get(name)
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    return None


def read_numbers(row: Record, name: str) -> list[float] | None:
    """Return the finite numbers, one per class, noted as ``name``, or None.

    >>> read_numbers({"notes": {"sigma": [1, 2]}, "per_class": [0.5, 0.9]}, "sigma")
    [1.0, 2.0]
    >>> read_numbers({"notes": {"sigma": [1, 2]}, "per_class": [0.5]}, "sigma") is None
    True
    """
    value = (row.get("notes") or {}).get(name)
    of_classes = row.get("per_class") or ()
    if not isinstance(value, list) or not value or len(value) != len(of_classes):
        return None
    for item in value:
        if not isinstance(item, (bool, int, float)) or not math.isfinite(item):
            return None
    return list(map(float, value))


Tested = list[tuple[find.StrategyPair, Comparison]]


def unit_of(study: StudyRecords) -> str:
    """Return the unit of a difference of scores."""
    return study.measure.unit


def score_text(study: StudyRecords, strategy: str) -> str:
    """Return the final score of a strategy, mean ± standard deviation."""
    final = study.final(strategy)
    if not final:
        return NOTHING
    spread = spread_of([study.scale * score for score in final.values()])
    return spread.text(digits_of(study))


def tested_cells(study: StudyRecords, c: Comparison) -> list[str]:
    """Return the cells for mean difference, adjusted p of the exact test and number of
    pairs.
    """
    difference = with_interval(c.difference, c.interval, digits_of(study))
    return [difference, p_text(c.holm), str(c.pairs)]


TESTS = ["Difference [95 %]", "Holm p", "Seeds"]


def few(tests: Tested) -> list[Block]:
    """Explain that no difference can be significant if there are too few seeds."""
    reasons = dict.fromkeys(comparison.note for _, comparison in tests)
    return [Note(f"{reason}.") for reason in reasons if reason]


def tested_pairs(
    study: StudyRecords, rule: Callable[[Sequence[str]], list[find.StrategyPair]]
) -> Tested:
    """Return the tested pairs that a rule finds among the strategies."""
    return find.compare_final_scores(study, rule(study.strategies))


def settings(study: StudyRecords, key: str) -> Blocks:
    """Compare a strategy with and without one of its settings."""
    tests = tested_pairs(study, find.setting_pairs)
    if not tests:
        return []
    rows = []
    for pair, comparison in tests:
        plain = label_of(pair.against, study.study)
        scores = [score_text(study, pair.against), score_text(study, pair.strategy)]
        rows.append([plain, pair.what, *scores, *tested_cells(study, comparison)])
    table = Table(
        "The same strategy with and without a setting",
        header=["Strategy", "Setting", "Without", "With", *TESTS],
        rows=rows,
        words=2,
    )
    return [table, *few(tests)]


def codes(study: StudyRecords, key: str) -> Blocks:
    """Compare variants of a paper's public code with the published algorithm."""
    known = study.study.known
    tests = find.compare_final_scores(study, find.code_pairs(study.strategies, known))
    if not tests:
        return []
    header = ["Code", "Paper", "As published code", "As in the paper", *TESTS]
    rows = []
    for pair, comparison in tests:
        names = [pair.what, label_of(pair.against, study.study)]
        scores = [score_text(study, pair.strategy), score_text(study, pair.against)]
        rows.append([*names, *scores, *tested_cells(study, comparison)])
    text = "Differences are code minus paper, paired by seed."

    nan = [_nan_sites(study, pair.strategy) for pair, _ in tests]
    if any(nan):
        header.append("NaN sites")
        for row, sites in zip(rows, nan, strict=True):
            row.append(sites or NOTHING)
        text += (
            " NaN sites: sites whose scores were NaN, so that the code labels their "
            "examples in arbitrary order; mean over cycles and seeds."
        )
    table = Table("Published code and paper", header=header, rows=rows, words=2)
    return [table, Note(text), *few(tests)]


def _nan_sites(study: StudyRecords, strategy: str) -> str:
    """Return the mean number of sites with NaN scores, such as ``9.3 of 10``, or "" if it
    is not recorded.
    """

    def count_nan_sites(row: Record) -> float | None:
        return read_number(row, "nan_sites")

    by_cycle = over_cycles(study, strategy, count_nan_sites)
    counts = [count for of_seeds in by_cycle.values() for count in of_seeds]
    if not counts:
        return ""
    n_sites = 0
    for cell in study.of(strategy):
        for row in cell.records:
            n_sites = max(n_sites, len(row.get("labeled_per_site") or ()))
    return f"{fmean(counts):.1f} of {n_sites}"
