"""Report section on closed-form classifiers."""

from __future__ import annotations

from fallow.core.wording import count_noun, join_words
from fallow.report.blocks import Block, Blocks, Notes, Table
from fallow.report.columns import NOTHING
from fallow.report.final_table import digits_of, label_of, rank_strategies, spread_of
from fallow.report.findings.checkpoints import checkpoints
from fallow.report.findings.closed_form import (
    PenaltiesAtEnd,
    SelfTraining,
    find_at_end,
    find_self_training,
    find_unlabeled,
    left_out_score,
)
from fallow.report.findings.labels import over_cycles
from fallow.study.names import heading
from fallow.study.records import StudyRecords
from fallow.training.parts.ridge import PENALTIES
from fallow.training.parts.self_training import FEWEST, FEWEST_A_CLASS

COLUMNS = 5
"""Maximum number of cycles with a column."""

LEFT_OUT = (
    "Each labeled example is predicted by a classifier that is trained on all others, so "
    "no test example is needed. The score is lower than on all examples if a strategy "
    "prefers hard examples. Mean ± standard deviation over seeds. D is the number of "
    "features; λ (penalty) and T (temperature) are the values in the last cycle. D "
    "matters more than λ."
)


def closed_form(study: StudyRecords, key: str) -> Blocks:
    """Return leave-one-out choices and estimates of each cycle, with warnings."""
    blocks: list[Block] = []
    table = _chosen(study)
    notes = [*_at_ends(study), *_about_self_training(study), *_about_unlabeled(study)]
    if table is not None:
        blocks.append(table)
        notes = [LEFT_OUT, *notes]
    if notes:
        blocks.append(Notes(notes))
    return blocks


def _chosen(study: StudyRecords) -> Table | None:
    """Return λ and T at the end, and the leave-one-out score in a few cycles."""
    cycles = checkpoints(study, COLUMNS)
    rows = []
    for strategy in rank_strategies(study):
        scores = over_cycles(study, strategy, left_out_score)
        if not scores:
            continue
        row = [
            label_of(strategy, study.study),
            _range(study, strategy, "features", digits=6),
            _range(study, strategy, "penalty"),
            _range(study, strategy, "temperature"),
        ]
        for cycle in cycles:
            row.append(_spread(study, scores.get(cycle, [])))
        rows.append(row)
    if not rows:
        return None

    caption = "Leave-one-out mean squared error on labeled examples"
    if not study.is_regression:
        caption = "Leave-one-out accuracy on labeled examples, %"
    names = [f"Cycle {cycle}" for cycle in cycles]
    return Table(caption, header=[heading(study.study), "D", "λ", "T", *names], rows=rows)


def _spread(study: StudyRecords, scores: list[float]) -> str:
    if not scores:
        return NOTHING
    return spread_of(scores).text(digits_of(study))


def _range(study: StudyRecords, strategy: str, name: str, digits: int = 2) -> str:
    """Return the smallest and the largest value over seeds at the end, or one value if all
    are equal.
    """
    values: list[float] = []
    for cell in study.of(strategy):
        if not cell.records:
            continue
        value = cell.records[-1].get(name)
        if isinstance(value, int | float):
            values.append(value)
    if not values:
        return NOTHING
    low = f"{min(values):.{digits}g}"
    high = f"{max(values):.{digits}g}"
    if low == high:
        return low
    return f"{low} to {high}"


def _at_ends(study: StudyRecords) -> list[str]:
    """Warn if λ is at an end of its grid, because the best value may lie beyond it."""
    outcome = find_at_end(study)
    if not outcome:
        return []
    named = [
        f"{label_of(strategy, study.study)} ({_ends(ends)})"
        for strategy, ends in outcome.items()
    ]
    return [
        f"λ is at an end of its grid of {PENALTIES[0]:g} to {PENALTIES[-1]:g}: "
        f"{join_words(named)}. The best value may lie beyond it. At the low end, other or "
        "more features may fit better; at the high end, fewer features or more labels."
    ]


def _ends(ends: PenaltiesAtEnd) -> str:
    """Return text such as ``the low end in 2 of 9 classifiers``."""
    output = []
    if ends.lowest:
        output.append(f"the low end in {ends.lowest}")
    if ends.highest:
        output.append(f"the high end in {ends.highest}")
    return f"{join_words(output)} of {ends.heads} classifiers"


def _about_self_training(study: StudyRecords) -> list[str]:
    """Describe which form of self-training was selected in the last cycle, and why."""
    named = []
    for strategy, forms in find_self_training(study).items():
        listed = join_words([_describe_form(form) for form in forms])
        named.append(f"{label_of(strategy, study.study)}: {listed}")
    if not named:
        return []
    return [
        "Form of self-training with unlabeled examples in the last cycle, by five-fold "
        f"cross-validation over labeled examples. {'; '.join(named)}."
    ]


def _describe_form(training: SelfTraining) -> str:
    """Return text such as ``sharp in 8 seeds (+3.2 points in held-out accuracy)``."""
    seeds = count_noun(training.seeds, "seed")
    if training.gain is None:
        return (
            f"none in {seeds} (fewer than {FEWEST_A_CLASS} labels per class or {FEWEST} in all, or "
            "no unlabeled example)"
        )
    if training.form == "off":
        return f"none in {seeds} (no form was better by more than one standard error)"
    return f"{training.form} in {seeds} ({100 * training.gain:+.1f} points in held-out accuracy)"


def _about_unlabeled(study: StudyRecords) -> list[str]:
    """Describe which classes have no label, so that no classifier predicts them."""
    output = []
    for strategy, by_seed in find_unlabeled(study).items():
        cases = []
        for seed, absent in sorted(by_seed.items()):
            names = join_words(_class_names(study, seed, absent))
            cases.append(f"{names} under seed {seed}")
        output.append(f"{label_of(strategy, study.study)} ({', '.join(cases)})")
    if not output:
        return []
    return [
        "Classes without a label at the end, which a closed-form classifier never predicts: "
        f"{join_words(output)}."
    ]


def _class_names(study: StudyRecords, seed: int, classes: list[int]) -> list[str]:
    """Return the names of the classes, or their numbers if the partition has no names."""
    part = study.partitions.get(seed)
    if part is None:
        return [str(label) for label in classes]
    return [part.classes[label] for label in classes]
