"""The figures of what papers conclude: trade-off over alpha, slopes over classes, oracle lifts."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fallow.report.figures.style import INK, STYLE, Look, legend_above, new_figure, plain
from fallow.report.findings.families import FAMILIES, Family
from fallow.report.findings.pairs import Pair
from fallow.report.findings.slopes import Slopes
from fallow.report.findings.tradeoff import Tradeoff
from fallow.study.statistics import Comparison

LOOKS: dict[Family, Look] = {
    "local": Look("#d55e00", "o"),
    "global": Look("#56b4e9", "s"),
    "both": Look("#009e73", "D"),
}
"""Colour and marker of each family."""


def _families(figure: Figure, kinds: Sequence[Family]) -> None:
    marks = [
        (Line2D([], [], color=LOOKS[k].colour, marker=LOOKS[k].marker), k) for k in kinds
    ]
    legend_above(figure, [(mark, FAMILIES[kind].capitalize()) for mark, kind in marks])


def _zero(axes: Axes) -> None:
    axes.axhline(0, color=INK, linewidth=1)


@mpl.rc_context(STYLE)
def tradeoff(found: Tradeoff, unit: str) -> Figure:
    """Each family minus the local-only one against alpha, with intervals over seeds."""
    figure, (axes,) = new_figure(3.2)
    _zero(axes)
    alphas = sorted({p.alpha for points in found.points.values() for p in points})
    for i, (kind, points) in enumerate(found.points.items()):
        shift = 1.03 ** (2 * i - len(found.points) + 1)  # intervals beside one another
        x, y = [shift * p.alpha for p in points], [p.difference for p in points]
        low = [p.difference - p.interval.low if p.interval else 0.0 for p in points]
        high = [p.interval.high - p.difference if p.interval else 0.0 for p in points]
        look = LOOKS[kind]
        axes.errorbar(
            x, y, [low, high], color=look.colour, marker=look.marker, elinewidth=1.2
        )
    axes.set_xscale("log")
    axes.set_xticks(alphas, [f"{a:g}" for a in alphas])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("Dirichlet alpha: sites differ (left), sites are alike (right)")
    axes.set_title(f"Minus strategies of the local model only, {unit}")
    _families(figure, list(found.points))
    return figure


@mpl.rc_context(STYLE)
def slopes(found: Slopes) -> Figure:
    """The least-squares line of each family, over means of equally many points."""
    figure, (axes,) = new_figure(3.4)
    for kind, line in found.lines.items():
        x = np.array([v for v, _ in line.bins])
        look = LOOKS[kind]
        axes.plot(x, line.intercept + line.slope * x, color=look.colour)
        axes.plot(*zip(*line.bins, strict=True), look.marker, color=look.colour, alpha=0.6)
    axes.set_xlabel("How unevenly sites hold a class: CV of its counts")
    axes.set_title("Test accuracy of a class, %")
    _families(figure, list(found.lines))
    return figure


@mpl.rc_context(STYLE)
def lifts(pairs: Sequence[tuple[Pair, Comparison]], unit: str) -> Figure:
    """One bar per heuristic: with the true class shares minus without, with its interval."""
    figure, (axes,) = new_figure(0.9 + 0.42 * len(pairs))
    rows = range(len(pairs))
    mean = [c.difference for _, c in pairs]
    low = [c.difference - c.interval.low for _, c in pairs]
    high = [c.interval.high - c.difference for _, c in pairs]
    axes.barh(rows, mean, height=0.55, color=LOOKS["both"].colour, alpha=0.75)
    axes.errorbar(mean, rows, xerr=[low, high], fmt="none", ecolor=INK, elinewidth=1.2)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(rows, [plain(pair.what) for pair, _ in pairs])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_title(f"True class shares known, minus unknown, {unit}")
    return figure
