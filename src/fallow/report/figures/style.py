"""Style of the figures, and their conversion to SVG.

Figures are drawn by matplotlib's SVG writer without pyplot, so no global state changes.
Colors of text and lines become CSS variables, so that one figure fits a light and a dark
page.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote
from zlib import crc32

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fallow.report.final_table import label_of, rank_strategies
from fallow.settings.variants import ParsedStrategy
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

INK = "#1c1d21"
RULE = "#d9dade"
PAPER = "#fefdfc"
FAINT = "#c4c6cc"
"""Colors of text, thin lines, background and muted elements, which become the page's own
colors.
"""

_VARIABLES = {
    INK: "var(--ink)",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
    FAINT: "var(--faint)",
}

MAX_STRATEGIES = 8
"""Number of strategies with distinct colors. Others are drawn faintly."""

AXES_SHARE = 0.78
"""Approximate fraction of a figure's height that the axes take."""

WIDTH = 5.4
"""Width of a figure in inches. On a phone a figure is as wide as the screen, so type is
larger in a narrower figure: 9 points are 8.7 pixels on a screen of 390.
"""

POINTS_PER_INCH = 72

NAME_SIZE = 9
"""Font size of the names of lines, in points."""

MARKED = 20
"""Approximate maximum number of markers on a line of many points."""

_RANDOM = "#8c8c8c"
_COLORS = (
    "#1f83c4",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#9467bd",
    "#56b4e9",
    "#b0722e",
    "#35978f",
    "#c44e8a",
)
_NAME_SHARE = 60
"""Percentage of a line's color in the color of its name. The rest is the color of text, so that
names have a contrast of at least 4.5 to the page. A color alone has 2.3 on white.
"""
_MARKERS = "osD^vPX*"
_TIP = "tip:"
"""Prefix of the ID of a mark with a tooltip."""

STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 9,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "axes.formatter.useoffset": False,  # ticks are plain numbers
    "axes.formatter.limits": (-15, 15),  # beyond these, a power of ten is at the axis
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
"""Style of the figures, for functions decorated with ``@mpl.rc_context(STYLE)``."""


@dataclass(frozen=True)
class LineStyle:
    """Color and marker of a strategy.

    They are the same in every figure of a study. The color is the same on every page unless
    two strategies of a study would share it.
    """

    color: str
    marker: str
    width: float = 1.8  # of a line, in points

    @property
    def on_page(self) -> str:
        """Return the color as CSS, which may differ between light and dark pages."""
        return _VARIABLES.get(self.color, self.color)

    @property
    def is_faint(self) -> bool:
        """Return whether the strategy is drawn faintly and without a name."""
        return self.color == FAINT


def named_in_figures(study: StudyRecords) -> tuple[str, ...]:
    """Return the strategies that figures name, in the order of the study.

    If there are more than eight, these are the reference, random and the best ones.
    """
    if len(study.strategies) <= MAX_STRATEGIES:
        return study.strategies
    wanted = (study.study.reference, "random", *rank_strategies(study))
    present = [strategy for strategy in wanted if strategy in study.strategies]
    first = list(dict.fromkeys(present))[:MAX_STRATEGIES]  # without repetitions
    return tuple(strategy for strategy in study.strategies if strategy in first)


def looks(study: StudyRecords) -> dict[str, LineStyle]:
    """Return a look for each strategy, the faint ones first, so that the others are drawn
    on top of them.

    Random is gray; every other strategy has the color of its name, and the reference has a
    broader line.  Most of the palette is by Okabe and Ito, which color-blind readers can
    distinguish. All colors are legible on white and on black.
    """
    named = named_in_figures(study)
    colors = colors_of(named)
    result = {}
    for strategy in study.strategies:
        if strategy not in named:
            result[strategy] = LineStyle(FAINT, "", width=1)
    for at, strategy in enumerate(named):
        width = 1.8
        if strategy == study.study.reference:
            width = 2.6
        result[strategy] = LineStyle(colors[strategy], _MARKERS[at % len(_MARKERS)], width)
    for strategy in study.bounds:
        result[strategy] = LineStyle(INK, "_")
    return result


def colors_of(strategies: Sequence[str]) -> dict[str, str]:
    """Return a color for each strategy name, the same on every page.

    If two names would share a color, the alphabetically first name keeps it, and the other
    gets the next free one.  The colors of a set of names therefore do not depend on their
    order.

    >>> colors_of(["b", "a"]) == {**colors_of(["a", "b"])}
    True
    """
    result = {}
    for strategy in sorted(strategies):
        if is_random(strategy):
            result[strategy] = _RANDOM
            continue
        start = crc32(strategy.lower().replace("_", "-").encode()) % len(_COLORS)
        from_start = [*_COLORS[start:], *_COLORS[:start]]
        free = [color for color in from_start if color not in result.values()]
        result[strategy] = (free or from_start)[0]
    return {strategy: result[strategy] for strategy in strategies}


def is_random(strategy: str) -> bool:
    """Return whether a strategy is random sampling with the training of the study, in any
    spelling.

    >>> is_random("random"), is_random("Random"), is_random("random@rounds=5")
    (True, True, False)
    """
    parsed = ParsedStrategy.parse(strategy)
    return parsed.key == "random" and not parsed.settings


def new_figure(
    height: float, columns: int = 1, width: float = WIDTH
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with one row of axes.  height, width: inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def plain(name: str) -> str:
    """Return a name as text, in which a dollar sign does not start a formula."""
    return name.replace("$", r"\$")


def space_out(heights: Sequence[float], gap: float, low: float = -np.inf) -> list[float]:
    """Move heights as little as needed so that they are ``gap`` apart, in the same order,
    and at least
    ``low``.

    >>> [round(h, 2) for h in space_out([1.0, 1.1, 3.0], gap=0.5)]
    [0.8, 1.3, 3.0]
    """
    # After the gaps are subtracted, heights only have to be nondecreasing. The nearest
    # nondecreasing sequence consists of group means, found by isotonic regression.
    groups: list[list[float]] = []
    for i, height in enumerate(np.sort(heights)):
        groups.append([float(height) - i * gap])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            falling = groups.pop()
            groups[-1] += falling

    rising: list[float] = []
    for group in groups:
        rising += [fmean(group)] * len(group)

    moved = [0.0] * len(rising)
    for i, which in enumerate(np.argsort(heights, kind="stable").tolist()):
        moved[which] = max(rising[i], low) + i * gap
    return moved


Line = dict[float, list[float]]
"""Position on the x axis -> one value per seed."""


def draw_lines(
    axes: Axes,
    study: StudyRecords,
    lines: Mapping[str, Line],
    unit: str = "",
    *,
    name: str = "",
    digits: int = 2,
) -> dict[str, tuple[float, float]]:
    """Plot the mean over seeds of each strategy, with a band of one standard deviation, and
    return the end of each line.

    In the tooltips, ``name`` follows the name of the strategy, and ``unit`` follows x.
    """
    look = looks(study)
    bands = with_band(study)
    ends = {}
    for strategy in filter(lines.__contains__, look):  # the faint ones first
        label = f"{label_of(strategy, study.study)}{name}"
        ends[strategy] = spread_line(
            axes,
            list(lines[strategy]),
            list(lines[strategy].values()),
            look[strategy],
            band=strategy in bands,
            name=label,
            unit=unit,
            digits=digits,
        )
    return ends


def spread_line(
    axes: Axes,
    x: Sequence[float],
    values: Sequence[Sequence[float]],
    look: LineStyle,
    *,
    band: bool = True,
    name: str = "",
    unit: str = "",
    digits: int = 2,
) -> tuple[float, float]:
    """Plot the mean over seeds, with a ``band`` of one standard deviation, and return the
    end of the line.

    ``name`` is displayed in the tooltips of its marks, and ``unit`` follows x.
    """
    spreads = [mean_sd(of_seeds) for of_seeds in values]
    mean = np.array([mean for mean, _ in spreads])  # (points,)
    sd = np.array([sd or 0.0 for _, sd in spreads])
    every = max(1, len(x) // MARKED)
    axes.plot(
        x,
        mean,
        color=look.color,
        marker=look.marker,
        linewidth=look.width,
        markevery=every,
    )
    if band and (sd > 0).any():
        axes.fill_between(
            x, mean - sd, mean + sd, color=look.color, alpha=0.14, linewidth=0
        )
    if name:
        for at in range(0, len(x), every):
            shown = f"{mean[at]:.{digits}f}"
            if sd[at]:
                shown += f" ± {sd[at]:.{digits}f}"
            add_tip(axes, x[at], float(mean[at]), f"{name}, {_place(x[at])}{unit}: {shown}")
    return float(x[-1]), float(mean[-1])


def _place(x: float) -> str:
    """Return a position on an axis, as an integer or with one decimal.

    >>> _place(12345.0), _place(22.2531)
    ('12,345', '22.3')
    """
    if x == round(x):
        return f"{x:,.0f}"
    return f"{x:,.1f}"


def add_tip(axes: Axes, x: float, y: float, text: str) -> None:
    """Add a tooltip: an invisible mark whose ID contains the text.

    `to_svg` converts the ID to a title.
    """
    (mark,) = axes.plot([x], [y], "o", markersize=11, alpha=0, scalex=False, scaley=False)
    mark.set_gid(_TIP + quote(text, safe=""))


def plain_logarithm(axis: Axis) -> None:
    """Set a logarithmic axis with ticks in plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float) -> str:
    """Return a number without a power of ten, with six digits.

    >>> plain_number(6.0), plain_number(2e8), plain_number(0.0000005), plain_number(-0.25)
    ('6', '200,000,000', '0.0000005', '−0.25')
    """
    text = np.format_float_positional(value, precision=6, fractional=False, trim="-")
    whole, point, decimals = text.lstrip("-").partition(".")
    sign = ""
    if value < 0:
        sign = "−"
    return f"{sign}{int(whole):,}{point}{decimals}"


def name_ends(axes: Axes, ends: Sequence[tuple[str, float, float, str]]) -> None:
    """Write the name of each line at its right end, without overlap.

    Each entry is (name, x, y, color). A name is at the edge if its line leaves the figure.
    """
    if not ends:
        return
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top)

    # Heights in the figure: on a logarithmic axis names are spaced in logarithms.
    to_height: Callable[[float], float] = float
    from_height: Callable[[float], float] = float
    if axes.get_yscale() == "log":
        to_height = math.log
        from_height = math.exp
    low = to_height(bottom)
    high = to_height(top)
    heights = [to_height(min(max(y, bottom), top)) for _, _, y, _ in ends]

    inches = axes.figure.get_window_extent().height / axes.figure.dpi
    points = AXES_SHARE * POINTS_PER_INCH * inches
    gap = (high - low) * (NAME_SIZE + 3) / points
    right = max(x for _, x, _, _ in ends)
    for (name, _, _, color), height in zip(ends, space_out(heights, gap, low), strict=True):
        axes.annotate(
            plain(name),
            (right, from_height(height)),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=color,
            fontsize=NAME_SIZE,
            annotation_clip=False,
        )


def with_band(study: StudyRecords) -> tuple[str, ...]:
    """Return the strategies with a band.

    These are all strategies if there are few; otherwise the reference and random, or else
    the first.
    """
    if len(study.strategies) <= 3:
        return study.strategies
    wanted = (study.study.reference, "random")
    return tuple(q for q in study.strategies if q in wanted) or study.strategies[:1]


def key_above(figure: Figure, study: StudyRecords, strategies: Iterable[str]) -> None:
    """Draw one legend above all axes, in the order of the study. Faint strategies share an
    entry.
    """
    look = looks(study)
    drawn = set(strategies)
    marks = []
    for strategy in study.strategies:
        if strategy in drawn and not look[strategy].is_faint:
            line = Line2D([], [], color=look[strategy].color, marker=look[strategy].marker)
            marks.append((line, plain(label_of(strategy, study.study))))
    rest = len(drawn) - len(marks)
    if rest:
        marks.append((Line2D([], [], color=FAINT, linewidth=1), f"{rest} others"))
    legend_above(figure, marks)


def legend_above(figure: Figure, marks: Sequence[tuple[Line2D, str]]) -> None:
    """Draw the legend with at most four columns, as many as its longest name allows."""
    widest = 34 + 4.9 * max(len(name) for _, name in marks)  # points, at this font size
    room = int(POINTS_PER_INCH * figure.get_figwidth() / widest)
    figure.legend(
        [line for line, _ in marks],
        [name for _, name in marks],
        loc="outside upper left",
        ncols=max(1, min(4, len(marks), room)),
        fontsize=9,
        handlelength=1.6,
        columnspacing=1.2,
    )


def to_svg(figure: Figure, key: str, description: str) -> str:
    """Return the figure as an inline ``<svg>`` without external resources, whose ids start
    with ``key``.

    ``description`` is the text for screen readers.
    """
    out = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": key}), warnings.catch_warnings():
        # text is rendered with the browser's fonts
        warnings.filterwarnings("ignore", "Glyph .* missing")
        layout = figure.get_layout_engine()
        if layout is not None:  # savefig would draw twice to arrange the axes
            FigureCanvasSVG(figure)
            layout.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(rf'<g id="{_TIP}([^"]*)">', _tip, text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{key}-\1"', text)
    text = re.sub(r"url\(#", f"url(#{key}-", text).replace('href="#', f'href="#{key}-')
    # Use the fonts of the page.  Versions of matplotlib write one property or two.
    text = re.sub(r"font: (?:(\d+|bold) )?([\d.]+px) [^;\"]*", _split_font, text)
    text = re.sub(r"font-family: [^;\"]*(; )?", "", text)
    text = re.sub(rf"(<text [^>]*)fill: ({'|'.join((_RANDOM, *_COLORS))})", _mix_ink, text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    opening, rest = text.split(">", 1)
    return f'{opening} role="img" aria-label="{escape(description)}">{rest}'.strip()


def _tip(match: re.Match[str]) -> str:
    """Return a mark with a tooltip."""
    return f'<g class="tip"><title>{escape(unquote(match[1]))}</title>'


def _mix_ink(match: re.Match[str]) -> str:
    """Mix the color of a name with that of text; old browsers show the color itself."""
    mixed = f"color-mix(in srgb, {match[2]} {_NAME_SHARE}%, var(--ink))"
    return f"{match[1]}fill: {match[2]}; fill: {mixed}"


def _split_font(match: re.Match[str]) -> str:
    """Split a ``font`` property into size and, if present, weight."""
    if not match[1]:
        return f"font-size: {match[2]}"
    return f"font-weight: {match[1]}; font-size: {match[2]}"
