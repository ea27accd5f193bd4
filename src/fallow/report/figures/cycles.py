"""Figures over cycles: how even the labels are, and how classes were routed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fallow.report.figures.style import (
    INK,
    PAPER,
    STYLE,
    Look,
    banded,
    key_above,
    looks,
    new_figure,
    plain,
    spread_line,
)
from fallow.report.final_table import label_of
from fallow.report.findings.labels import label_kl, minority_share, over_cycles
from fallow.study.records import Cell, Record, StudyRecords


@mpl.rc_context(STYLE)
def label_balance(study: StudyRecords) -> Figure | None:
    """Minority share of all labels, and KL of sites' labels to all labels, over labelled share."""
    figure, panels = new_figure(3.1, columns=2)
    look, drawn, bands = looks(study), [], banded(study)
    for axes, value in zip(panels, (minority_share, label_kl), strict=True):
        for query in (q for q in look if q in study.strategies):
            values, x = over_cycles(study, query, value), study.fractions(query)
            cycles = [c for c in values if c in x]
            if cycles:
                at = [100 * x[c] for c in cycles]
                shown = [values[c] for c in cycles]
                spread_line(axes, at, shown, look[query], band=query in bands)
                drawn.append(query)
        axes.set_xlabel("Labelled rows, %")
    if not drawn:
        return None
    panels[0].set_title("Share of the rarer classes, %")
    panels[1].set_title("Sites' labels against all, KL (nats)")
    key_above(figure, study, drawn)
    return figure


def routed(study: StudyRecords) -> tuple[str, ...]:
    """Queries whose records say how each class was routed."""
    return tuple(
        q
        for q in study.strategies
        if over_cycles(study, q, lambda r: 1.0 if _sigma(r) else None)
    )


def _sigma(row: Record) -> Sequence[float] | None:
    notes = row.get("notes") or {}
    return notes.get("sigma")


def _low_classes(row: Record) -> float | None:
    low = (row.get("notes") or {}).get("low")
    return None if low is None else float(sum(map(bool, low)))


def _mean_sigma(cells: Sequence[Cell]) -> dict[int, list[float]]:
    """Cycle -> spread of each class, mean over seeds."""
    found: dict[int, list[Sequence[float]]] = {}
    for cell in cells:
        for cycle in cell.cycles:
            row = cell.last_of(cycle)
            sigma = _sigma(row) if row else None
            if sigma:
                found.setdefault(cycle, []).append(sigma)
    return {
        c: [fmean(s) for s in zip(*rows, strict=True)] for c, rows in sorted(found.items())
    }


def _threshold(cells: Sequence[Cell]) -> float | None:
    """The threshold that the records of a query name."""
    notes = (r.get("notes") or {} for cell in cells for r in cell.records)
    return next((n["spread_tau"] for n in notes if n.get("spread_tau") is not None), None)


def _draw_spread(axes: Axes, cells: Sequence[Cell], look: Look) -> None:
    """One line per class, and the threshold across them."""
    sigma, tau = _mean_sigma(cells), _threshold(cells)
    marker = "." if len(sigma) == 1 else None
    for line in zip(*sigma.values(), strict=True):
        axes.plot(
            list(sigma), line, color=look.colour, alpha=0.55, linewidth=1.1, marker=marker
        )
    if tau is None:
        return
    axes.axhline(tau, color=INK, linestyle=(0, (5, 3)), linewidth=1.2)
    above: dict[str, Any] = {
        "xytext": (0, 6),
        "textcoords": "offset points",
        "ha": "right",
        "fontsize": 9,
        "bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5},
    }
    axes.annotate(
        f"threshold {tau:g}", (1, tau), xycoords=("axes fraction", "data"), **above
    )


@mpl.rc_context(STYLE)
def routing(study: StudyRecords) -> Figure | None:
    """Spread of each class against the threshold, and how many classes are below it."""
    queries = routed(study)
    if not queries:
        return None
    reference = study.study.reference
    shown = reference if reference in queries and reference else queries[0]
    figure, (left, right) = new_figure(3.1, columns=2)
    look = looks(study)
    _draw_spread(left, study.of(shown), look[shown])
    for query in queries:
        low = over_cycles(study, query, _low_classes)
        if low:
            spread_line(
                right, list(low), list(low.values()), look[query], band=query == shown
            )
    left.set_title(f"Class spread (points), {plain(label_of(shown, study.study))}")
    right.set_title("Classes below the threshold")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Query after cycle")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    key_above(figure, study, queries)
    return figure
