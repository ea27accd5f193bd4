"""Figure of the calibration of probabilities, by strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from fallow.report.figures.style import (
    FAINT,
    STYLE,
    add_tip,
    looks,
    name_ends,
    named_in_figures,
    new_figure,
)
from fallow.report.final_table import label_of
from fallow.study.records import StudyRecords


@mpl.rc_context(STYLE)
def draw_reliability(
    study: StudyRecords, points_of: Mapping[str, Sequence[tuple[float, float]]]
) -> Figure | None:
    """Plot the share of the class over the predicted probability, one line per strategy.

    points_of: mean probability and share of each group of examples, by strategy.
    """
    figure, (axes,) = new_figure(3.7)
    look = looks(study)
    ends: list[tuple[str, float, float, str]] = []
    for strategy in named_in_figures(study):
        points = points_of.get(strategy)
        if not points:
            continue
        name = label_of(strategy, study.study)
        color = look[strategy].color
        axes.plot(*zip(*points, strict=True), color=color, marker="o", markersize=3.5)
        for mean, share in points:
            add_tip(
                axes, mean, share, f"{name}: predicted {mean:.2f}, observed {share:.2f}"
            )
        ends.append((name, *points[-1], color))
    if not ends:
        return None
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (5, 3)))
    axes.set_xlabel("Predicted probability")
    axes.set_title("Share of examples with the class")
    name_ends(axes, ends)
    return figure
