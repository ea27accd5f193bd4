"""Report sections on regression: divergence, errors by labels, excess over the best fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from fallow.core.wording import join_words
from fallow.report.blocks import NOTHING, Blocks, Cells, Note, Table
from fallow.report.degenerate import FAR, find_diverged, has_diverged_at
from fallow.report.final_table import digits_of, label_of, rank_strategies, spread_of
from fallow.study.names import heading, penalized_training, training_tags
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, holm, wilcoxon_exact
from fallow.study.statistics import differences as paired_differences

COLUMNS = 5
"""Maximum number of checkpoints with a column."""
MAX_CHECKPOINTS = 10
"""Number of checkpoints per study in the table over several studies."""
MARK = " †"


# -- divergence -------------------------------------------------------------------------------


def warnings(study: StudyRecords) -> list[str]:
    """Return a warning about diverged runs with a remedy, or nothing."""
    steps = []
    solved = []
    cures = set()
    for strategy, cycle_of_seed in find_diverged(study).items():
        seeds = f"seed {min(cycle_of_seed)}"
        if len(cycle_of_seed) > 1:
            seeds = f"seeds {join_words(list(map(str, sorted(cycle_of_seed))))}"
        name = label_of(strategy, study.study)
        first = min(cycle_of_seed.values())
        runs = f"{name} ({seeds}, first in cycle {first})"
        if is_solved(study, strategy):
            solved.append(runs)
            cures.add(f"training={penalized_training(study.study, strategy)}")
        else:
            steps.append(runs)
    output = []
    if steps:
        output.append(
            f"Diverged: {join_words(steps)}. Their error is more than {FAR:g} times that of "
            "predicting the mean, or not a number. Scale the features, or lower the learning rate "
            "(lr)."
        )
    if solved:
        output.append(
            f"Diverged: {join_words(solved)}. With few labels, least squares leaves "
            "directions of the features undetermined. Buy more labels, or use "
            f"{join_words(sorted(cures), last='or')}."
        )
    return output


def is_solved(study: StudyRecords, strategy: str) -> bool:
    """Return whether the models of a strategy are closed-form."""
    return "least-squares" in training_tags(study.study, strategy)


# -- checkpoints ------------------------------------------------------------------------------


def marks(cycles: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return the cycles at 1/most, 2/most, ..., all of the run; fewer if the run has fewer
    cycles.

    cycles: ascending.  Cycle 0, before any query, is excluded unless it is the only one.

    >>> marks(range(301), 10)
    (30, 60, 90, 120, 150, 180, 210, 240, 270, 300)
    >>> marks([0, 1, 2], 10)
    (1, 2)
    """
    after_queries = [cycle for cycle in cycles if cycle > 0] or list(cycles)
    if not after_queries:
        return ()
    nearest = set()
    for step in range(1, limit + 1):
        wanted = after_queries[-1] * step / limit
        distances = {cycle: abs(cycle - wanted) for cycle in after_queries}
        nearest.add(min(distances, key=distances.__getitem__))
    return tuple(sorted(nearest))


def checkpoints(study: StudyRecords, limit: int) -> tuple[int, ...]:
    """Return the marks among the cycles that every strategy with a final score has."""
    curves = map(study.curve, filter(study.final, study.strategies))
    cycles = [set(curve) for curve in curves]
    if not cycles:
        return ()
    return marks(sorted(set.intersection(*cycles)), limit)


def is_even(study: StudyRecords) -> bool:
    """Return whether all strategies have equal numbers of labels at the checkpoints (up to
    one).
    """
    labels = [study.labels(strategy) for strategy in study.strategies]
    for cycle in checkpoints(study, 10):
        bought = [by_cycle[cycle] for by_cycle in labels if cycle in by_cycle]
        if bought and max(bought) - min(bought) > 1:
            return False
    return True


def at_labels(study: StudyRecords, strategy: str, labels: float) -> dict[int, float]:
    """Return seed -> score at a number of labels, interpolated linearly on the learning
    curve.

    Only seeds with the whole curve count. The result is empty if the curve is too short.
    """
    curve = study.curve(strategy)
    bought = study.labels(strategy)
    if not curve or not curve.keys() <= bought.keys():
        return {}
    x = [bought[cycle] for cycle in curve]
    if not x[0] <= labels <= x[-1]:
        return {}
    result = {}
    for seed in sorted(set.intersection(*map(set, curve.values()))):
        y = [scores[seed] for scores in curve.values()]
        result[seed] = float(np.interp(labels, x, y))
    return result


# -- errors -----------------------------------------------------------------------------------


def errors(study: StudyRecords, key: str) -> Blocks:
    """Return errors at a few checkpoints: by cycle, and at equal numbers of labels.

    Columns are named by numbers of labels if all strategies have equal numbers.
    """
    cycles = checkpoints(study, COLUMNS)
    if not cycles:
        return []
    names = _name_checkpoints(study, cycles)
    remark = ""
    rows = []
    for strategy in rank_strategies(study):
        cells = {heading(study.study): label_of(strategy, study.study)}
        for cycle, name in names.items():
            cells[name] = _spread(study, study.curve(strategy).get(cycle, {})) or NOTHING
            if has_diverged_at(study, strategy, cycle):
                cells[name] += MARK
                remark = f"{MARK}: a seed has diverged at this point."
        rows.append(cells)
    note = Note(f"Mean ± standard deviation over seeds; lower is better.{remark}")
    if is_even(study):
        return [Table.of("Error by labels bought", rows), note]
    return [Table.of("Error by cycle", rows), _at_equal_labels(study, cycles), note]


def _name_checkpoints(study: StudyRecords, cycles: Sequence[int]) -> dict[int, str]:
    """Return the title of the column of each cycle."""
    names = {cycle: f"Cycle {cycle}" for cycle in cycles}
    if is_even(study):
        bought = study.labels(rank_strategies(study)[0])
        for cycle in bought.keys() & names.keys():
            names[cycle] = f"{bought[cycle]:,.0f} labels"
    return names


def _spread(study: StudyRecords, scores: Mapping[int, float]) -> str | None:
    if not scores:
        return None
    return spread_of(list(scores.values())).text(digits_of(study))


def _at_equal_labels(study: StudyRecords, cycles: Sequence[int]) -> Table:
    """Return all strategies at the numbers of labels of the strategy with the fewest."""
    by_strategy = map(study.labels, study.strategies)
    complete = [labels for labels in by_strategy if cycles[-1] in labels]
    least = min(complete, key=lambda labels: labels[cycles[-1]])
    rows = []
    for strategy in rank_strategies(study):
        cells: dict[str, str | None] = {
            heading(study.study): label_of(strategy, study.study)
        }
        for cycle in cycles:
            if cycle in least:
                n = least[cycle]
                cells[f"{n:,.0f} labels"] = _spread(study, at_labels(study, strategy, n))
        rows.append(cells)
    caption = (
        "Error by number of labels, including the initial labeled set (curves "
        "interpolated linearly)"
    )
    return Table.of(caption, rows)


# -- excess over the fit with all labels ------------------------------------------------------

Excesses = Mapping[tuple[int, int], Mapping[int, float]]
"""(Index of a study, cycle) -> seed -> excess."""
EXCESS = (
    "the error in excess of the fit with all labels under the same seed and training, in "
    "percent of the latter"
)


def excess(study: StudyRecords, key: str) -> Blocks:
    """Return the median over seeds at a few checkpoints, and tests against the reference."""
    cycles = checkpoints(study, COLUMNS)
    shown = list(filter(study.excess, rank_strategies(study)))
    if not cycles or not shown:
        return []
    names = _name_checkpoints(study, cycles)
    reference = study.study.reference or ""
    tallies: Mapping[str, str] = {}
    text = f"Median over seeds of {EXCESS}. It measures the cost of selecting few examples."
    against = f"Against {label_of(reference, study.study)}"
    if reference in shown:
        tallies = tally({q: number_cycles([study], q) for q in shown}, reference)
        text += (
            " Against: number of cycles in which the strategy is better, not different, "
            "and worse; exact signed-rank test of pairs by seed, Holm over all cycles "
            f"and strategies, {LEVEL:g}."
        )
    rows = []
    for strategy in shown:
        result = study.excess(strategy)
        cells: dict[str, str | None] = {
            heading(study.study): label_of(strategy, study.study)
        }
        for cycle, name in names.items():
            cells[name] = percent(result.get(cycle, {}))
        cells[against] = tallies.get(strategy)
        rows.append(cells)
    return [Table.of("Excess error", rows), Note(text)]


def percent(excesses: Mapping[int, float]) -> str | None:
    """Return the median excess of seeds as text.

    >>> percent({0: 0.01, 1: 0.03, 2: 0.5})
    '3.00 %'
    """
    if not excesses:
        return None
    return f"{100 * median(excesses.values()):.2f} %"


def tally(excesses: Mapping[str, Excesses], reference: str) -> dict[str, str]:
    """Compare each strategy with the reference at every common checkpoint, with Holm over
    all tests.

    A smaller excess is better.  Return the numbers of checkpoints at which a strategy is better, not
    different, and worse.

    >>> base = {(0, 1): {seed: 0.5 + seed / 100 for seed in range(7)}}
    >>> less = {(0, 1): {seed: 0.3 for seed in range(7)}}
    >>> tally({"a": less, "b": base}, "b")
    {'a': '1/0/0'}
    """
    strategies: list[str] = []
    pairs: list[list[float]] = []
    for strategy, ours in excesses.items():
        for at in ours:
            d = paired_differences(ours[at], excesses[reference].get(at, {}))
            if strategy != reference and len(d) >= 2:
                strategies.append(strategy)
                pairs.append(d)
    adjusted = holm(list(map(wilcoxon_exact, pairs)))
    counts: dict[str, Counter[str]] = {}
    for strategy, d, p in zip(strategies, pairs, adjusted, strict=True):
        outcome = "same"
        if p <= LEVEL and median(d) < 0:
            outcome = "better"
        elif p <= LEVEL:
            outcome = "worse"
        counts.setdefault(strategy, Counter())[outcome] += 1
    return {
        strategy: f"{count['better']}/{count['same']}/{count['worse']}"
        for strategy, count in counts.items()
    }


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
    with_excess = [study for study in studies if any(map(study.excess, study.strategies))]
    if len(with_excess) < 2:
        return []
    first = with_excess[0]
    common: dict[str, str] = {}  # strategy -> label
    for strategy in first.strategies:
        if all(study.excess(strategy) for study in with_excess):
            common[strategy] = label_of(strategy, first.study)
    if len(common) < 2:
        return []

    rows: list[Cells] = []
    for study in with_excess:
        some = next(iter(common))
        bought = study.labels(some)
        for cycle in checkpoints(study, MAX_CHECKPOINTS):
            cells: dict[str, str | None] = {
                "Study": study.study.name,
                "Labels": f"{bought[cycle]:,.0f}",
                "Seeds": str(len(study.excess(some)[cycle])),
            }
            for strategy, name in common.items():
                cells[name] = percent(study.excess(strategy).get(cycle, {}))
            rows.append(cells)
    excesses = {strategy: number_cycles(with_excess, strategy) for strategy in common}
    against: list[Cells] = []
    for strategy, name in common.items():
        outcomes: dict[str, str | None] = {"Strategy": name}
        for other, title in common.items():
            pair = {strategy: excesses[strategy], other: excesses[other]}
            outcomes[title] = tally(pair, other).get(strategy)
        against.append(outcomes)
    blocks: Blocks = [
        Table.of("Median excess error", rows),
        Table.of("Checkpoints: better/no different/worse than", against),
        Note(
            f"Excess: {EXCESS}. Exact signed-rank test of pairs by seed, with Holm over all "
            f"checkpoints of all studies for each pair of strategies, {LEVEL:g}."
        ),
    ]
    return [("Excess errors over studies", blocks)]
