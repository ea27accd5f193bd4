"""Published codes compared with their papers, and what strategies note in records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from fallow.core.extensions import fold_name
from fallow.experiment.record import Record
from fallow.report.blocks import Blocks, Cells, Note, Table
from fallow.report.comparisons import (
    StrategyPair,
    compare_final_scores,
    note_few_seeds,
    score_text,
    tested_cells,
)
from fallow.report.final_table import label_of
from fallow.report.labels import over_cycles
from fallow.settings.spec import Spec
from fallow.settings.variants import ParsedStrategy
from fallow.study.known import PaperResults
from fallow.study.records import StudyRecords


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


def code_pairs(strategies: Sequence[str], known: PaperResults) -> list[StrategyPair]:
    """Return the pairs of a published code and the algorithm as its paper describes it.

    The paper's form has no ``@`` settings, and the fields of the code or none.
    """
    pairs = []
    for strategy in map(ParsedStrategy.parse, strategies):
        code = known.code(strategy.spec)
        if code is None:
            continue
        plain = _find_plain_form(code.of, strategy.spec, strategies, known)
        if plain is not None:
            pairs.append(StrategyPair(strategy.strategy, plain, code.name))
    return pairs


def _find_plain_form(
    name: str, of_code: Spec, strategies: Sequence[str], known: PaperResults
) -> str | None:
    """Return the strategy of that name without settings, and with the fields ``of_code`` or
    none.

    If there are several, return the last one.
    """
    plain_form = None
    for strategy in map(ParsedStrategy.parse, strategies):
        is_paper = strategy.key == fold_name(name) and known.code(strategy.spec) is None
        fields = strategy.spec.fields
        same_fields = not fields or dict(fields) == dict(of_code.fields)
        if is_paper and same_fields and not strategy.settings:
            plain_form = strategy.strategy
    return plain_form


def codes(study: StudyRecords, key: str) -> Blocks:
    """Compare variants of a paper's public code with the published algorithm."""
    pairs = code_pairs(study.strategies, study.study.known)
    tests = compare_final_scores(study, pairs)
    rows: list[Cells] = []
    text = "Differences are code minus paper, paired by seed."
    for pair, comparison in tests:
        nan_sites = _nan_sites(study, pair.strategy)
        rows.append(
            {
                "Code": pair.what,
                "Paper": label_of(pair.against, study.study),
                "As published code": score_text(study, pair.strategy),
                "As in the paper": score_text(study, pair.against),
                **tested_cells(study, comparison),
                "NaN sites": nan_sites,
            }
        )
    if not rows:
        return []
    if any(row["NaN sites"] for row in rows):
        text += (
            " NaN sites: sites whose scores were NaN, so that the code labels their "
            "examples in arbitrary order; mean over cycles and seeds."
        )
    return [
        Table.of("Published code and paper", rows, words=2),
        Note(text),
        *note_few_seeds(tests),
    ]


def _nan_sites(study: StudyRecords, strategy: str) -> str | None:
    """Return the mean number of sites with NaN scores, such as ``9.3 of 10``, or None if
    it is not recorded.
    """

    def count_nan_sites(row: Record) -> float | None:
        return read_number(row, "nan_sites")

    by_cycle = over_cycles(study, strategy, count_nan_sites)
    counts = [count for of_seeds in by_cycle.values() for count in of_seeds]
    if not counts:
        return None
    n_sites = 0
    for cell in study.of(strategy):
        for row in cell.records:
            n_sites = max(n_sites, len(row.get("labeled_per_site") or ()))
    return f"{fmean(counts):.1f} of {n_sites}"
