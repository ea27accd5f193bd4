"""Summary of a study in prose: the best strategies and their significance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from fallow.core.wording import count_noun, join_some
from fallow.experiment.metrics import labels_to_reach
from fallow.report.degenerate import (
    describe_baseline,
    describe_convergence,
    find_equals,
    find_one_class,
)
from fallow.report.final_table import (
    FinalTable,
    Row,
    Spread,
    final_table,
    label_of,
    number,
    p_text,
)
from fallow.report.measured import describe_measured
from fallow.report.personal import left_out
from fallow.study.names import training_of, usual_training
from fallow.study.reading import read_study
from fallow.study.records import SQUARED_ERROR, StudyRecords, read_score
from fallow.study.statistics import LEVEL, Comparison


def _describe_best(table: FinalTable, top: Row, score: Spread) -> str:
    """Describe the best strategy and its score."""
    shown = f"{table.measure.title} {score.text(table.digits)}"
    if table.measure.is_percent:
        shown = f"{score.text()} % accuracy"
    elif table.measure == SQUARED_ERROR:
        shown = f"a mean squared error of {score.text(table.digits)}"
    seeds = "one seed"
    if score.seeds != 1:
        seeds = f"mean ± sd over {score.seeds} seeds"
    has = "has the best final score:"
    if len(table.rows) == 1:
        has = "ends at"
    return f"{top.label} {has} {shown} ({seeds})."


def _describe_tests(table: FinalTable, tests: Sequence[Comparison]) -> Iterator[str]:
    """Compare the reference strategy with each other strategy."""
    names = {row.strategy: row.label for row in table.rows}
    ahead = []
    behind = []
    undecided = []
    for test in tests:
        if not test.is_distinct:
            undecided.append(names[test.strategy])
        elif (test.difference < 0) == table.measure.higher_is_better:
            ahead.append(names[test.strategy])
        else:
            behind.append(names[test.strategy])
    decided = []
    if ahead:
        decided.append(f"ahead of {join_some(ahead)}")
    if behind:
        decided.append(f"behind {join_some(behind)}")
    if decided:
        yield (
            f"{table.reference_label} is significantly {' and '.join(decided)} (exact "
            f"Wilcoxon after Holm, p ≤ {LEVEL})."
        )
    few = [test for test in tests if not test.can_tell]
    if few:
        yield (
            f"With {few[0].pairs} paired seeds, the exact test cannot reach p = {LEVEL} over "
            f"{count_noun(len(tests), 'comparison')}, so no order is claimed."
        )
    elif decided and undecided:
        yield f"Its difference to {join_some(undecided)} is not significant."
    elif undecided:
        yield (
            f"No difference is significant: {table.reference_label} cannot be distinguished "
            f"from {join_some(undecided)}."
        )


def _compare_with_random(
    table: FinalTable, top: Row, tests: Sequence[Comparison]
) -> list[str]:
    """Compare the best strategy with random sampling, the baseline of every query strategy."""
    chance = table.row("random")
    if chance is None or chance.score is None or len(table.rows) == 1:
        return []
    if top.strategy == "random":
        return ["No strategy has a better mean than random sampling."]
    for test in tests:
        is_about_both = {test.strategy, test.reference} == {"random", top.strategy}
        if is_about_both and test.can_tell and not test.is_distinct:
            gap = number(abs(test.difference), table.digits)
            if table.measure.is_percent:
                gap = f"{gap} points"
            return [
                f"Random sampling is as good: {top.label} is ahead by only {gap} (Holm p = "
                f"{p_text(test.holm)})."
            ]
    return []


def describe_cautions(study: StudyRecords) -> str:
    """Describe why scores may mean nothing: a constant model, or training that has not converged.

    "" without a reason.
    """
    sentences = [
        *_describe_degenerate(study),
        describe_baseline(study),
        describe_convergence(study),
    ]
    return " ".join(filter(None, sentences))


def _describe_degenerate(study: StudyRecords) -> Iterator[str]:
    """Describe degenerate results: constant models and strategies with identical results."""
    labels = {name: label_of(name, study.study) for name in study.strategies}
    one_class = find_one_class(study)
    if one_class:
        runs = count_noun(sum(map(len, one_class.values())), "run")
        names = join_some([labels[strategy] for strategy in one_class])
        yield (
            f"{runs} of {names} ended with a model that predicts only one class. These "
            "scores do not compare strategies."
        )
    groups: dict[str, list[str]] = {}
    for strategy, first in find_equals(study).items():
        groups.setdefault(first, [labels[first]]).append(labels[strategy])
    for group in groups.values():
        yield f"The scores of {join_some(group)} are identical."


def read_headline(folder: Path) -> str:
    """Return the first sentence of the report of a study, for its status and its model card.

    It says if the scores mean nothing, such as those of a model that predicts only one class.
    """
    study = read_study(folder)
    return summarize(study, final_table(study))[0]


def summary(study: StudyRecords, table: FinalTable) -> str:
    """Summarize the study in a few sentences."""
    return " ".join(summarize(study, table))


def summarize(study: StudyRecords, table: FinalTable) -> list[str]:
    """Return the sentences of a summary, the most important one first."""
    # the best row comes first
    top = next((row for row in table.rows if row.score and not row.is_bound), None)
    if top is None or top.score is None:
        records = list(chain.from_iterable(cell.records for cell in study.cells))
        if records and all(read_score(one, study.measure) is None for one in records):
            return [
                "There is no score: no site has test examples, or there are too few of them."
            ]
        return ["No run has a final score yet."]
    tests = [row.comparison for row in table.rows if row.comparison]
    sentences = [
        *_describe_degenerate(study),
        describe_baseline(study),
        _describe_best(table, top, top.score),
    ]
    absent = left_out(study)
    if absent and not study.study.config.get("flip"):
        sentences.append(
            f"The last scores exclude {join_some(absent)}, which reported none."
        )
    if not tests:
        sentences.append(table.untested)
    sentences += _describe_tests(table, tests)
    sentences += _compare_with_random(table, top, tests)
    sentences += describe_measured(study, top.strategy)
    if study.missing:
        total = len(study.study.strategies) * len(study.study.seeds)
        done = total - len(study.missing)
        sentences.append(f"Preliminary: {done} of {total} runs are complete.")
    return [sentence for sentence in sentences if sentence]


def best_of_each_training(study: StudyRecords, table: FinalTable) -> str:
    """Describe the best strategy of each training algorithm, and the bound with all labels.

    Return "" without scores, and for errors. Training algorithms are in the order of the
    study.
    """
    described = study.study
    ranked = [row for row in table.rows if row.score and not row.is_bound]  # the best first
    if not ranked or not table.measure.is_percent:
        return ""
    best: dict[str, str] = {}  # by training algorithm
    for row in ranked:
        training = training_of(described, row.strategy)
        if row.score and training not in best:
            best[training] = f"{row.label} {row.score.mean:.1f} %"
    share = max(study.fractions(ranked[0].strategy).values())
    sentence = (
        f"With {100 * share:.0f} % of the examples labeled, the test accuracy of the best strategy of "
        f"each training algorithm is {', '.join(best.values())}"
    )
    bound = table.row("bound:all-labels")
    if bound is not None and bound.score is not None:
        usual = usual_training(described)
        sentence += f"; that of {usual} with all labels is {bound.score.mean:.1f} %"
    return f"{sentence}."


def describe_labels_to(study: StudyRecords, table: FinalTable, target: float) -> str:
    """Describe the number of labels that each strategy needs to reach an accuracy, the
    fewest first.

    Mean accuracies are interpolated linearly between cycles. Return "" for errors.
    """
    if not table.measure.is_percent:
        return ""
    reached: list[tuple[float, str]] = []
    never: list[str] = []
    for row in table.rows:
        labels = study.labels(row.strategy)
        curve = {
            cycle: fmean(scores.values())
            for cycle, scores in study.curve(row.strategy).items()
        }
        cycles = [cycle for cycle in sorted(curve) if labels.get(cycle)]
        if row.is_bound or len(cycles) < 2:
            continue
        bought = [labels[cycle] for cycle in cycles]
        needed = labels_to_reach(bought, [curve[cycle] for cycle in cycles], target)
        if needed is None:
            never.append(f"{row.label} more than {bought[-1]:.0f}")
        elif needed == bought[0]:
            reached.append((needed, f"{row.label} at most {needed:.0f}"))
        else:
            reached.append((needed, f"{row.label} {needed:.0f}"))
    shown = [*(text for _, text in sorted(reached)), *never]
    if not shown:
        return ""
    return f"Labels to {100 * target:.0f} % accuracy: {', '.join(shown)}."
