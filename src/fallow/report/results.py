"""Report sections on results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import fmean

from matplotlib.figure import Figure as Drawing

from fallow.core.wording import count_noun, join_words
from fallow.report import alt_text
from fallow.report.blocks import Block, Blocks, Note, Notes, Table, present, show_figure
from fallow.report.figures import study as draw
from fallow.report.figures.style import looks, named_in_figures, with_band
from fallow.report.final_table import (
    FinalTable,
    Row,
    final_table,
    label_of,
    rank_strategies,
    signs,
    spread_of,
)
from fallow.report.findings import labels
from fallow.report.tables import comparison_columns, footnotes, score_columns, to_csv
from fallow.study.by_class import ClassScores, class_scores
from fallow.study.names import heading, trainings_differ, usual_training
from fallow.study.records import StudyRecords

# -- learning curves --------------------------------------------------------------------------


def _name(study: StudyRecords, strategy: str) -> str:
    return label_of(strategy, study.study)


def _of(study: StudyRecords, strategies: Sequence[str]) -> str:
    return join_words([_name(study, q) for q in strategies])


def _faint(study: StudyRecords) -> str:
    """Describe the strategies that figures draw without a name, if there are any."""
    rest = len(study.strategies) - len(named_in_figures(study))
    if not rest:
        return ""
    return f" The {rest} other strategies are gray; the table has their names."


def curves(study: StudyRecords, key: str) -> Blocks:
    """Return the section on learning curves."""
    figure = draw.learning_curves(study)
    if figure is None:
        return [Note("No cycle has a score yet.")]
    better = "lower down"
    if study.higher_is_better:
        better = "higher up"
    lines = (
        "Lines are means over seeds, bands are one standard deviation to each "
        f"side{_whose_bands(study)}"
    )
    if study.bounds:
        lines += "; dashed lines are upper bounds"
        # strategies with another training can exceed the bound
        if heading(study.study) == "Strategy" and trainings_differ(study.study):
            lines += f" of {usual_training(study.study)}"
    caption = (
        f"Lines {better} are better: they need fewer labels for the same score. {lines}. "
        f"Hover over a mark to read its value.{_faint(study)}"
    )
    return [show_figure(figure, f"{key}-curves", caption, alt=alt_text.curves(study))]


def _whose_bands(study: StudyRecords) -> str:
    """Describe which strategies have a band, if not all have one."""
    strategies = with_band(study)
    if strategies == study.strategies:
        return ""
    return f" (of {_of(study, strategies)} only)"


# -- final scores -----------------------------------------------------------------------------


def _mark(row: Row, final: FinalTable) -> str:
    """Return the CSS class of a row, different for the reference and for bounds."""
    bounds = [item.strategy for item in final.rows if item.is_bound]
    if row.strategy in bounds[:1]:
        return "bound first"
    if row.is_bound:
        return "bound"
    if row.strategy == final.reference:
        return "reference"
    return ""


def scores(study: StudyRecords, key: str) -> Blocks:
    """Return the final table with its tests, and the agreement with published differences."""
    final = final_table(study)
    blocks: list[Block | None] = [
        _final_scores(study, final),
        _differences(study, final, key),
        _tests(study, final),
        Notes(footnotes(final)),
        *_signs(final),
    ]
    return present(blocks)


def _final_scores(study: StudyRecords, final: FinalTable) -> Table:
    look = looks(study)
    columns = score_columns(final)
    return Table(
        "Final score",
        header=list(columns),
        rows=list(zip(*columns.values(), strict=True)),
        classes=[_mark(row, final) for row in final.rows],
        swatches=[look[row.strategy].on_page for row in final.rows],
        numbers=to_csv(final),
    )


def _differences(study: StudyRecords, final: FinalTable, key: str) -> Block | None:
    """Return the figure of differences by seed, which the tests below are about."""
    figure = draw.differences(study, final)
    if figure is None:
        return None
    reference = _name(study, final.reference or "")
    side = "left"
    if study.higher_is_better:
        side = "right"
    caption = (
        f"Each small dot is the difference of a strategy to {reference} for one seed. The "
        "diamond is the mean, the bar its 95 % Student interval. Intervals that exclude "
        f"zero are significant before correction. Further to the {side} is better."
    )
    return show_figure(
        figure, f"{key}-differences", caption, alt=alt_text.differences(final)
    )


def _tests(study: StudyRecords, final: FinalTable) -> Table | None:
    columns = comparison_columns(final)
    if not columns:
        return None
    look = looks(study)
    names = score_columns(final)[final.heading]
    cells = list(zip(names, *columns.values(), strict=True))
    rows = []
    swatches = []
    for row, texts in zip(final.rows, cells, strict=True):
        if row.comparison:
            rows.append(texts)
            swatches.append(look[row.strategy].on_page)
    return Table(
        "Differences to the reference, paired over seeds",
        header=[final.heading, *columns],
        rows=rows,
        swatches=swatches,
    )


def _signs(final: FinalTable) -> list[Block]:
    """Compare the ranking with the published one, if there is one."""
    result = signs(final)
    if not result:
        return []
    name = "reference"
    reference = final.row(final.reference or "")
    if reference is not None:
        name = reference.label
    rows = []
    for sign in result:
        agreement = "opposite"
        if sign.agrees:
            agreement = "same"
        row = [sign.label, f"{sign.measured:+.2f}", f"{sign.printed:+.2f}", agreement]
        rows.append(row)
    agreeing = sum(sign.agrees for sign in result)
    table = Table(
        f"Minus {name}, measured and published (points)",
        header=[final.heading, "Measured", "Published", "Sign"],
        rows=rows,
    )
    text = (
        f"{agreeing} of {len(result)} published signs are reproduced. A sign does not "
        "show the size of a difference, and the sign of a difference within chance is "
        "unreliable."
    )
    return [table, Note(text)]


# -- classes ----------------------------------------------------------------------------------


def _by_rank(study: StudyRecords) -> list[ClassScores]:
    """Return the accuracies by class, the best strategy first."""
    order = rank_strategies(study)
    return sorted(class_scores(study), key=lambda scored: order.index(scored.strategy))


def classes(study: StudyRecords, key: str) -> Blocks:
    """Return accuracy by class, and the gap between evenly and unevenly distributed
    classes.
    """
    figure = draw.class_accuracy(study)
    if figure is None:
        return [Note("The records have no accuracy by class.")]
    others = ""
    if _faint(study):
        others = " Gray bars span the other strategies."
    caption = (
        "Higher dots on the left mean a better accuracy on the classes that are hard to "
        f"learn. One dot per class and strategy: last cycle, mean over seeds.{others}"
    )
    drawn = show_figure(figure, f"{key}-classes", caption, alt=alt_text.classes(study))
    rows = [_gap(study, scored) for scored in _by_rank(study) if scored.halves]
    if not rows:
        return [drawn]
    table = Table(
        "Accuracy of low- and high-variance classes, %",
        header=[heading(study.study), "Low-variance", "High-variance", "Gap", "Seeds"],
        rows=rows,
    )
    note = (
        "High-variance classes are the half of the classes whose shares differ most "
        "between sites in the partition of the seed (population standard deviation of "
        "the shares). For an odd number of classes, the middle class is in neither half; "
        "ties are ordered by class number. A gap near 0 means that both halves are "
        "learned equally well."
    )
    return [drawn, table, Note(note)]


def _gap(study: StudyRecords, scored: ClassScores) -> list[str]:
    """Return the row of one strategy: both halves and their gap, in per cent."""
    low = [100 * half.low for half in scored.halves]
    high = [100 * half.high for half in scored.halves]
    gap = [100 * half.gap for half in scored.halves]
    cells = [spread_of(values).text() for values in (low, high, gap)]
    return [_name(study, scored.strategy), *cells, str(len(scored.halves))]


def partition(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the partition of examples."""
    parts = study.partitions
    figure = draw.partition_map(study)
    if figure is None or not parts:
        return [Note("No run has recorded its partition yet.")]
    first = min(parts)
    kl = spread_of([part.kl for part in parts.values()]).text()
    variation = fmean(part.variation for part in parts.values())
    absent = fmean(chain.from_iterable(part.absent for part in parts.values()))
    caption = (
        "Dark cells show sites with many examples of a class; pale cells show sites "
        f"without it. This is the partition of seed {first}. Over "
        f"{count_noun(len(parts), 'seed')}, a site's classes differ from the pooled ones "
        f"by KL = {kl} nats (total variation {variation:.2f}), and a site lacks "
        f"{absent:.1f} of {len(parts[first].classes)} classes on average."
    )
    words = alt_text.partition(parts[first])
    return [show_figure(figure, f"{key}-partition", caption, alt=words)]


# -- labels over cycles -----------------------------------------------------------------------


LABELS: dict[str, tuple[labels.Value, int]] = {
    "Rarer classes, %": (labels.minority_share, 1),
    "Entropy": (labels.label_entropy, 3),
    "Gini": (labels.label_gini, 3),
    "KL, nats": (labels.label_kl, 2),
    "Total variation": (labels.label_variation, 2),
    "Empty cells": (labels.label_gaps, 1),
}
"""Label statistics at the end, with the number of digits."""


def _labels_table(study: StudyRecords) -> list[Block]:
    """Return the final balance of the labels, and its correlation with the score."""
    rows = []
    for strategy in rank_strategies(study):
        means = _last_balance(study, strategy)
        if means:
            rows.append([_name(study, strategy), *means])
    if not rows:
        return []
    text = (
        "Mean over seeds. Entropy (1 is even) and Gini (0 is even) are of all labels "
        "together. KL and total variation compare each site's labels with all labels, "
        "mean over sites. Empty cells are pairs of site and class without a label."
    )
    table = Table("Labels at the end", header=[heading(study.study), *LABELS], rows=rows)
    return [table, Note(f"{text} {_goes_with(study)}".strip())]


def _last_balance(study: StudyRecords, strategy: str) -> list[str]:
    """Return each number of `LABELS` in the last cycle, mean over seeds; "" if one is
    missing.
    """
    last = study.last_cycle(strategy)
    if last is None:
        return []
    texts = []
    for value, digits in LABELS.values():
        by_seed = labels.over_cycles(study, strategy, value).get(last)
        if by_seed is None:
            return []
        texts.append(f"{fmean(by_seed):.{digits}f}")
    return texts


def _goes_with(study: StudyRecords) -> str:
    """Describe the correlation of rare classes among the labels with the final score."""
    result = labels.minority_and_score(study)
    if result is None:
        return ""
    within = ""
    if len(result.by_seed) > 1:
        within = f"; within a seed {spread_of(result.by_seed).text()}"
    return (
        f"Over the {result.strategies} strategies, the share of the rarer classes and the "
        f"final score correlate with r = {result.pearson:.2f} (ranks: "
        f"{result.spearman:.2f}{within})."
    ).replace("-", "−")


def balance(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the balance of the labels."""
    figure: Drawing | None = draw.label_balance(study)
    if figure is None:
        return [Note("The records have no number of labels by class.")]
    caption = (
        "Left: the share of the rarer half of the classes among all labels; higher is "
        "more even, and 50 % is even for an even number of classes. Right: distance of a "
        "site's labeled classes from all labeled classes; lower is more similar."
    )
    words = alt_text.balance(study)
    drawn = show_figure(figure, f"{key}-balance", caption, alt=words)
    return [drawn, *_labels_table(study)]
