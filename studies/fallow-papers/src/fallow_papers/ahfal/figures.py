"""Figures of AHFAL: trade-off over alpha, slopes over classes, oracle gains, routing of
classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fallow.experiment.record import Record
from fallow.report.comparisons import StrategyPair
from fallow.report.figures.style import (
    INK,
    PAPER,
    STYLE,
    LineStyle,
    key_above,
    legend_above,
    looks,
    new_figure,
    plain,
    spread_line,
)
from fallow.report.final_table import label_of
from fallow.report.labels import over_cycles
from fallow.study.records import RunRecords, StudyRecords
from fallow.study.statistics import Comparison
from fallow_papers.ahfal.code_pairs import read_number, read_numbers
from fallow_papers.ahfal.families import FAMILIES, Family
from fallow_papers.ahfal.slopes import Slopes
from fallow_papers.ahfal.tradeoff import Tradeoff

LOOKS: dict[Family, LineStyle] = {
    "local": LineStyle("#d55e00", "o"),
    "global": LineStyle("#56b4e9", "s"),
    "both": LineStyle("#009e73", "D"),
}
"""Color and marker of each family."""


def _families(figure: Figure, kinds: Sequence[Family]) -> None:
    """Draw a legend of the families in the figure."""
    marks = []
    for kind in kinds:
        look = LOOKS[kind]
        mark = Line2D([], [], color=look.color, marker=look.marker)
        marks.append((mark, FAMILIES[kind].capitalize()))
    legend_above(figure, marks)


def _zero(axes: Axes) -> None:
    axes.axhline(0, color=INK, linewidth=1)


@mpl.rc_context(STYLE)
def tradeoff(values: Tradeoff, unit: str) -> Figure:
    """Plot each family minus the local-only one against alpha, with intervals."""
    figure, (axes,) = new_figure(3.2)
    _zero(axes)
    alphas: set[float] = set()
    for i, (kind, points) in enumerate(values.points.items()):
        alphas.update(point.alpha for point in points)
        shift = 1.03 ** (2 * i - len(values.points) + 1)  # side by side
        errors = [point.errors for point in points]
        look = LOOKS[kind]
        axes.errorbar(
            x=[shift * point.alpha for point in points],
            y=[point.difference for point in points],
            yerr=[[below for below, _ in errors], [above for _, above in errors]],
            color=look.color,
            marker=look.marker,
            elinewidth=1.2,
        )
    axes.set_xscale("log")
    ticks = sorted(alphas)
    axes.set_xticks(ticks, [f"{alpha:g}" for alpha in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("Dirichlet alpha: heterogeneous (left) to homogeneous sites (right)")
    axes.set_title(f"Minus strategies with the local model only, {unit}")
    _families(figure, list(values.points))
    return figure


@mpl.rc_context(STYLE)
def slopes(values: Slopes) -> Figure:
    """Plot the least-squares line of each family, over means of equally many points."""
    figure, (axes,) = new_figure(3.4)
    for kind, line in values.lines.items():
        x = np.array([cv for cv, _ in line.bins])
        means = [accuracy for _, accuracy in line.bins]
        look = LOOKS[kind]
        axes.plot(x, line.intercept + line.slope * x, color=look.color)
        axes.plot(x, means, look.marker, color=look.color, alpha=0.6)
    axes.set_xlabel("Uneven distribution of a class over sites: CV of its counts")
    axes.set_title("Test accuracy of a class, %")
    _families(figure, list(values.lines))
    return figure


@mpl.rc_context(STYLE)
def lifts(pairs: Sequence[tuple[StrategyPair, Comparison]], unit: str) -> Figure:
    """Plot one bar per heuristic: with the true class shares minus without, with its
    interval.
    """
    figure, (axes,) = new_figure(0.9 + 0.42 * len(pairs))
    rows = range(len(pairs))
    mean = [c.difference for _, c in pairs]
    low = [c.difference - c.interval.low for _, c in pairs]
    high = [c.interval.high - c.difference for _, c in pairs]
    axes.barh(rows, mean, height=0.55, color=LOOKS["both"].color, alpha=0.75)
    axes.errorbar(mean, rows, xerr=[low, high], fmt="none", ecolor=INK, elinewidth=1.2)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(rows, [plain(pair.what) for pair, _ in pairs])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_title(f"True class shares known, minus unknown, {unit}")
    return figure


def strategies_with_routing(study: StudyRecords) -> tuple[str, ...]:
    """Return the strategies whose records contain the routing of classes."""
    return tuple(q for q in study.strategies if over_cycles(study, q, _count_spreads))


def _count_spreads(row: Record) -> float | None:
    """Return the number of classes with a spread in a record, or None."""
    sigma = read_numbers(row, "sigma")
    if sigma is None:
        return None
    return float(len(sigma))


def _low_classes(row: Record) -> float | None:
    """Return the number of classes below the threshold, as noted by the query."""
    low = read_numbers(row, "low")
    if low is None:
        return None
    return sum(low)


def _mean_sigma(cells: Sequence[RunRecords]) -> dict[int, list[float]]:
    """Return cycle -> spread of each class, mean over seeds."""
    values: dict[int, list[Sequence[float]]] = {}
    for cell in cells:
        for cycle in cell.cycles:
            row = cell.last_of(cycle)
            if row is None:
                continue
            sigma = read_numbers(row, "sigma")
            if sigma is not None:
                values.setdefault(cycle, []).append(sigma)

    means = {}
    for cycle, rows in sorted(values.items()):
        by_class = zip(*rows, strict=True)  # rows are seeds
        means[cycle] = [fmean(of_seeds) for of_seeds in by_class]
    return means


def _threshold(cells: Sequence[RunRecords]) -> float | None:
    """Return the threshold in the records of a query."""
    for cell in cells:
        for row in cell.records:
            tau = read_number(row, "spread_tau")
            if tau is not None:
                return tau
    return None


def _draw_spread(axes: Axes, cells: Sequence[RunRecords], look: LineStyle) -> None:
    """Draw one line per class, and the threshold."""
    sigma = _mean_sigma(cells)
    cycles = list(sigma)
    marker = None
    if len(cycles) == 1:  # a line with a single point is invisible
        marker = "."
    for of_class in zip(*sigma.values(), strict=True):
        axes.plot(
            cycles, of_class, color=look.color, alpha=0.55, linewidth=1.1, marker=marker
        )

    tau = _threshold(cells)
    if tau is None:
        return
    axes.axhline(tau, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
    axes.annotate(
        f"threshold {tau:g}",
        (1, tau),
        xycoords=("axes fraction", "data"),
        xytext=(0, 6),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.5},
    )


@mpl.rc_context(STYLE)
def routing(study: StudyRecords) -> Figure | None:
    """Plot the spread of each class, and the number of classes below the threshold."""
    strategies = strategies_with_routing(study)
    if not strategies:
        return None
    shown = strategies[0]
    reference = study.study.reference
    if reference is not None and reference in strategies:
        shown = reference
    figure, (left, right) = new_figure(3.1, columns=2)
    look = looks(study)
    _draw_spread(left, study.of(shown), look[shown])
    for strategy in strategies:
        low = over_cycles(study, strategy, _low_classes)
        if low:
            spread_line(
                right, list(low), list(low.values()), look[strategy], band=strategy == shown
            )
    left.set_title(f"Class spread (points), {plain(label_of(shown, study.study))}")
    right.set_title("Classes below the threshold")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Query after cycle")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    key_above(figure, study, strategies)
    return figure
