"""The sections of a report about results, in the order a reader asks: who won, where, why."""

from __future__ import annotations

from html import escape
from statistics import fmean

from matplotlib.figure import Figure

from fallow.lab import figures_cycles
from fallow.lab import figures_study as draw
from fallow.lab.figures import looks, to_svg
from fallow.lab.reading import StudyRecords
from fallow.lab.report_html import Html, el, picture, section, table, together
from fallow.lab.stats import mean_sd
from fallow.lab.tables import comparison_columns, footnotes, score_columns
from fallow.lab.tables_final import FinalTable, Row, Spread, label_of, signs


def _figure(made: Figure | None, key: str, caption: str, absent: str) -> Html:
    if made is None:
        return el("p", absent, class_="note")
    return picture(to_svg(made, key, escape(caption)), caption)


def _name(study: StudyRecords, query: str) -> str:
    return label_of(query, study.study)


def curves(study: StudyRecords, key: str) -> Html:
    """Learning curves."""
    caption = (
        "A line higher up learns more from the same number of labels. Lines are means over "
        "seeds, bands one standard deviation to each side"
        + ("; dashed lines are upper bounds." if study.bounds else ".")
    )
    if not study.higher_is_better:
        caption = caption.replace("higher up", "lower down")
    return section(
        "Learning curves",
        _figure(draw.learning_curves(study), f"{key}-curves", caption, "No cycle has a score yet."),
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
    colours = (look[row.query].colour for row in final.rows)
    dots = [el("span", class_="swatch", style=f"background:{colour}") for colour in colours]
    shown, tests = score_columns(final), comparison_columns(final)
    names = [Html(dot + escape(name)) for dot, name in zip(dots, shown["Query"], strict=True)]
    rows = zip(names, *list(shown.values())[1:], strict=True)
    parts = [table("Final score", list(shown), rows, classes=[_mark(r, final) for r in final.rows])]
    if tests:
        lines = zip(final.rows, zip(names, *tests.values(), strict=True), strict=True)
        tested = [cells for row, cells in lines if row.comparison]
        caption = "Differences to the reference, paired over seeds"
        parts.append(table(caption, ["Query", *tests], tested))
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
        [s.label, f"{s.measured:+.2f}", f"{s.printed:+.2f}", "same" if s.agrees else "opposite"]
        for s in found
    ]
    return together(
        table(
            f"Minus {name}, measured and published (points)",
            ["Query", "Measured", "Published", "Sign"],
            rows,
        ),
        el(
            "p",
            f"{agreeing} of {len(found)} published signs hold here. A sign says nothing about "
            "size, and a difference within chance has no reliable sign.",
            class_="note",
        ),
    )


def classes(study: StudyRecords, key: str) -> Html:
    """Per-class accuracy, and the gap between classes held evenly and unevenly."""
    figure = _figure(
        draw.class_accuracy(study),
        f"{key}-classes",
        "A query whose left-most dots stand higher looks after the classes that are hard to learn. "
        "One dot per class and query: last cycle, mean over seeds.",
        "The records have no accuracy per class.",
    )
    rows = []
    for scored in draw.class_scores(study):
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
        ["Query", "Low-variance", "High-variance", "Gap", "Seeds"],
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
        absent = fmean(a for p in parts.values() for a in p.absent)
        caption = (
            f"Dark cells show the sites that hold a class; pale cells lack it. This is the "
            f"partition of seed {first}. Over {len(parts)} seed"
            f"{'s' if len(parts) != 1 else ''}, a site's classes differ from the pooled "
            f"ones by KL = {kl} nats, and a site lacks {absent:.1f} of "
            f"{len(classes)} classes on average."
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


def balance(study: StudyRecords, key: str) -> Html:
    """Balance of what was labelled, and how classes were routed."""
    parts = [
        _figure(
            figures_cycles.label_balance(study),
            f"{key}-balance",
            "Left: the share of the rarer half of the classes among all labels; higher is more "
            "even, and 50 % is even for an even number of classes. Right: how far a site's "
            "labelled classes are from all labelled classes; lower is more alike.",
            "The records have no labelled counts per class.",
        )
    ]
    if figures_cycles.routed(study):
        parts.append(
            _figure(
                figures_cycles.routing(study),
                f"{key}-routing",
                "Left: one line per class, the spread of its share over sites; a class below the "
                "dashed threshold is scored by the local and the global model together, one above "
                "it by the local model alone. Right: how many classes are below.",
                "",
            )
        )
    return section("Labels and routing over cycles", *parts)
