"""The figures of a study's outcome: learning curves, accuracy by class, partition.

Each function takes records and returns a figure, or ``None`` when the records do not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fallow.report.figures.style import (
    FAINT,
    INK,
    STYLE,
    Look,
    add_tip,
    banded,
    key_above,
    looks,
    name_ends,
    new_figure,
    plain,
    plain_logarithm,
    spread_line,
)
from fallow.report.final_table import FinalTable, Row, digits_of, label_of, number
from fallow.report.findings.diverged import FAR
from fallow.study.by_class import ClassScores, class_means, class_scores
from fallow.study.records import StudyRecords

_HEAT = LinearSegmentedColormap.from_list(
    "fallow", ["#f3f6fa", "#8fb8d9", "#0b5a94", "#06304f"]
)
_NAMED_CLASSES = 12
"""Up to this many classes are named in a figure; more are numbered sparsely."""


APART = 0.16
"""How far above and below the middle of its row a strategy's dots and its interval stand."""

_DECADE = 10.0
"""Errors that span more than this are drawn on a logarithmic axis."""


def _scale(study: StudyRecords) -> tuple[float, str]:
    if study.measure == "accuracy":
        return 100.0, "Test accuracy, %"
    return 1.0, "Test error (MSE; 1: the variance of the targets)" if study.is_scaled else (
        "Test error (MSE)"
    )


def _bought(study: StudyRecords, query: str) -> dict[int, float]:
    """Cycle -> place on the axis: labelled share in per cent, or for errors the labels bought."""
    if study.measure != "accuracy":
        return study.labels(query)
    return {cycle: 100 * share for cycle, share in study.fractions(query).items()}


def _fit_errors(axes: Axes, study: StudyRecords) -> None:
    """Axes for errors: numbers of labels, and a scale that is logarithmic over more than a decade
    and leaves diverged errors out."""
    axes.set_xlabel("Labels bought, first labels among them")
    axes.xaxis.set_major_formatter(lambda labels, _: f"{labels:,.0f}")
    shown = [fmean(s.values()) for q in study.strategies for s in study.curve(q).values()]
    shown += [fmean(study.final(q).values()) for q in study.bounds if study.final(q)]
    usable = [e for e in shown if not study.is_scaled or e <= FAR] or shown
    low, high = min(usable), max(usable)
    if low > 0 and high > _DECADE * low:
        axes.set_yscale("log")
        plain_logarithm(axes.yaxis)
        axes.set_ylim(low / 1.25, high * 1.25)
    elif len(usable) < len(shown):
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-9)


@mpl.rc_context(STYLE)
def learning_curves(study: StudyRecords) -> Figure | None:
    """Score against labels, mean ± sd over seeds; upper bounds as dashed lines."""
    figure, (axes,) = new_figure(3.7)
    scale, title = _scale(study)
    look = looks(study)
    ends: list[tuple[str, float, float, str]] = []
    bands = banded(study)
    unit = " % labelled" if study.higher_is_better else " labels"
    for query in (q for q in look if q in study.strategies):
        curve, x = study.curve(query), _bought(study, query)
        cycles = [c for c in curve if c in x]
        if cycles:
            end = spread_line(
                axes,
                [x[c] for c in cycles],
                [[scale * s for s in curve[c].values()] for c in cycles],
                look[query],
                band=query in bands,
                name=label_of(query, study.study),
                unit=unit,
                digits=digits_of(study),
            )
            if not look[query].is_faint:
                ends.append((label_of(query, study.study), *end, look[query].colour))
    if not ends:
        return None
    left, right = axes.dataLim.intervalx
    for query in study.bounds:
        final = study.final(query)
        if final:
            level = scale * fmean(final.values())
            axes.plot(
                [left, right],
                [level, level],
                color=look[query].colour,
                linestyle=(0, (5, 3)),
                linewidth=1.3,
            )
            name = label_of(query, study.study)
            ends.append((name, right, level, look[query].colour))
            add_tip(axes, right, level, f"{name}: {level:.{digits_of(study)}f}")
    axes.set_title(title)
    axes.set_xlabel("Labelled rows, % of all training rows")
    if not study.higher_is_better:
        _fit_errors(axes, study)
    name_ends(axes, ends)
    return figure


@mpl.rc_context(STYLE)
def differences(study: StudyRecords, final: FinalTable) -> Figure | None:
    """Every strategy minus the reference: a dot for each seed, the mean, and its interval."""
    tested = [row for row in final.rows if row.comparison]
    reference = study.final(final.reference or "")
    if not tested or not reference:
        return None
    scale = 100.0 if study.measure == "accuracy" else 1.0
    look = looks(study)
    figure, (axes,) = new_figure(0.95 + 0.42 * len(tested))
    axes.axvline(0, color=INK, linewidth=1)
    for at, row in enumerate(tested):
        scores = study.final(row.query)
        seeds = sorted(scores.keys() & reference.keys())
        gaps = [scale * (scores[seed] - reference[seed]) for seed in seeds]
        colour = look[row.query].colour
        axes.plot(
            gaps,
            [at - APART] * len(gaps),
            "o",
            color=colour if colour != FAINT else INK,
            markersize=5,
            alpha=0.6,
            markeredgewidth=0,
        )
        _mean_and_interval(axes, row, at, colour if colour != FAINT else INK, final.digits)
    axes.set_yticks(range(len(tested)), [plain(row.label) for row in tested])
    axes.set_ylim(len(tested) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    name = plain(label_of(final.reference or "", study.study))
    unit = "points" if study.measure == "accuracy" else "mean squared error"
    axes.set_title(f"Minus {name}, {unit}")
    return figure


def _mean_and_interval(axes: Axes, row: Row, at: int, colour: str, digits: int) -> None:
    """The mean of one comparison, its interval, and what is said when it is pointed at."""
    c = row.comparison
    if c is None:
        return
    ends = [c.interval.low, c.interval.high]
    axes.plot(ends, [at + APART, at + APART], color=colour, linewidth=2, marker="")
    axes.plot([c.difference], [at + APART], "D", color=colour, markersize=6)
    shown = [
        number(v, digits, "+") for v in (c.difference, c.interval.low, c.interval.high)
    ]
    text = f"{row.label}: {shown[0]} [{shown[1]}, {shown[2]}], {c.pairs} seeds"
    add_tip(axes, c.difference, at + APART, text)


def _class_ticks(axes: Axes, names: Sequence[str], offset: float = 0.0) -> None:
    if len(names) <= _NAMED_CLASSES:
        slant = 35 if max(map(len, names)) > 4 else 0
        axes.set_xticks(
            [i + offset for i in range(len(names))],
            list(map(plain, names)),
            rotation=slant,
            ha="right" if slant else "center",
        )


def _dots(
    axes: Axes, s: ClassScores, shown: Sequence[int], look: Look, shift: float, name: str
) -> None:
    """The classes of one strategy, beside those of the others."""
    dots = [
        (i + shift, 100 * a) for i, c in enumerate(shown) if (a := s.mean[c]) is not None
    ]
    axes.plot(
        *zip(*dots, strict=True), linestyle="none", color=look.colour, marker=look.marker
    )
    for x, accuracy in dots:
        add_tip(axes, x, accuracy, f"{name}: {accuracy:.1f} %")


def _faint_dots(axes: Axes, scores: Sequence[ClassScores], shown: Sequence[int]) -> None:
    """From the lowest to the highest of the strategies without a name, as one bar per class."""
    for i, c in enumerate(shown):
        found = [100 * a for s in scores if (a := s.mean[c]) is not None]
        if found:
            axes.vlines(i, min(found), max(found), color=FAINT, linewidth=26, alpha=0.45)


@mpl.rc_context(STYLE)
def class_accuracy(study: StudyRecords) -> Figure | None:
    """One dot per class and query, classes from worst to best by the mean of all queries."""
    scores = class_scores(study)
    if not scores:
        return None
    count = len(scores[0].mean)
    parts = study.partitions
    known = parts[min(parts)].classes if parts else study.study.classes
    names = known or tuple(map(str, range(count)))
    middle = class_means([s.mean for s in scores])
    shown = sorted(
        (c for c in range(count) if middle[c] is not None),
        key=lambda c: (middle[c] or 0.0, c),
    )
    figure, (axes,) = new_figure(3.4)
    look = looks(study)
    _faint_dots(axes, [s for s in scores if look[s.query].is_faint], shown)
    named = [s for s in scores if not look[s.query].is_faint]
    for k, s in enumerate(named):
        shift = 0.62 * (k - (len(named) - 1) / 2) / len(named)
        _dots(axes, s, shown, look[s.query], shift, label_of(s.query, study.study))
    _class_ticks(axes, [names[c] for c in shown])
    axes.set_xlabel("Class, from the worst to the best learned")
    axes.set_title("Test accuracy of each class, %")
    axes.grid(visible=False, axis="x")
    key_above(figure, study, [s.query for s in scores])
    return figure


@mpl.rc_context(STYLE)
def partition_map(study: StudyRecords) -> Figure | None:
    """Rows of each class at each site before anything is labelled, for the first seed."""
    if not study.partitions:
        return None
    part = study.partitions[min(study.partitions)]
    n = np.array(part.matrix)
    sites = len(n)
    figure, (axes,) = new_figure(min(7.0, 1.1 + 0.27 * max(sites, 6)))
    mesh = axes.pcolormesh(n, cmap=_HEAT, vmin=0, rasterized=n.size > 2500)
    if n.size <= 200:
        for (i, j), rows in np.ndenumerate(n):
            axes.text(
                j + 0.5,
                i + 0.5,
                str(rows),
                ha="center",
                va="center",
                fontsize=8,
                color="#ffffff" if rows > 0.45 * n.max() else "#222222",
            )
    _class_ticks(axes, part.classes, offset=0.5)
    if sites <= 30:
        axes.set_yticks(np.arange(sites) + 0.5, list(map(plain, part.sites)))
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title("Rows of each class (across) at each site (down)")
    bar = figure.colorbar(mesh, ax=axes, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    return figure
