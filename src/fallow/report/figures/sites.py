"""The figures of studies with one model per site: accuracy over rounds, how even, at what cost."""

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
    banded,
    key_above,
    looks,
    new_figure,
    spread_line,
)
from fallow.report.final_table import label_of
from fallow.report.findings.personal import SiteOutcome, over_rounds
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd

MEGABYTE = 1e6


@mpl.rc_context(STYLE)
def rounds(study: StudyRecords) -> Figure | None:
    """Accuracy after every round that was scored."""
    look = looks(study)
    bands = banded(study)
    lines = {
        q: found for q in look if q in study.strategies and (found := over_rounds(study, q))
    }
    if max(map(len, lines.values()), default=0) < 2:
        return None
    figure, (axes,) = new_figure(3.4)
    for query, by_round in lines.items():
        spread_line(
            axes,
            [turn + 1 for turn in by_round],
            list(by_round.values()),
            look[query],
            band=query in bands,
            name=f"{label_of(query, study.study)}, round",
        )
    axes.set_title("Test accuracy, mean over sites, %")
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    key_above(figure, study, lines)
    return figure


@mpl.rc_context(STYLE)
def trade(study: StudyRecords, found: Sequence[SiteOutcome]) -> Figure:
    """Accuracy against the variance between sites, and against what a site receives."""
    figure, (left, right) = new_figure(3.4, columns=2)
    for s in found:
        _dot(left, study, s, s.variance)
        _dot(right, study, s, s.received / MEGABYTE)
    sent = [s.received / MEGABYTE for s in found if s.received > 0]
    if sent and max(sent) > 10 * min(sent):
        straight = 10 * min(sent)  # from zero up to there
        right.set_xscale("symlog", linthresh=straight)
        at = SymmetricalLogLocator(base=10, linthresh=straight, subs=[1.0, 2.0, 5.0])
        right.xaxis.set_major_locator(at)
        right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        right.xaxis.set_minor_formatter(NullFormatter())
    left.set_title("Test accuracy, mean over sites, %")
    left.set_xlabel("Variance between sites, percent²")
    right.set_xlabel("Received by a site, MB")
    right.set_xlim(left=0)
    key_above(figure, study, [s.query for s in found])
    return figure


def _dot(axes: Axes, study: StudyRecords, s: SiteOutcome, x: float) -> None:
    look = looks(study)[s.query]
    mean, sd = mean_sd(s.accuracy)
    add_tip(axes, x, mean, f"{label_of(s.query, study.study)}: {mean:.2f} % at {x:,.4g}")
    axes.errorbar(
        x,
        mean,
        yerr=sd or 0.0,
        color=look.colour,
        marker=look.marker or ".",
        elinewidth=1,
    )
