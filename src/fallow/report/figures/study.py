"""Figures of results: learning curves, accuracy by class, partition.

Each function takes records and returns a figure, or ``None`` when the records do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fallow.report.by_class import class_names, class_scores, name_outcome
from fallow.report.degenerate import FAR
from fallow.report.figures.style import (
    FAINT,
    INK,
    STYLE,
    Line,
    add_tip,
    draw_lines,
    key_above,
    looks,
    name_ends,
    new_figure,
    plain,
    plain_logarithm,
)
from fallow.report.final_table import (
    FinalTable,
    Row,
    digits_of,
    label_of,
    with_interval,
)
from fallow.report.labels import KL, RARER, balance_over_cycles
from fallow.study.forecast import MORE, Forecast
from fallow.study.records import SQUARED_ERROR, StudyRecords

HEAT = LinearSegmentedColormap.from_list(
    "fallow", ["#f3f6fa", "#8fb8d9", "#0b5a94", "#06304f"]
)
_NAMED_CLASSES = 12
"""Maximum number of classes that are named in a figure. More classes are numbered sparsely."""


WIDTH = 0.62
"""Share of the width of a class that the dots of the strategies take."""

APART = 0.16
"""Distance of the dots and the interval of a strategy from the middle of its row."""

_DECADE = 10.0
"""Errors with a larger range are drawn on a logarithmic axis."""


def _fit_errors(axes: Axes, study: StudyRecords) -> None:
    """Set up the axes for errors.

    The x axis shows numbers of labels. The y axis is logarithmic over more than a decade,
    and leaves out diverged errors.
    """
    axes.set_xlabel("Number of labels, including the initial labeled set")
    axes.xaxis.set_major_formatter(lambda labels, _: f"{labels:,.0f}")
    if study.higher_is_better:
        return
    shown = [study.final(strategy) for strategy in study.bounds]
    for strategy in study.strategies:
        shown += study.curve(strategy).values()
    errors = [fmean(by_seed.values()) for by_seed in shown if by_seed]
    usable = errors
    if study.is_scaled:
        usable = [error for error in errors if error <= FAR] or errors
    low = min(usable)
    high = max(usable)
    if low > 0 and high > _DECADE * low:
        axes.set_yscale("log")
        plain_logarithm(axes.yaxis)
        axes.set_ylim(low / 1.25, high * 1.25)
    elif len(usable) < len(errors):
        margin = 0.05 * (high - low)
        axes.set_ylim(low - margin, high + margin + 1e-9)


@mpl.rc_context(STYLE)
def learning_curves(study: StudyRecords) -> Figure | None:
    """Plot score against labels, mean ± sd over seeds, with upper bounds as dashed lines.

    Labels are a share in percent, and a number for errors.
    """
    figure, (axes,) = new_figure(3.7)
    look = looks(study)
    digits = digits_of(study)
    lines: dict[str, Line] = {}
    for strategy in study.strategies:
        shares = study.fractions(strategy)
        x = {cycle: 100 * share for cycle, share in shares.items()}
        if study.is_regression:
            x = study.labels(strategy)
        for cycle, by_seed in study.curve(strategy).items():
            if cycle in x:
                scores = [study.scale * score for score in by_seed.values()]
                lines.setdefault(strategy, {})[x[cycle]] = scores
    unit = " % labeled"
    if study.is_regression:
        unit = " labels"
    spots = draw_lines(axes, study, lines, unit, digits=digits)
    ends = []
    for strategy, (x_end, y_end) in spots.items():
        if not look[strategy].is_faint:
            name = label_of(strategy, study.study)
            ends.append((name, x_end, y_end, look[strategy].color))
    if not ends:
        return None
    left, right = axes.dataLim.intervalx
    for strategy in filter(study.final, study.bounds):
        level = study.scale * fmean(study.final(strategy).values())
        color = look[strategy].color
        dashes = (0, (5, 3))
        axes.plot(
            [left, right], [level, level], color=color, linestyle=dashes, linewidth=1.3
        )
        name = label_of(strategy, study.study)
        ends.append((name, right, level, color))
        add_tip(axes, right, level, f"{name}: {level:.{digits}f}")
    title = f"Test {study.measure.heading}"
    if study.measure == SQUARED_ERROR:
        title = "Test error (MSE)"
    if study.is_scaled:
        title = "Test error (MSE; 1 is the variance of the targets)"
    axes.set_title(title)
    axes.set_xlabel("Labeled examples, % of all training examples")
    if study.is_regression:
        _fit_errors(axes, study)
    name_ends(axes, ends)
    return figure


@mpl.rc_context(STYLE)
def rounds(study: StudyRecords, lines: Mapping[str, Line]) -> Figure | None:
    """Plot the accuracy after every round that was scored, if there are two or more."""
    if max(map(len, lines.values()), default=0) < 2:
        return None
    figure, (axes,) = new_figure(3.4)
    draw_lines(axes, study, lines, name=", round")
    axes.set_title("Test accuracy, mean over sites, %")
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    key_above(figure, study, lines)
    return figure


@mpl.rc_context(STYLE)
def differences(study: StudyRecords, final: FinalTable) -> Figure | None:
    """Plot the difference of every strategy to the reference, by seed, with mean and interval."""
    tested = [row for row in final.rows if row.comparison]
    reference = study.final(final.reference or "")
    if not tested or not reference:
        return None
    look = looks(study)
    figure, (axes,) = new_figure(0.95 + 0.42 * len(tested))
    axes.axvline(0, color=INK, linewidth=1)
    for at, row in enumerate(tested):
        scores = study.final(row.strategy)
        seeds = sorted(scores.keys() & reference.keys())
        gaps = [study.scale * (scores[seed] - reference[seed]) for seed in seeds]
        color = look[row.strategy].color
        if look[row.strategy].is_faint:  # the reference has a separate row here
            color = INK
        heights = [at - APART] * len(gaps)
        axes.plot(
            gaps, heights, "o", color=color, markersize=5, alpha=0.6, markeredgewidth=0
        )
        _mean_and_interval(axes, row, at, color=color, digits=final.digits)
    axes.set_yticks(range(len(tested)), [plain(row.label) for row in tested])
    axes.set_ylim(len(tested) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_title(f"Minus {plain(final.reference_label)}, {study.measure.unit}")
    return figure


def _mean_and_interval(axes: Axes, row: Row, at: int, *, color: str, digits: int) -> None:
    """Draw the mean of one comparison and its interval, with a tooltip."""
    c = row.comparison
    if c is None:
        return
    ends = [c.interval.low, c.interval.high]
    axes.plot(ends, [at + APART, at + APART], color=color, linewidth=2, marker="")
    axes.plot([c.difference], [at + APART], "D", color=color, markersize=6)
    shown = with_interval(c.difference, c.interval, digits)
    text = f"{row.label}: {shown}, {c.pairs} seeds"
    add_tip(axes, c.difference, at + APART, text)


def _class_ticks(axes: Axes, names: Sequence[str], offset: float = 0.0) -> None:
    """Write names below the columns of classes, slanted if they are long; none if there are
    many classes.
    """
    if len(names) > _NAMED_CLASSES:
        return
    at = [i + offset for i in range(len(names))]
    texts = [plain(name) for name in names]
    if max(len(name) for name in names) > 4:
        axes.set_xticks(at, texts, rotation=35, ha="right")
    else:
        axes.set_xticks(at, texts)


@mpl.rc_context(STYLE)
def class_accuracy(study: StudyRecords) -> Figure | None:
    """Plot one dot per class and strategy, with classes sorted by their mean accuracy.

    A bar per class spans the strategies without a name.
    """
    scores = class_scores(study)
    if not scores:
        return None
    look = looks(study)
    strategies = [scored.strategy for scored in scores]
    names = class_names(study) or tuple(map(str, range(len(scores[0].mean))))
    accuracies = 100 * np.array([scored.mean for scored in scores], dtype=float)
    is_known = ~np.isnan(accuracies).all(0)
    classes = np.flatnonzero(is_known)  # NaN for a class without test examples
    ranked = classes[np.argsort(np.nanmean(accuracies[:, classes], 0), kind="stable")]
    shown = accuracies[:, ranked]  # (strategies, classes)

    figure, (axes,) = new_figure(3.4)
    is_faint = np.array([look[strategy].is_faint for strategy in strategies])
    if is_faint.any():
        faint = shown[is_faint]
        lows = np.nanmin(faint, 0)
        highs = np.nanmax(faint, 0)
        axes.vlines(range(len(ranked)), lows, highs, color=FAINT, linewidth=26, alpha=0.45)
    named = np.flatnonzero(~is_faint)
    for k, which in enumerate(named):
        strategy = strategies[which]
        x = np.arange(len(ranked)) + WIDTH * (k - (len(named) - 1) / 2) / len(named)
        color = look[strategy].color
        axes.plot(
            x, shown[which], linestyle="none", color=color, marker=look[strategy].marker
        )
        name = label_of(strategy, study.study)
        for at_x, at_y in zip(x, shown[which], strict=True):
            if np.isfinite(at_y):
                add_tip(axes, at_x, at_y, f"{name}: {at_y:.1f} %")
    _class_ticks(axes, [names[which] for which in ranked])
    outcome, _ = name_outcome(study)
    axes.set_xlabel(f"{outcome.capitalize()}, sorted by mean accuracy, lowest first")
    axes.set_title(f"Test accuracy of each {outcome}, %")
    axes.grid(visible=False, axis="x")
    key_above(figure, study, strategies)
    return figure


@mpl.rc_context(STYLE)
def partition_map(study: StudyRecords) -> Figure | None:
    """Plot the number of examples of each class at each site, for the first seed."""
    if not study.partitions:
        return None
    part = study.partitions[min(study.partitions)]
    n = np.array(part.matrix)
    sites = len(n)
    figure, (axes,) = new_figure(min(7.0, 1.1 + 0.27 * max(sites, 6)))
    mesh = axes.pcolormesh(n, cmap=HEAT, vmin=0, rasterized=n.size > 2500)
    if n.size <= 200:
        points = 9
        if n.shape[1] > 12:  # narrow cells
            points = 8
        for (site, which), rows in np.ndenumerate(n):
            color = "#222222"
            if rows > 0.45 * n.max():  # a dark cell
                color = "#ffffff"
            axes.text(
                x=which + 0.5,
                y=site + 0.5,
                s=str(rows),
                ha="center",
                va="center",
                fontsize=points,
                color=color,
            )
    _class_ticks(axes, part.classes, offset=0.5)
    if sites <= 30:
        axes.set_yticks(np.arange(sites) + 0.5, [plain(site) for site in part.sites])
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title("Examples of each class (across) at each site (down)")
    bar = figure.colorbar(mesh, ax=axes, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    return figure


CURVE_POINTS = 60
"""Number of points at which a curve is drawn."""
COLOR = "#0b5a94"


@mpl.rc_context(STYLE)
def draw_forecast(
    forecast: Forecast, more: float = MORE, target: float | None = None
) -> Figure | None:
    """Plot scores, the median curve and the 95 % band up to ``more`` labels, and ``target``.

    Returns None without a curve.
    """
    curve = forecast.curve
    if curve is None:
        return None
    figure, (axes,) = new_figure(3.4)
    labels = np.linspace(forecast.points[0].labels, forecast.labels + more, CURVE_POINTS)
    bands = [curve.error(label) for label in labels]
    shown = {
        "middle": [band.middle for band in bands],
        "low": [band.low for band in bands],
        "high": [band.high for band in bands],
        "points": [point.error for point in forecast.points],
    }
    title = "Test error (MSE)"
    if forecast.higher_is_better:  # accuracies in percent
        title = "Accuracy, %"
        for name, errors in shown.items():
            shown[name] = [100 * (1 - error) for error in errors]
    axes.fill_between(
        labels, shown["low"], shown["high"], color=COLOR, alpha=0.15, linewidth=0
    )
    axes.plot(labels, shown["middle"], color=COLOR)
    for point, score in zip(forecast.points, shown["points"], strict=True):
        axes.plot(point.labels, score, "o", color=INK, markersize=4)
        add_tip(axes, point.labels, score, f"{point.labels:,.0f} labels: {score:.4g}")
    axes.axvline(forecast.labels, color=FAINT, linewidth=0.8, linestyle=":")
    if target is not None:
        level = target
        if forecast.higher_is_better:
            level = 100 * target
        axes.axhline(level, color=FAINT, linewidth=0.8, linestyle="--")
    axes.set_xlabel("Number of labels, including the initial labeled set")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel(title)
    return figure


@mpl.rc_context(STYLE)
def label_balance(study: StudyRecords) -> Figure | None:
    """Plot the share of rare classes and the KL of sites' labels to all labels over the
    labeled share.
    """
    figure, panels = new_figure(3.1, columns=2)
    drawn: set[str] = set()
    for axes, name in zip(panels, (RARER, KL), strict=True):
        lines: dict[str, Line] = {}
        for strategy in study.strategies:
            share_of = study.fractions(strategy)
            for cycle, values in balance_over_cycles(study, strategy, name).items():
                if cycle in share_of:
                    lines.setdefault(strategy, {})[100 * share_of[cycle]] = values
        drawn |= set(draw_lines(axes, study, lines, " % labeled"))
        axes.set_xlabel("Labeled examples, %")
    if not drawn:
        return None
    panels[0].set_title("Share of the rarer classes, %")
    panels[1].set_title("KL of sites' labels to all, nats")
    key_above(figure, study, drawn)
    return figure
