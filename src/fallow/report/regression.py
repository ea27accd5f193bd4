"""Report sections on regression: errors by labels, costs, divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.core.wording import join_words, size
from fallow.report.blocks import Blocks, Note, Table
from fallow.report.columns import NOTHING
from fallow.report.costs import last_counts, mean_text
from fallow.report.final_table import digits_of, label_of, rank_strategies, spread_of
from fallow.report.findings.checkpoints import at_labels, checkpoints, is_even
from fallow.report.findings.degenerate import FAR, find_diverged, has_diverged_at
from fallow.study.names import heading, penalized_training, training_tags
from fallow.study.records import StudyRecords

COLUMNS = 5
"""Maximum number of checkpoints with a column in the table of errors."""

MARK = " †"


# -- divergence -------------------------------------------------------------------------------


def warnings(study: StudyRecords) -> list[str]:
    """Return a warning about diverged runs with a remedy, or nothing."""
    diverged = find_diverged(study)
    solved = {
        strategy: diverged[strategy] for strategy in diverged if is_solved(study, strategy)
    }
    steps = {
        strategy: diverged[strategy] for strategy in diverged if strategy not in solved
    }
    output = []
    if steps:
        output.append(
            f"Diverged: {_who(study, steps)}. Their error is more than {FAR:g} times that of "
            "predicting the mean, or not a number. Scale the features, or lower the learning rate "
            "(lr)."
        )
    if solved:
        penalized = {penalized_training(study.study, strategy) for strategy in solved}
        cures = join_words([f"training={cure}" for cure in sorted(penalized)], last="or")
        output.append(
            f"Diverged: {_who(study, solved)}. With few labels, least squares leaves "
            f"directions of the features undetermined. Buy more labels, or use {cures}."
        )
    return output


def is_solved(study: StudyRecords, strategy: str) -> bool:
    """Return whether the models of a strategy are closed-form."""
    return "least-squares" in training_tags(study.study, strategy)


def _who(study: StudyRecords, counts: Mapping[str, Mapping[int, int]]) -> str:
    """Return text such as ``random (seeds 0 and 2, first in cycle 1)``, for each strategy."""
    output = []
    for strategy, cycle_of_seed in counts.items():
        word = "seeds"
        if len(cycle_of_seed) == 1:
            word = "seed"
        seeds = join_words([str(seed) for seed in sorted(cycle_of_seed)])
        first = min(cycle_of_seed.values())
        name = label_of(strategy, study.study)
        output.append(f"{name} ({word} {seeds}, first in cycle {first})")
    return join_words(output)


# -- errors -----------------------------------------------------------------------------------


def errors(study: StudyRecords, key: str) -> Blocks:
    """Return errors at a few checkpoints: by cycle, and at equal numbers of labels."""
    cycles = checkpoints(study, COLUMNS)
    if not cycles:
        return []
    tables = [_by_cycle(study, cycles)]
    if not is_even(study):
        tables.append(_at_equal_labels(study, cycles))

    text = "Mean ± standard deviation over seeds; lower is better."
    cells = [cell for row in tables[0].rows for cell in row]
    if any(cell.endswith(MARK) for cell in cells):
        text += f"{MARK}: a seed has diverged at this point."
    return [*tables, Note(text)]


def _by_cycle(study: StudyRecords, cycles: Sequence[int]) -> Table:
    """Return the errors of all strategies at the same cycles.

    Columns are named by numbers of labels if all strategies have equal numbers.
    """
    ranked = rank_strategies(study)
    rows = []
    for strategy in ranked:
        errors_of_strategy = [_error(study, strategy, cycle) for cycle in cycles]
        rows.append([label_of(strategy, study.study), *errors_of_strategy])

    caption = "Error by cycle"
    names = {cycle: f"Cycle {cycle}" for cycle in cycles}
    if is_even(study):
        caption = "Error by labels bought"
        bought = study.labels(ranked[0])
        for cycle in bought.keys() & names.keys():
            names[cycle] = f"{bought[cycle]:,.0f} labels"
    return Table(caption, header=[heading(study.study), *names.values()], rows=rows)


def _error(study: StudyRecords, strategy: str, cycle: int) -> str:
    text = _spread(study, study.curve(strategy).get(cycle, {}))
    if has_diverged_at(study, strategy, cycle):
        text += MARK
    return text


def _spread(study: StudyRecords, scores: Mapping[int, float]) -> str:
    if not scores:
        return NOTHING
    return spread_of(list(scores.values())).text(digits_of(study))


def _at_equal_labels(study: StudyRecords, cycles: Sequence[int]) -> Table:
    """Return all strategies at the numbers of labels of the strategy with the fewest."""
    last = cycles[-1]
    by_strategy = [study.labels(strategy) for strategy in study.strategies]
    least = min(
        (labels for labels in by_strategy if last in labels),
        key=lambda labels: labels[last],
    )
    columns = [least[cycle] for cycle in cycles if cycle in least]
    rows = []
    for strategy in rank_strategies(study):
        errors_of_strategy = [
            _spread(study, at_labels(study, strategy, n)) for n in columns
        ]
        rows.append([label_of(strategy, study.study), *errors_of_strategy])
    names = [f"{n:,.0f} labels" for n in columns]
    return Table(
        "Error by number of labels, including the initial labeled set (curves "
        "interpolated linearly)",
        header=[heading(study.study), *names],
        rows=rows,
    )


# -- costs ------------------------------------------------------------------------------------


def costs(study: StudyRecords, key: str) -> Blocks:
    """Return the final error and the communication between coordinator and sites until
    then.
    """
    shown = [q for q in rank_strategies(study) if study.final(q)]
    if not shown:
        return []
    rows = [
        [
            label_of(q, study.study),
            _spread(study, study.final(q)),
            mean_text(last_counts(study, q, "labeled"), lambda n: f"{n:,.0f}"),
            mean_text(_exchanges(study, q), lambda n: f"{n:,.0f}"),
            mean_text(last_counts(study, q, "bytes_up"), size),
            mean_text(last_counts(study, q, "bytes_down"), size),
        ]
        for q in shown
    ]
    header = [
        heading(study.study),
        "Error",
        "Labels",
        "Exchanges",
        "Sites to server",
        "Server to sites",
    ]
    return [
        Table("At the last checkpoint, mean over seeds", header, rows),
        Note(
            "Exchanges are round trips between the coordinator and all sites: models, "
            "aggregates and instructions together. Bytes are of all sites. Over a "
            "network, each exchange costs seconds."
        ),
    ]


def _exchanges(study: StudyRecords, strategy: str) -> list[float]:
    """Return the number of round trips of a run for each seed whose records count them."""
    counts = []
    for cell in study.of(strategy):
        if not cell.records:
            continue
        entries = cell.records[-1].get("revealed")
        if entries:
            counts.append(float(sum(entry.get("exchanges") or 0 for entry in entries)))
    return counts
