"""Figures of collaboration graphs: senders and receivers, and their change over rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fallow.report.figures.style import (
    INK,
    PAPER,
    RULE,
    STYLE,
    key_above,
    legend_above,
    looks,
    new_figure,
    spread_line,
)
from fallow.report.personal import SiteOutcome
from fallow.study.records import StudyRecords
from fallow_papers.dpfl import graph_measures as measure
from fallow_papers.dpfl.graphs import Graphs, links_and_dropped, over_rounds, snapshots

MAX_SNAPSHOTS = 5
"""Snapshots side by side."""

KEPT = "#1f83c4"
DROPPED = "#e69f00"


@mpl.rc_context(STYLE)
def adjacency(run: Graphs) -> Figure:
    """Plot a few rounds of one run: links in one color, candidates without a link in
    another.

    Sites with flipped labels are last.
    """
    shown = snapshots(run, MAX_SNAPSHOTS)
    width = 6.2  # inches
    if len(shown) == 1:
        width = 3.0
    figure, panels = new_figure(2.3, columns=len(shown), width=width)
    order = torch.argsort(run.wrong.int(), stable=True)
    for axes, turn in zip(panels, shown, strict=True):
        links, dropped = links_and_dropped(run, turn)
        right = len(order) - int(run.wrong.sum())
        _draw(axes, links[order][:, order], dropped[order][:, order], right)
        axes.set_title(f"Round {turn + 1}")
        axes.set_xlabel("Sender")
    panels[0].set_ylabel("Receiver")
    marks = [
        (_square(KEPT), "receives"),
        (_square(DROPPED), "candidate, not chosen"),
    ]
    if bool(run.wrong.any()):
        marks.append(
            (
                Line2D([], [], color=INK, linewidth=1),
                "sites with flipped labels after the line",
            )
        )
    legend_above(figure, marks)
    return figure


def _square(color: str) -> Line2D:
    """Return the marker of a legend entry."""
    return Line2D([], [], color=color, marker="s", linestyle="none", markersize=7)


def _draw(axes: Axes, links: Tensor, dropped: Tensor, right: int) -> None:
    """Draw one graph. links, dropped: (N, N) bool; sites from ``right`` on have wrong
    labels.
    """
    n = len(links)
    shade = np.zeros((n, n), dtype=np.int64)
    shade[dropped.numpy()] = 1
    shade[links.numpy()] = 2
    is_large = n > 40
    edges = RULE
    if is_large:  # lines between squares would hide them
        edges = "none"
    axes.pcolormesh(
        shade,
        cmap=ListedColormap([PAPER, DROPPED, KEPT]),
        vmin=0,
        vmax=2,
        rasterized=is_large,
        edgecolors=edges,
        linewidth=0.4,
    )
    if right < n:
        axes.axhline(right, color=INK, linewidth=1)
        axes.axvline(right, color=INK, linewidth=1)
    axes.set_aspect("equal")
    axes.set_ylim(n, 0)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)


@mpl.rc_context(STYLE)
def accuracy_and_variance(study: StudyRecords, values: Sequence[SiteOutcome]) -> Figure:
    """Plot one point for each strategy: mean accuracy, and variance between sites."""
    figure, (axes,) = new_figure(3.4)
    look = looks(study)
    drawn = []
    for value in values:
        if value.strategy in look:
            style = look[value.strategy]
            axes.plot(
                [fmean(value.accuracy)],
                [value.variance],
                color=style.color,
                marker=style.marker,
                linestyle="none",
                markersize=8,
            )
            drawn.append(value.strategy)
    axes.set_xlabel("Mean accuracy over sites, %")
    axes.set_ylabel("Variance between sites, %²")
    key_above(figure, study, drawn)
    return figure


@mpl.rc_context(STYLE)
def rounds(study: StudyRecords, graphs: Mapping[str, Sequence[Graphs]]) -> Figure | None:
    """Plot absent links and asymmetric pairs over rounds, and links from flipped sites.

    Without sites with flipped labels, the share of reciprocal links is plotted.
    """
    runs = [run for of_strategy in graphs.values() for run in of_strategy]
    if max(len(run.by_round) for run in runs) < 2:
        return None
    figure, (left, middle, right) = new_figure(3.0, columns=3)
    drawn = _lines(left, study, graphs, absent)
    left.set_title("Absent links, %")
    _lines(middle, study, graphs, asymmetry)
    middle.set_title("Asymmetric pairs, %")
    bases = [run.base for run in runs if not math.isnan(run.base)]  # of flipped sites
    if not bases:
        _lines(right, study, graphs, reciprocity)
        right.set_title("Reciprocal links, %")
    else:
        _lines(right, study, graphs, wrong)
        right.set_title("Links from flipped sites, %")
        base = 100 * max(bases)
        right.axhline(base, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
        right.set_ylim(0, max(1.15 * base, right.get_ylim()[1]))
        right.annotate(
            "by chance",
            (1, base),
            xycoords=("axes fraction", "data"),
            ha="right",
            xytext=(0, 4),
            textcoords="offset points",
            fontsize=9,
        )
    key_above(figure, study, drawn)
    return figure


def absent(run: Graphs, turn: int) -> float:
    """Return the share of absent links, counting every site's link to itself as present."""
    return measure.sparsity(run.by_round[turn], with_self=True)


def asymmetry(run: Graphs, turn: int) -> float:
    """Return the share of pairs that are linked in one direction only."""
    return 1 - measure.agreement(run.by_round[turn])


def wrong(run: Graphs, turn: int) -> float:
    """Return the share of correct sites' links that come from sites with flipped labels."""
    return measure.share_from(run.by_round[turn], run.wrong)


def reciprocity(run: Graphs, turn: int) -> float:
    """Return the share of links whose reverse exists."""
    return measure.reciprocity(run.by_round[turn])


def _lines(
    axes: Axes,
    study: StudyRecords,
    graphs: Mapping[str, Sequence[Graphs]],
    value: Callable[[Graphs, int], float],
) -> list[str]:
    """Draw a line for each strategy with a graph, and return these strategies."""
    look = looks(study)
    drawn = [q for q in look if q in graphs]
    for strategy in drawn:
        by_round = over_rounds(graphs[strategy], value)
        if by_round:
            shown = [[100 * v for v in values] for values in by_round.values()]
            spread_line(axes, [t + 1 for t in by_round], shown, look[strategy], band=False)
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn
