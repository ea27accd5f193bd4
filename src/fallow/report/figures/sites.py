"""Figures of studies with personalized models: accuracy over rounds, variance between
sites, cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    MaxNLocator,
    NullFormatter,
    SymmetricalLogLocator,
)

from fallow.report.figures.style import (
    STYLE,
    add_tip,
    key_above,
    looks,
    new_figure,
    plain_number,
    spread_line,
    with_band,
)
from fallow.report.final_table import label_of
from fallow.report.findings.personal import SiteOutcome, over_rounds
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd

MEGABYTE = 1e6


@mpl.rc_context(STYLE)
def rounds(study: StudyRecords) -> Figure | None:
    """Plot the accuracy after every round that was scored."""
    look = looks(study)
    bands = with_band(study)
    lines = {}
    for strategy in look:
        by_round = over_rounds(study, strategy)
        if by_round and strategy in study.strategies:
            lines[strategy] = by_round
    if max((len(by_round) for by_round in lines.values()), default=0) < 2:
        return None
    figure, (axes,) = new_figure(3.4)
    for strategy, by_round in lines.items():
        spread_line(
            axes,
            [turn + 1 for turn in by_round],
            list(by_round.values()),
            look[strategy],
            band=strategy in bands,
            name=f"{label_of(strategy, study.study)}, round",
        )
    axes.set_title("Test accuracy, mean over sites, %")
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    key_above(figure, study, lines)
    return figure


@mpl.rc_context(STYLE)
def trade(study: StudyRecords, outcomes: Sequence[SiteOutcome]) -> Figure:
    """Plot accuracy against the variance between sites, and against the bytes received by a
    site.
    """
    figure, (left, right) = new_figure(3.4, columns=2)
    for outcome in outcomes:
        _draw_dot(left, study, outcome, outcome.variance)
        _draw_dot(right, study, outcome, outcome.received / MEGABYTE)
    _fit_megabytes(right, [outcome.received / MEGABYTE for outcome in outcomes])
    left.set_title("Test accuracy, mean over sites, %")
    left.set_xlabel("Variance between sites, percent²")
    right.set_xlabel("Received by a site, MB")
    right.set_xlim(left=0)
    key_above(figure, study, [outcome.strategy for outcome in outcomes])
    return figure


def _fit_megabytes(axes: Axes, megabytes: Sequence[float]) -> None:
    """Use a logarithmic scale if some strategies receive more than ten times as much as
    others.
    """
    sent = [amount for amount in megabytes if amount > 0]
    if not sent or max(sent) <= 10 * min(sent):
        return
    straight = 10 * min(sent)  # linear from zero to the smallest value
    axes.set_xscale("symlog", linthresh=straight)
    ticks = SymmetricalLogLocator(base=10, linthresh=straight, subs=[1.0, 2.0, 5.0])
    axes.xaxis.set_major_locator(ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_dot(axes: Axes, study: StudyRecords, outcome: SiteOutcome, x: float) -> None:
    """Draw one strategy, with one standard deviation over seeds to each side."""
    look = looks(study)[outcome.strategy]
    mean, sd = mean_sd(outcome.accuracy)
    name = label_of(outcome.strategy, study.study)
    add_tip(axes, x, mean, f"{name}: {mean:.2f} % at {x:,.4g}")
    axes.errorbar(
        x,
        mean,
        yerr=sd or 0.0,
        color=look.color,
        marker=look.marker or ".",
        elinewidth=1,
    )
