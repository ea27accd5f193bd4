"""Figures over cycles: balance of the labels, and routing of classes."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.figure import Figure

from fallow.report.figures.style import (
    STYLE,
    key_above,
    looks,
    new_figure,
    spread_line,
    with_band,
)
from fallow.report.final_table import label_of
from fallow.report.findings.labels import label_kl, minority_share, over_cycles
from fallow.study.records import StudyRecords


@mpl.rc_context(STYLE)
def label_balance(study: StudyRecords) -> Figure | None:
    """Plot the share of rare classes and the KL of sites' labels to all labels over the
    labeled share.
    """
    figure, panels = new_figure(3.1, columns=2)
    look = looks(study)
    bands = with_band(study)
    drawn: list[str] = []
    for axes, value in zip(panels, (minority_share, label_kl), strict=True):
        for strategy in look:
            values = over_cycles(study, strategy, value)
            x = study.fractions(strategy)
            cycles = [cycle for cycle in values if cycle in x]
            if strategy not in study.strategies or not cycles:
                continue
            spread_line(
                axes,
                [100 * x[cycle] for cycle in cycles],
                [values[cycle] for cycle in cycles],
                look[strategy],
                band=strategy in bands,
                name=label_of(strategy, study.study),
                unit=" % labeled",
            )
            drawn.append(strategy)
        axes.set_xlabel("Labeled rows, %")
    if not drawn:
        return None
    panels[0].set_title("Share of the rarer classes, %")
    panels[1].set_title("KL of sites' labels to all labels (nats)")
    key_above(figure, study, drawn)
    return figure
