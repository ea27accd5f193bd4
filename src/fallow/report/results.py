"""The sections of a report about results, in the order a reader asks: who won, where, why."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from matplotlib.figure import Figure

from fallow.core.words import listed
from fallow.report.figures import cycles
from fallow.report.figures import study as draw
from fallow.report.figures.style import banded, looks, to_svg, told_apart
from fallow.report.final_table import FinalTable, Row, Spread, label_of, ranked, signs
from fallow.report.findings import labels
from fallow.report.html import Html, el, picture, section, table, together
from fallow.report.tables import comparison_columns, footnotes, score_columns
from fallow.study.by_class import ClassScores, class_scores
from fallow.study.names import heading
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd


def _figure(made: Figure | None, key: str, caption: str, absent: str) -> Html:
    if made is None:
        return el("p", absent, class_="note")
    return picture(to_svg(made, key, escape(caption)), caption)


def _name(study: StudyRecords, query: str) -> str:
    return label_of(query, study.study)


def _of(study: StudyRecords, queries: Sequence[str]) -> str:
    return listed([_name(study, q) for q in queries])


def _faint(study: StudyRecords) -> str:
    """What the strategies without a name in figures are, if there are any."""
    rest = len(study.strategies) - len(told_apart(study))
    return f" The {rest} other strategies are grey; the table names them." if rest else ""


def curves(study: StudyRecords, key: str) -> Html:
    """Learning curves."""
    caption = (
        "A line higher up learns more from the same number of labels. Lines are means over seeds, "
        "bands one standard deviation to each side"
        + (
            ""
            if banded(study) == study.strategies
            else f" (of {_of(study, banded(study))} only)"
        )
        + ("; dashed lines are upper bounds." if study.bounds else ".")
        + _faint(study)
    )
    if not study.higher_is_better:
        caption = caption.replace("higher up", "lower down")
    return section(
        "Learning curves",
        _figure(
            draw.learning_curves(study),
            f"{key}-curves",
            caption,
            "No cycle has a score yet.",
        ),
    )


def _mark(row: Row, final: FinalTable) -> str:
    """The CSS class of a row: the reference stands out, bounds stand apart."""
    if row.is_bound:
        first = next(r.query for r in final.rows if r.is_bound)
        return "bound first" if row.query == first else "bound"
    return "reference" if row.query == final.reference else ""


def scores(study: StudyRecords, final: FinalTable) -> Html:
    """The final table with its tests, and the signs of published and measured differences."""
    look = looks(study)
    colours = (look[row.query].on_page for row in final.rows)
    dots = [el("span", class_="swatch", style=f"background:{colour}") for colour in colours]
    shown, tests = score_columns(final), comparison_columns(final)
    names = [
        Html(dot + escape(name))
        for dot, name in zip(dots, shown[final.heading], strict=True)
    ]
    rows = zip(names, *list(shown.values())[1:], strict=True)
    parts = [
        table(
            "Final score", list(shown), rows, classes=[_mark(r, final) for r in final.rows]
        )
    ]
    if tests:
        lines = zip(final.rows, zip(names, *tests.values(), strict=True), strict=True)
        tested = [cells for row, cells in lines if row.comparison]
        caption = "Differences to the reference, paired over seeds"
        parts.append(table(caption, [final.heading, *tests], tested))
    parts.append(el("ul", *(el("li", note) for note in footnotes(final)), class_="notes"))
    if signs(final):
        parts.append(_signs(final))
    return section("Final scores", *parts)


def _signs(final: FinalTable) -> Html:
    reference = final.row(final.reference or "")
    name = reference.label if reference else "reference"
    found = signs(final)
    agreeing = sum(s.agrees for s in found)
    rows = [
        [
            s.label,
            f"{s.measured:+.2f}",
            f"{s.printed:+.2f}",
            "same" if s.agrees else "opposite",
        ]
        for s in found
    ]
    return together(
        table(
            f"Minus {name}, measured and published (points)",
            [final.heading, "Measured", "Published", "Sign"],
            rows,
        ),
        el(
            "p",
            f"{agreeing} of {len(found)} published signs hold here. A sign says nothing about "
            "size, and a difference within chance has no reliable sign.",
            class_="note",
        ),
    )


def _by_rank(study: StudyRecords) -> list[ClassScores]:
    """The accuracies by class, the best strategy first."""
    order = ranked(study)
    return sorted(class_scores(study), key=lambda s: order.index(s.query))


def classes(study: StudyRecords, key: str) -> Html:
    """Per-class accuracy, and the gap between classes held evenly and unevenly."""
    figure = _figure(
        draw.class_accuracy(study),
        f"{key}-classes",
        "A query whose left-most dots stand higher looks after the classes that are hard to learn. "
        "One dot per class and query: last cycle, mean over seeds."
        + (" Grey bars span the other strategies." if _faint(study) else ""),
        "The records have no accuracy per class.",
    )
    rows = []
    for scored in _by_rank(study):
        if scored.halves:
            parts = [
                [100 * h.low for h in scored.halves],
                [100 * h.high for h in scored.halves],
                [100 * h.gap for h in scored.halves],
            ]
            rows.append(
                [
                    _name(study, scored.query),
                    *(Spread(*mean_sd(p)).text() for p in parts),
                    str(len(scored.halves)),
                ]
            )
    if not rows:
        return section("Accuracy by class", figure)
    gap = table(
        "Accuracy of low- and high-variance classes, %",
        [heading(study.study), "Low-variance", "High-variance", "Gap", "Seeds"],
        rows,
    )
    note = (
        "High-variance classes are the half whose shares differ most between the sites of the "
        "seed's own partition (population spread of the shares; of an odd number the middle "
        "class counts for neither; equal spreads go by class number). A gap near 0 treats "
        "both halves alike."
    )
    return section("Accuracy by class", figure, gap, el("p", note, class_="note"))


def partition(study: StudyRecords, key: str) -> Html:
    """Who holds what."""
    parts = study.partitions
    caption = ""
    if parts:
        first, classes = min(parts), parts[min(parts)].classes
        kl = Spread(*mean_sd([p.kl for p in parts.values()])).text()
        apart = fmean(p.variation for p in parts.values())
        absent = fmean(a for p in parts.values() for a in p.absent)
        caption = (
            f"Dark cells show the sites that hold a class; pale cells lack it. This is the "
            f"partition of seed {first}. Over {len(parts)} seed"
            f"{'s' if len(parts) != 1 else ''}, a site's classes differ from the pooled "
            f"ones by KL = {kl} nats (total variation {apart:.2f}), and a site lacks "
            f"{absent:.1f} of {len(classes)} classes on average."
        )
    return section(
        "Partition",
        _figure(
            draw.partition_map(study),
            f"{key}-partition",
            caption,
            "No run has written its partition yet.",
        ),
    )


LABELS: dict[str, tuple[labels.Value, int]] = {
    "Rarer classes, %": (labels.minority_share, 1),
    "Entropy": (labels.label_entropy, 3),
    "Gini": (labels.label_gini, 3),
    "KL, nats": (labels.label_kl, 2),
    "Total variation": (labels.label_variation, 2),
    "Empty cells": (labels.label_gaps, 1),
}
"""What is said of the labels at the end, and with how many digits."""


def _labels_table(study: StudyRecords) -> list[Html]:
    """How even the labels are at the end, and whether that went with the score."""
    rows = []
    for query in ranked(study):
        found = [labels.over_cycles(study, query, value) for value, _ in LABELS.values()]
        last = study.last_cycle(query)
        if last is not None and all(last in by_cycle for by_cycle in found):
            digits = (n for _, n in LABELS.values())
            means = [f"{fmean(f[last]):.{n}f}" for f, n in zip(found, digits, strict=True)]
            rows.append([_name(study, query), *means])
    if not rows:
        return []
    text = (
        "Mean over seeds. Entropy (1 is even) and Gini (0 is even) are of all labels together; KL "
        "and total variation are of each site's labels from all, mean over sites; empty cells are "
        "pairs of site and class without a label."
    )
    made = table("Labels at the end", [heading(study.study), *LABELS], rows)
    return [made, el("p", f"{text} {_goes_with(study)}".strip(), class_="note")]


def _goes_with(study: StudyRecords) -> str:
    """Whether strategies that bought more of the rarer classes ended better, in a sentence."""
    found = labels.minority_and_score(study)
    if found is None:
        return ""
    within = ""
    if len(found.by_seed) > 1:
        within = f"; within a seed {Spread(*mean_sd(found.by_seed)).text()}"
    return (
        f"Over the {found.strategies} strategies the share of the rarer classes and the final "
        f"score correlate by r = {found.pearson:.2f} (ranks: {found.spearman:.2f}{within})."
    ).replace("-", "−")


def balance(study: StudyRecords, key: str) -> Html:
    """Balance of what was labelled."""
    parts = [
        _figure(
            cycles.label_balance(study),
            f"{key}-balance",
            "Left: the share of the rarer half of the classes among all labels; higher is more "
            "even, and 50 % is even for an even number of classes. Right: how far a site's "
            "labelled classes are from all labelled classes; lower is more alike.",
            "The records have no labelled counts per class.",
        )
    ]
    parts += _labels_table(study)
    return section("Labels over cycles", *parts)
