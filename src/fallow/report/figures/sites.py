"""The figures of studies with one model per site: accuracy over rounds, how even, at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fallow.report.figures.style import (
    STYLE,
    banded,
    key_above,
    looks,
    new_figure,
    spread_line,
)
from fallow.report.findings.personal import Fared, over_rounds
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd

MEGABYTE = 1e6


@mpl.rc_context(STYLE)
def rounds(study: StudyRecords) -> Figure | None:
    """Accuracy after every round that was scored."""
    look, bands = looks(study), banded(study)
    lines = {
        q: found for q in look if q in study.strategies and (found := over_rounds(study, q))
    }
    if max(map(len, lines.values()), default=0) < 2:
        return None
    figure, (axes,) = new_figure(3.4)
    for query, by_round in lines.items():
        x, y = [t + 1 for t in by_round], [*by_round.values()]
        spread_line(axes, x, y, look[query], band=query in bands)
    axes.set_title("Test accuracy, mean over sites, %")
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    key_above(figure, study, lines)
    return figure


@mpl.rc_context(STYLE)
def trade(study: StudyRecords, found: Sequence[Fared]) -> Figure:
    """Accuracy against the variance between sites, and against what a site receives."""
    figure, (left, right) = new_figure(3.4, columns=2)
    for s in found:
        _dot(left, study, s, s.variance)
        _dot(right, study, s, s.received / MEGABYTE)
    sent = [s.received / MEGABYTE for s in found if s.received > 0]
    if sent and max(sent) > 10 * min(sent):
        right.set_xscale("symlog", linthresh=10 * min(sent))
    left.set_title("Test accuracy, mean over sites, %")
    left.set_xlabel("Variance between sites, percent²")
    right.set_xlabel("Received by a site, MB")
    right.set_xlim(left=0)
    key_above(figure, study, [s.query for s in found])
    return figure


def _dot(axes: Axes, study: StudyRecords, s: Fared, x: float) -> None:
    look, (_, sd) = looks(study)[s.query], mean_sd(s.accuracy)
    axes.errorbar(
        x,
        fmean(s.accuracy),
        yerr=sd or 0.0,
        color=look.colour,
        marker=look.marker or ".",
        elinewidth=1,
    )
