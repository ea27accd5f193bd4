"""Sections about pairs of strategies that differ in one thing, and what such sections share.

Each returns nothing where the study has no such pair with two seeds in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from fallow.experiment.record import Record
from fallow.report.blocks import Block, Blocks, Note, Table
from fallow.report.columns import NOTHING, p_text, with_interval
from fallow.report.final_table import Spread, digits_of, label_of
from fallow.report.findings import pairs as find
from fallow.report.findings.labels import over_cycles
from fallow.study.records import StudyRecords
from fallow.study.statistics import Comparison, mean_sd

Tested = list[tuple[find.Pair, Comparison]]


def unit_of(study: StudyRecords) -> str:
    """What a difference of scores is measured in."""
    return "points" if study.measure == "accuracy" else "mean squared error"


def score_text(study: StudyRecords, query: str) -> str:
    """The final score of a strategy, mean ± standard deviation."""
    scale = 100 if study.measure == "accuracy" else 1
    values = [scale * s for s in study.final(query).values()]
    return Spread(*mean_sd(values)).text(digits_of(study)) if values else NOTHING


def tested_cells(study: StudyRecords, c: Comparison) -> list[str]:
    """Mean difference, adjusted p of the exact test, pairs."""
    difference = with_interval(c.difference, c.interval, digits_of(study))
    return [difference, p_text(c.holm), str(c.pairs)]


TESTS = ["Difference [95 %]", "Holm p", "Seeds"]


def few(tests: Tested) -> list[Block]:
    """Why no difference can be called distinguishable, if the seeds are too few."""
    return [Note(text + ".") for text in dict.fromkeys(c.note for _, c in tests if c.note)]


def tested_pairs(
    study: StudyRecords, rule: Callable[[Sequence[str]], list[find.Pair]]
) -> Tested:
    """The pairs that a rule finds among the strategies, tested."""
    return find.compared(study, rule(study.strategies))


def settings(study: StudyRecords, key: str) -> Blocks:
    """A strategy with and without a setting of its own."""
    tests = tested_pairs(study, find.setting_pairs)
    if not tests:
        return []
    rows = [
        [
            label_of(p.against, study.study),
            p.what,
            score_text(study, p.against),
            score_text(study, p.query),
            *tested_cells(study, c),
        ]
        for p, c in tests
    ]
    header = ["Query", "Setting", "Without", "With", *TESTS]
    made = Table("The same strategy with and without a setting", header, rows, words=2)
    return [made, *few(tests)]


def codes(study: StudyRecords, key: str) -> Blocks:
    """What a paper's public code runs beside what the paper says."""
    known = study.study.known
    tests = find.compared(study, find.code_pairs(study.strategies, known))
    if not tests:
        return []
    nan = {p.query: _nan_sites(study, p.query) for p, _ in tests}
    has_nan = any(nan.values())
    rows = [
        [
            p.what,
            label_of(p.against, study.study),
            score_text(study, p.query),
            score_text(study, p.against),
            *tested_cells(study, c),
            *([nan[p.query] or NOTHING] if has_nan else []),
        ]
        for p, c in tests
    ]
    header = ["Code", "Paper", "As published code", "As in the paper", *TESTS]
    header += ["NaN sites"] if has_nan else []
    text = "Differences are code minus paper, seed by seed."
    if has_nan:
        text += (
            " NaN sites: where scores were NaN, so that the code labels rows in arbitrary order; "
            "mean over cycles and seeds."
        )
    return [Table("The same method twice", header, rows, words=2), Note(text), *few(tests)]


def _nan_sites(study: StudyRecords, query: str) -> str:
    """``9.3 of 10``: sites with NaN scores, mean over cycles and seeds; empty if not noted."""

    def noted(row: Record) -> float | None:
        return (row.get("notes") or {}).get("nan_sites")

    values = [v for of_cycle in over_cycles(study, query, noted).values() for v in of_cycle]
    sites = max(
        (len(r.get("labelled_per_site") or ()) for c in study.of(query) for r in c.records),
        default=0,
    )
    return f"{fmean(values):.1f} of {sites}" if values else ""
