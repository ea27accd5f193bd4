"""Pairs of strategies in one study that differ in one thing, and their paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fallow.report.blocks import Block, Blocks, Cells, Note, Table
from fallow.report.final_table import (
    digits_of,
    label_of,
    p_text,
    spread_of,
    with_interval,
)
from fallow.study.records import StudyRecords
from fallow.study.statistics import Comparison, compare_pairs, differences


@dataclass(frozen=True)
class StrategyPair:
    """``strategy`` compared with ``against``; ``what`` names the difference in a word."""

    strategy: str
    against: str
    what: str


Tested = list[tuple[StrategyPair, Comparison]]


def setting_pairs(strategies: Sequence[str]) -> list[StrategyPair]:
    """Return the pairs of ``X@setting=value`` and X.

    They show the effect of training, privacy or the local model on X, which may have own
    settings.

    >>> setting_pairs(["ksas", "ksas@training=kcfu"])[0].what
    'training=kcfu'
    """
    values = []
    for strategy in strategies:
        shorter = [q for q in strategies if strategy.startswith(f"{q}@")]
        if shorter:
            plain = max(shorter, key=len)
            changed = strategy.removeprefix(plain).split("@")[1:]
            values.append(StrategyPair(strategy, plain, ", ".join(changed)))
    return values


def compare_final_scores(study: StudyRecords, pairs: Sequence[StrategyPair]) -> Tested:
    """Compare final scores of the pairs with two or more common seeds, with Holm over these
    pairs.

    Differences of accuracies are in points, those of errors in their own unit.
    """
    scores = {}
    for strategy in study.strategies:
        final = study.final(strategy)
        scores[strategy] = {seed: study.scale * score for seed, score in final.items()}
    ready = []
    for pair in pairs:
        if len(differences(scores[pair.strategy], scores[pair.against])) > 1:
            ready.append(pair)
    names = [(pair.strategy, pair.against) for pair in ready]
    tests = compare_pairs(scores, names, higher_is_better=study.higher_is_better)
    return list(zip(ready, tests, strict=True))


def score_text(study: StudyRecords, strategy: str) -> str | None:
    """Return the final score of a strategy, mean ± standard deviation."""
    final = study.final(strategy)
    if not final:
        return None
    spread = spread_of([study.scale * score for score in final.values()])
    return spread.text(digits_of(study))


def tested_cells(study: StudyRecords, comparison: Comparison) -> Cells:
    """Return the cells for mean difference, adjusted p of the exact test and number of
    pairs.
    """
    return {
        "Difference [95 %]": with_interval(
            comparison.difference, comparison.interval, digits_of(study)
        ),
        "Holm p": p_text(comparison.holm),
        "Seeds": str(comparison.pairs),
    }


def note_few_seeds(tests: Tested) -> list[Block]:
    """Explain that no difference can be significant if there are too few seeds."""
    reasons = dict.fromkeys(comparison.note for _, comparison in tests)
    return [Note(f"{reason}.") for reason in reasons if reason]


def compare_settings(study: StudyRecords, key: str) -> Blocks:
    """Compare a strategy with and without one of its settings.

    There are no blocks if the study has no such pair with two common seeds.
    """
    tests = compare_final_scores(study, setting_pairs(study.strategies))
    rows = []
    for pair, comparison in tests:
        rows.append(
            {
                "Strategy": label_of(pair.against, study.study),
                "Setting": pair.what,
                "Without": score_text(study, pair.against),
                "With": score_text(study, pair.strategy),
                **tested_cells(study, comparison),
            }
        )
    if not rows:
        return []
    caption = "The same strategy with and without a setting"
    return [Table.of(caption, rows, words=2), *note_few_seeds(tests)]
