"""Summary of a study in prose: the best strategies and their significance."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fallow.core.wording import count_noun, join_some
from fallow.experiment.metrics import labels_to_reach
from fallow.report.final_table import FinalTable, Row, Spread, number
from fallow.report.findings.degenerate import describe_baseline, find_equals, find_one_class
from fallow.report.findings.personal import left_out
from fallow.report.tables import p_text
from fallow.study.names import training_of, usual_training
from fallow.study.records import SQUARED_ERROR, StudyRecords, read_score
from fallow.study.statistics import LEVEL, Comparison


def _gap(table: FinalTable, points: float) -> str:
    distance = number(abs(points), table.digits)
    if table.measure.is_percent:
        return f"{distance} points"
    return distance


def leader(table: FinalTable) -> tuple[Row, Spread] | None:
    """Return the strategy with the best mean, the first one in a tie, and its score."""
    rows = [(row, row.score) for row in table.rows if row.score and not row.is_bound]
    if not rows:
        return None

    def mean(pair: tuple[Row, Spread]) -> float:
        return pair[1].mean

    if table.measure.higher_is_better:
        return max(rows, key=mean)
    return min(rows, key=mean)


def _standing(table: FinalTable, top: Row, score: Spread) -> str:
    """Describe the best strategy and its score."""
    if table.measure.is_percent:
        shown = f"{score.text()} % accuracy"
    else:
        shown = f"{table.measure.title} {score.text(table.digits)}"
        if table.measure == SQUARED_ERROR:
            shown = f"a mean squared error of {score.text(table.digits)}"
    seeds = f"mean ± sd over {score.seeds} seeds"
    if score.seeds == 1:
        seeds = "one seed"
    has = "has the best final score:"
    if len(table.rows) == 1:
        has = "ends at"
    return f"{top.label} {has} {shown} ({seeds})."


def _is_worse(table: FinalTable, c: Comparison) -> bool:
    """Return whether the strategy of a comparison scored worse than the reference."""
    if table.measure.higher_is_better:
        return c.difference < 0
    return c.difference > 0


def _side(table: FinalTable, c: Comparison) -> str:
    """Return whether the reference is better or worse than the strategy of a comparison."""
    if not c.is_distinct:
        return "not told apart from"
    if _is_worse(table, c):
        return "ahead of"
    return "behind"


def _verdicts(table: FinalTable, tests: Sequence[Comparison]) -> list[str]:
    """Compare the reference strategy with each other strategy."""
    names = {row.strategy: row.label for row in table.rows}
    reference = names.get(table.reference or "", "the reference")
    groups: dict[str, list[str]] = {"ahead of": [], "behind": [], "not told apart from": []}
    for c in tests:
        groups[_side(table, c)].append(names[c.strategy])
    undecided = groups.pop("not told apart from")
    decided = [f"{side} {join_some(result)}" for side, result in groups.items() if result]
    sentences = []
    if decided:
        sentences.append(
            f"{reference} is significantly {' and '.join(decided)} (exact Wilcoxon after "
            f"Holm, p ≤ {LEVEL})."
        )
    if not undecided or not all(test.can_tell for test in tests):
        return sentences
    if decided:
        sentences.append(f"Its difference to {join_some(undecided)} is not significant.")
    else:
        sentences.append(
            f"No difference is significant: {reference} cannot be distinguished from "
            f"{join_some(undecided)}."
        )
    return sentences


def _about_random(table: FinalTable, top: Row, tests: Sequence[Comparison]) -> str:
    """Compare the best strategy with random sampling, the baseline of every query strategy."""
    chance = table.row("random")
    if chance is None or chance.score is None:
        return ""
    if len(table.rows) == 1:
        return ""
    if top.strategy == "random":
        return "No strategy has a better mean than random sampling."
    for test in tests:
        is_about_both = {test.strategy, test.reference} == {"random", top.strategy}
        if is_about_both and test.can_tell and not test.is_distinct:
            return (
                f"Random sampling is as good: {top.label} is ahead by only "
                f"{_gap(table, test.difference)} (Holm p = {p_text(test.holm)})."
            )
    return ""


def _degenerate(study: StudyRecords, table: FinalTable) -> list[str]:
    """Describe degenerate results: constant models and strategies with identical results."""
    sentences = []
    labels = {row.strategy: row.label for row in table.rows}
    one_class = find_one_class(study)
    if one_class:
        runs = count_noun(sum(len(seeds) for seeds in one_class.values()), "run")
        names = join_some([labels[strategy] for strategy in one_class])
        sentences.append(
            f"{runs} of {names} ended with a model that predicts only one class. These "
            "scores do not compare strategies."
        )
    equals = find_equals(study)
    groups: dict[str, list[str]] = {}
    for strategy, first in equals.items():
        groups.setdefault(first, [labels[first]]).append(labels[strategy])
    for group in groups.values():
        sentences.append(f"The scores of {join_some(group)} are identical.")
    return sentences


def _why_no_score(study: StudyRecords) -> str:
    """Explain why a study has no final score."""
    records = [record for cell in study.cells for record in cell.records]
    scores = [read_score(record, study.measure) for record in records]
    if scores and not any(score is not None for score in scores):
        return "There is no score: no site has test examples, or there are too few of them."
    return "No run has a final score yet."


def summary(study: StudyRecords, table: FinalTable) -> str:
    """Summarize the study in a few sentences."""
    result = leader(table)
    if result is None:
        return _why_no_score(study)
    top, score = result
    tests = [row.comparison for row in table.rows if row.comparison]
    sentences = [
        *_degenerate(study, table),
        describe_baseline(study),
        _standing(table, top, score),
    ]
    absent = left_out(study)
    if absent and not study.study.recipe.get("flip"):
        sentences.append(
            f"The last scores exclude {join_some(absent)}, which reported none."
        )
    if tests:
        sentences += _verdicts(table, tests)
        sentences += _too_few(tests)
    else:
        sentences.append(table.untested)
    sentences.append(_about_random(table, top, tests))
    if study.missing:
        total = len(study.study.strategies) * len(study.study.seeds)
        done = total - len(study.missing)
        sentences.append(f"Preliminary: {done} of {total} runs are complete.")
    return " ".join(sentence for sentence in sentences if sentence)


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


def _too_few(tests: Sequence[Comparison]) -> list[str]:
    """Explain that no order is claimed because there are too few seeds."""
    few = [test for test in tests if not test.can_tell]
    if not few:
        return []
    return [
        f"With {few[0].pairs} paired seeds, the exact test cannot reach p = {LEVEL} over "
        f"{count_noun(len(tests), 'comparison')}, so no order is claimed."
    ]
