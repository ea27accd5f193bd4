"""Report sections on results."""

from __future__ import annotations

from itertools import chain
from statistics import fmean

from fallow.core.wording import count_noun, join_some, join_words
from fallow.report.blocks import Block, Blocks, Note, Notes, Table, present, show_figure
from fallow.report.by_class import class_means, class_names, class_scores, name_outcome
from fallow.report.figures import study as draw
from fallow.report.figures.style import looks, named_in_figures, with_band
from fallow.report.final_table import (
    FinalTable,
    Row,
    final_table,
    label_of,
    number,
    rank_strategies,
    signs,
    spread_of,
    with_interval,
)
from fallow.report.labels import DIGITS, balance_over_cycles, minority_and_score
from fallow.report.published import heading_of_published
from fallow.report.tables import comparison_cells, footnotes, score_cells, to_csv
from fallow.study.names import heading, trainings_differ, usual_training
from fallow.study.records import ClassCounts, StudyRecords

# -- learning curves --------------------------------------------------------------------------


def curves(study: StudyRecords, key: str) -> Blocks:
    """Return the section on learning curves."""
    figure = draw.learning_curves(study)
    if figure is None:
        return [Note("No cycle has a score yet.")]
    better = "lower down"
    if study.higher_is_better:
        better = "higher up"
    lines = "Lines are means over seeds, bands are one standard deviation to each side"
    banded = with_band(study)
    if banded != study.strategies:
        names = join_words([label_of(strategy, study.study) for strategy in banded])
        lines += f" (of {names} only)"
    if study.bounds:
        lines += "; dashed lines are upper bounds"
        # strategies with another training can exceed the bound
        if heading(study.study) == "Strategy" and trainings_differ(study.study):
            lines += f" of {usual_training(study.study)}"
    caption = (
        f"Lines {better} are better: they need fewer labels for the same score. {lines}. "
        "Hover over a mark to read its value."
    )
    rest = len(study.strategies) - len(named_in_figures(study))
    if rest:
        caption += f" The {rest} other strategies are gray; the table has their names."
    final = final_table(study)
    ends = []
    for row in final.rows:
        if row.score:
            ends.append(
                f"{row.name} {number(row.score.mean, final.digits)}{study.measure.sign}"
            )
    alt = (
        f"Learning curves: test {study.measure.title} over the labels bought. Final scores, "
        f"best first: {join_some(ends)}."
    )
    return [show_figure(figure, f"{key}-curves", caption, alt=alt)]


# -- final scores -----------------------------------------------------------------------------


def scores(study: StudyRecords, key: str) -> Blocks:
    """Return the final table with its tests, and the agreement with published differences."""
    final = final_table(study)
    look = looks(study)
    tested = [row for row in final.rows if row.comparison]

    def swatches(rows: tuple[Row, ...] | list[Row]) -> list[str]:
        return [look[row.strategy].on_page for row in rows]

    marks = [final.kind(row).replace("strategy", "") for row in final.rows]
    if "bound" in marks:
        marks[marks.index("bound")] = "bound first"
    blocks: list[Block | None] = [
        Table.of(
            "Final score",
            [score_cells(row, final) for row in final.rows],
            classes=marks,
            swatches=swatches(final.rows),
            numbers=to_csv(final),
        ),
        _differences(study, final, key),
    ]
    if tested:
        rows = [{final.heading: row.name, **comparison_cells(row, final)} for row in tested]
        caption = "Differences to the reference, paired over seeds"
        blocks.append(Table.of(caption, rows, swatches=swatches(tested)))
    return present([*blocks, Notes(footnotes(final)), *_signs(final)])


def _differences(study: StudyRecords, final: FinalTable, key: str) -> Block | None:
    """Return the figure of differences by seed, which the tests below are about."""
    figure = draw.differences(study, final)
    if figure is None:
        return None
    side = "left"
    if study.higher_is_better:
        side = "right"
    caption = (
        "Each small dot is the difference of a strategy to "
        f"{final.reference_label} for one seed. The diamond is the mean, the bar its 95 % "
        "Student interval. Intervals that exclude zero are significant before correction. "
        f"Further to the {side} is better."
    )
    gaps = []
    for row in final.rows:
        if row.comparison:
            c = row.comparison
            gap = with_interval(c.difference, c.interval, final.digits)
            gaps.append(f"{row.label} {gap}")
    alt = (
        f"Paired differences to {final.reference_label}, with 95 % intervals: "
        f"{join_some(gaps)}."
    )
    return show_figure(figure, f"{key}-differences", caption, alt=alt)


def _signs(final: FinalTable) -> list[Block]:
    """Compare the ranking with the published one, if there is one."""
    result = signs(final)
    if not result:
        return []
    rows = []
    agreement = {True: "same", False: "opposite"}
    for sign in result:
        rows.append(
            {
                final.heading: sign.label,
                "Measured": f"{sign.measured:+.2f}",
                heading_of_published(final.other_setting): f"{sign.printed:+.2f}",
                "Sign": agreement[sign.agrees],
            }
        )
    agreeing = sum(sign.agrees for sign in result)
    text = (
        f"{agreeing} of {len(result)} published signs are reproduced. A sign does not "
        "show the size of a difference, and the sign of a difference within chance is "
        "unreliable."
    )
    caption = f"Minus {final.reference_label}, measured and published (points)"
    return [Table.of(caption, rows), Note(text)]


# -- classes ----------------------------------------------------------------------------------


def classes(study: StudyRecords, key: str) -> Blocks:
    """Return accuracy by class or label, and the gap between evenly and unevenly distributed
    classes.
    """
    outcome, outcomes = name_outcome(study)
    figure = draw.class_accuracy(study)
    if figure is None:
        return [Note(f"The records have no accuracy by {outcome}.")]
    caption = (
        f"Higher dots on the left mean a better accuracy on the {outcomes} that are hard to "
        f"learn. One dot per {outcome} and strategy: last cycle, mean over seeds."
    )
    if len(named_in_figures(study)) < len(study.strategies):
        caption += " Gray bars span the other strategies."
    alt = _describe_classes(study)
    drawn = show_figure(figure, f"{key}-classes", caption, alt=alt)
    ranks = rank_strategies(study)
    titles = {"low": "Low-variance", "high": "High-variance", "gap": "Gap"}
    rows = []
    for scored in sorted(class_scores(study), key=lambda one: ranks.index(one.strategy)):
        if scored.halves:
            cells = {heading(study.study): label_of(scored.strategy, study.study)}
            for name, title in titles.items():
                shares = [100 * getattr(half, name) for half in scored.halves]
                cells[title] = spread_of(shares).text()
            cells["Seeds"] = str(len(scored.halves))
            rows.append(cells)
    if not rows:
        return [drawn]
    note = (
        "High-variance classes are the half of the classes whose shares differ most "
        "between sites in the partition of the seed (population standard deviation of "
        "the shares). For an odd number of classes, the middle class is in neither half; "
        "ties are ordered by class number. A gap near 0 means that both halves are "
        "learned equally well."
    )
    table = Table.of("Accuracy of low- and high-variance classes, %", rows)
    return [drawn, table, Note(note)]


def _describe_classes(study: StudyRecords) -> str:
    """Describe the class with the lowest accuracy, and the best strategy for it."""
    outcome, _ = name_outcome(study)
    results = class_scores(study)
    means = class_means([scored.mean for scored in results])
    known = [(mean, which) for which, mean in enumerate(means) if mean is not None]
    if not known:
        return f"Test accuracy of each {outcome}."
    names = class_names(study) or tuple(map(str, range(len(means))))
    low, worst = min(known)
    high, best = max(known)
    leader = max(results, key=lambda scored: scored.mean[worst] or 0.0)
    return (
        f"Test accuracy of each {outcome}. The lowest mean over strategies is {100 * low:.1f} "
        f"% for {outcome} {names[worst]} ({label_of(leader.strategy, study.study)} is best there "
        f"with {100 * (leader.mean[worst] or 0.0):.1f} %), the highest {100 * high:.1f} % for "
        f"{outcome} {names[best]}."
    )


def partition(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the partition of examples."""
    parts = study.partitions
    figure = draw.partition_map(study)
    if figure is None:
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
    alt = _describe_partition(parts[first])
    return [show_figure(figure, f"{key}-partition", caption, alt=alt)]


def _describe_partition(part: ClassCounts) -> str:
    """Describe the site with the most examples, and the class that is distributed most
    unevenly.
    """
    rows = dict(zip(part.sites, map(sum, part.matrix), strict=True))
    largest = max(rows, key=rows.__getitem__)
    text = (
        f"Examples of {len(part.classes)} classes at {len(part.sites)} sites. {largest} "
        f"has most examples, {rows[largest]:,}; the smallest site has "
        f"{min(rows.values()):,}."
    )
    if part.sigma:
        uneven = max(range(len(part.classes)), key=part.sigma.__getitem__)
        holders = sum(row[uneven] > 0 for row in part.matrix)
        text += (
            f" Class {part.classes[uneven]} is distributed most unevenly: {holders} of "
            f"{len(part.sites)} sites have it."
        )
    return text


# -- labels over cycles -----------------------------------------------------------------------


def balance(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the balance of the labels."""
    figure = draw.label_balance(study)
    if figure is None:
        return [Note("The records have no number of labels by class.")]
    caption = (
        "Left: the share of the rarer half of the classes among all labels; higher is "
        "more even, and 50 % is even for an even number of classes. Right: distance of a "
        "site's labeled classes from all labeled classes; lower is more similar."
    )
    alt = "Balance of the labels over cycles. The table below has the values at the end."
    rows = []
    for strategy in rank_strategies(study):
        cells: dict[str, str | None] = {
            heading(study.study): label_of(strategy, study.study)
        }
        for name, digits in DIGITS.items():
            by_cycle = balance_over_cycles(study, strategy, name)
            last = study.last_cycle(strategy)
            if last in by_cycle:
                cells[name] = f"{fmean(by_cycle[last]):.{digits}f}"
        if len(cells) > 1:
            rows.append(cells)
    blocks: list[Block] = [show_figure(figure, f"{key}-balance", caption, alt=alt)]
    if rows:
        text = (
            "Mean over seeds. Entropy (1 is even) and Gini (0 is even) are of all labels "
            "together. KL and total variation compare each site's labels with all labels, "
            "mean over sites. Empty cells are pairs of site and class without a label. "
            f"{_correlate(study)}"
        )
        blocks += [Table.of("Labels at the end", rows), Note(text.strip())]
    return blocks


def _correlate(study: StudyRecords) -> str:
    """Describe the correlation of rare classes among the labels with the final score."""
    result = minority_and_score(study)
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
