"""Errors of regression models relative to the fit with all labels of the same seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fallow.report.blocks import Blocks, Note, Table
from fallow.report.columns import NOTHING
from fallow.report.final_table import label_of, rank_strategies
from fallow.report.findings.checkpoints import checkpoints, is_even
from fallow.report.regression import COLUMNS
from fallow.study.names import heading
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, differences, holm, wilcoxon_exact

MOST = 10
"""Number of checkpoints per study in the table over several studies."""

Excesses = Mapping[tuple[int, int], Mapping[int, float]]
"""(Index of a study, cycle) -> seed -> excess."""


@dataclass(frozen=True)
class CheckpointCounts:
    """Number of checkpoints at which a strategy is better than the reference, not
    different, or worse.
    """

    better: int = 0
    same: int = 0
    worse: int = 0

    def __str__(self) -> str:
        return f"{self.better}/{self.same}/{self.worse}"


def excess(study: StudyRecords, key: str) -> Blocks:
    """Return the median over seeds at a few checkpoints, and tests against the reference."""
    cycles = checkpoints(study, COLUMNS)
    shown = [strategy for strategy in rank_strategies(study) if study.excess(strategy)]
    if not cycles or not shown:
        return []

    reference = study.study.reference
    tallies: Mapping[str, CheckpointCounts] = {}
    header = [heading(study.study), *(f"Cycle {cycle}" for cycle in cycles)]
    if is_even(study):
        bought = study.labels(shown[0])
        header = [
            heading(study.study),
            *(f"{bought[cycle]:,.0f} labels" for cycle in cycles),
        ]
    if reference is not None and study.excess(reference):
        excesses = {strategy: number_cycles([study], strategy) for strategy in shown}
        tallies = tally(excesses, reference)
        header.append(f"Against {label_of(reference, study.study)}")

    rows = []
    for strategy in shown:
        result = study.excess(strategy)
        cells = [percent(result.get(cycle, {})) for cycle in cycles]
        row = [label_of(strategy, study.study), *cells]
        if tallies:
            row.append(str(tallies.get(strategy, NOTHING)))
        rows.append(row)
    text = (
        "Median over seeds of the error in excess of the fit with all labels under the "
        "same seed and training, in per cent of the latter. It measures the cost of "
        "selecting few examples."
    )
    if tallies:
        text += (
            " Against: number of cycles in which the strategy is better, not different, "
            "and worse; exact signed-rank test of pairs by seed, Holm over all cycles "
            f"and strategies, {LEVEL:g}."
        )
    return [Table("Excess error", header, rows), Note(text)]


def percent(excesses: Mapping[int, float]) -> str:
    """Return the median excess of seeds as text.

    >>> percent({0: 0.01, 1: 0.03, 2: 0.5})
    '3.00 %'
    """
    if not excesses:
        return NOTHING
    return f"{100 * median(excesses.values()):.2f} %"


def tally(excesses: Mapping[str, Excesses], reference: str) -> dict[str, CheckpointCounts]:
    """Compare each strategy with the reference at every common checkpoint, with Holm over
    all tests.

    A smaller excess is better.

    >>> base = {(0, 1): {seed: 0.5 + seed / 100 for seed in range(7)}}
    >>> less = {(0, 1): {seed: 0.3 for seed in range(7)}}
    >>> {name: str(found) for name, found in tally({"a": less, "b": base}, "b").items()}
    {'a': '1/0/0'}
    """
    strategies: list[str] = []
    pairs: list[list[float]] = []
    for strategy, ours in excesses.items():
        if strategy == reference:
            continue
        for at in ours:
            d = differences(ours[at], excesses[reference].get(at, {}))
            if len(d) >= 2:
                strategies.append(strategy)
                pairs.append(d)
    adjusted = holm([wilcoxon_exact(d) for d in pairs])
    result: dict[str, CheckpointCounts] = {}
    for strategy, d, p in zip(strategies, pairs, adjusted, strict=True):
        before = result.get(strategy, CheckpointCounts())
        if p > LEVEL:
            result[strategy] = CheckpointCounts(
                before.better, before.same + 1, before.worse
            )
        elif median(d) < 0:
            result[strategy] = CheckpointCounts(
                before.better + 1, before.same, before.worse
            )
        else:
            result[strategy] = CheckpointCounts(
                before.better, before.same, before.worse + 1
            )
    return result


def number_cycles(studies: Sequence[StudyRecords], strategy: str) -> Excesses:
    """Return the excesses of a strategy over several studies."""
    result: dict[tuple[int, int], Mapping[int, float]] = {}
    for number, study in enumerate(studies):
        for cycle, by_seed in study.excess(strategy).items():
            result[number, cycle] = by_seed
    return result


def excess_across(
    studies: Sequence[StudyRecords], key: str
) -> Sequence[tuple[str, Blocks]]:
    """Return the section on strategies that several studies share.

    It has the median at every checkpoint, and tests of all pairs of strategies over all
    checkpoints.
    """
    with_excess = []
    for study in studies:
        if any(study.excess(strategy) for strategy in study.strategies):
            with_excess.append(study)
    if len(with_excess) < 2:
        return []
    first = with_excess[0]
    common = [
        strategy
        for strategy in first.strategies
        if all(study.excess(strategy) for study in with_excess)
    ]
    if len(common) < 2:
        return []

    names = [label_of(strategy, first.study) for strategy in common]
    rows = []
    for study in with_excess:
        bought = study.labels(common[0])
        seeds = study.excess(common[0])
        for cycle in checkpoints(study, MOST):
            result = [study.excess(strategy).get(cycle, {}) for strategy in common]
            cells = [study.study.name, f"{bought[cycle]:,.0f}", str(len(seeds[cycle]))]
            rows.append([*cells, *map(percent, result)])
    excesses = {strategy: number_cycles(with_excess, strategy) for strategy in common}
    against = []
    for strategy, name in zip(common, names, strict=True):
        row = [name]
        for other in common:
            pair = {strategy: excesses[strategy], other: excesses[other]}
            row.append(str(tally(pair, other).get(strategy, NOTHING)))
        against.append(row)
    blocks: Blocks = [
        Table("Median excess error", ["Study", "Labels", "Seeds", *names], rows),
        Table("Checkpoints: better/no different/worse than", ["Strategy", *names], against),
        Note(
            "Excess: the error in excess of the fit with all labels under the same seed, "
            "in per cent of the latter. Exact signed-rank test of pairs by seed, with "
            "Holm over all checkpoints of all studies for each pair of strategies, "
            f"{LEVEL:g}."
        ),
    ]
    return [("Excess errors over studies", blocks)]
