"""Report section on the data of the sites, from a description before the study."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fallow.core.wording import join_some, join_words
from fallow.experiment.description import (
    FILE,
    ColumnDescription,
    CountFacts,
    Description,
)
from fallow.report.blocks import (
    Block,
    Blocks,
    CollapsibleBlock,
    Notes,
    Paragraph,
    Table,
    present,
    show_figure,
)
from fallow.report.figures.study import HEAT
from fallow.report.figures.style import STYLE, add_tip, new_figure, plain
from fallow.report.live import format_moment
from fallow.storage.received import parse_json, read_regular
from fallow.storage.validation import find_error
from fallow.study.records import StudyRecords

NOTHING = "–"
MOST_BARS = 40
"""Largest number of columns whose histograms are drawn."""
MOST_CELLS = 200
"""Largest number of cells of the drift figure with a number."""
JOINED = 4
"""Number of bins in a bar."""
BAR = "#1f83c4"
DRIFT = (
    "Drift is the Jensen-Shannon distance between a site and all other sites, from 0 (equal) to 1 "
    "(no common values). The number behind it is exceeded by 5 % of equal sites by chance."
)
SMALL = (
    "Cells with fewer examples than a site's smallest count (describe.least, by default 10) are "
    "counted with a neighboring cell, and levels with fewer are suppressed. Brackets are the bounds "
    "of a quantile, with a dash for a bound outside of the bins."
)


def read_description(folder: Path) -> Description | None:
    """Return the description in the folder of a study, or None without a valid one."""
    try:
        json = parse_json(read_regular(folder / FILE))
    except (OSError, ValueError):
        return None
    if find_error(Description, json) is not None:
        return None
    return cast(Description, json)


def has_description(study: StudyRecords) -> bool:
    """Return whether the data of the study was described."""
    return read_description(study.path) is not None


def description(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the data of the sites."""
    facts = read_description(study.path)
    if facts is None:
        return ()
    lines = [Paragraph(line) for line in summarize(study.path)]
    return [*lines, *description_blocks(facts, key)]


def summarize(folder: Path) -> list[str]:
    """Return a sentence on the date of a description and its strongest drift.

    Returns nothing without a description.
    """
    facts = read_description(folder)
    if facts is None:
        return []
    at = datetime.fromtimestamp((folder / FILE).stat().st_mtime, UTC).isoformat()
    line = f"The data of the sites were described on {format_moment(at)}"
    sites = [(c["name"], site) for c in facts["columns"] for site in c["sites"]]
    if not sites:
        return [f"{line}, without drift between sites (secure aggregation)."]
    strong = [
        (site["drift"], f"{name} at {site['site']} {number(site['drift'])}")
        for name, site in sites
        if (site["drift"] or 0.0) > (site["chance"] or 0.0)
    ]
    strong.sort(key=lambda pair: pair[0] or 0.0, reverse=True)
    if not strong:
        return [f"{line}. No drift exceeds the one by chance."]
    return [f"{line}. Strongest drift: {join_words([t for _, t in strong[:3]])}."]


def description_blocks(facts: Description, key: str) -> Blocks:
    """Return tables and figures of a description.  ``key`` is the prefix of all ids."""
    columns = facts["columns"]
    numbers = [column for column in columns if not column["levels"]]
    categories = [column for column in columns if column["levels"]]
    notes = list(facts["notes"])
    if facts["silent"]:
        notes.append(_describe_silent(facts))
    has_drift = any(site["drift"] is not None for c in columns for site in c["sites"])
    blocks: list[Block | None] = [
        _numbers(numbers) if numbers else None,
        _histograms(numbers, key),
        _categories(categories) if categories else None,
        _drift_figure(facts, key) if has_drift else None,
        Notes([*notes, SMALL, *([DRIFT] if has_drift else [])]),
    ]
    if any(column["sites"] for column in columns):
        by_site = [_of_sites(column) for column in columns]
        blocks.append(CollapsibleBlock("Each column by site", by_site))
    return present(blocks)


def share(part: int, whole: int) -> str:
    """Format a count and its share.

    >>> share(5, 20), share(0, 0)
    ('5 (25.0 %)', '0')
    """
    if not whole:
        return f"{part:,}"
    return f"{part:,} ({100 * part / whole:.1f} %)"


def number(value: float | None) -> str:
    """Format a value with four digits."""
    return NOTHING if value is None else f"{value:.4g}"


def format_description(facts: Description) -> list[str]:
    """Format the description in one line for each column, for a command."""
    lines = []
    for column in facts["columns"]:
        own = column["all"]
        line = f"{column['name']}: {own['values'] + own['suppressed']:,} values"
        if own["missing"]:
            line += f", {_missing(own)} missing"
        if column["levels"] and own["counts"]:
            line += f" ({_levels(column, own)})"
        for item in own["quantiles"]:
            if item["share"] == 0.5 and own["values"]:
                low, high = number(item["low"]), number(item["high"])
                line += f", median {number(item['value'])} [{low}, {high}]"
        drifts = [(site["drift"], site) for site in column["sites"] if site["drift"]]
        if drifts:
            drift, at = max(drifts, key=lambda pair: pair[0] or 0.0)
            line += f", largest drift {number(drift)} at {at['site']}"
            line += f" (by chance {number(at['chance'])})"
        lines.append(line)
    if facts["silent"]:
        lines.append(_describe_silent(facts))
    return [*lines, *facts["notes"]]


def _describe_silent(facts: Description) -> str:
    """Name the sites without figures."""
    return (
        f"No figures of {join_some(facts['silent'])}: too few examples, or describe.least = 0 "
        "there."
    )


def _missing(facts: CountFacts) -> str:
    rows = facts["values"] + facts["missing"] + facts["suppressed"]
    return share(facts["missing"], rows)


def _quantiles(facts: CountFacts) -> list[str]:
    """Return each quantile with its bounds."""
    cells = []
    for item in facts["quantiles"]:
        low, high = item["low"], item["high"]
        bounds = f"[{number(low)}, {number(high)}]"
        cells.append(f"{number(item['value'])} {bounds}" if facts["values"] else NOTHING)
    return cells


def _heads(column: ColumnDescription) -> list[str]:
    return [f"{100 * item['share']:g} %" for item in column["all"]["quantiles"]]


def _numbers(columns: Sequence[ColumnDescription]) -> Table:
    rows = []
    for column in columns:
        facts = column["all"]
        counts = [f"{facts['values']:,}", _missing(facts)]
        rows.append([column["name"], *counts, *_quantiles(facts)])
    header = ["Column", "Values", "Missing", *_heads(columns[0])]
    return Table("Numbers at all sites, and their quantiles", header, rows)


def _levels(column: ColumnDescription, facts: CountFacts) -> str:
    """Return the count of each level."""
    parts = [
        f"{level} {count:,}"
        for level, count in zip(column["levels"], facts["counts"], strict=True)
        if count
    ]
    if facts["suppressed"]:
        parts.append(f"suppressed {facts['suppressed']:,}")
    return ", ".join(parts) or NOTHING


def _categories(columns: Sequence[ColumnDescription]) -> Table:
    rows = []
    for column in columns:
        facts = column["all"]
        rows.append(
            [
                column["name"],
                _levels(column, facts),
                f"{facts['values'] + facts['suppressed']:,}",
                _missing(facts),
            ]
        )
    header = ["Column", "Levels", "Values", "Missing"]
    return Table("Categories and labels at all sites", header, rows, words=2)


def _of_sites(column: ColumnDescription) -> Table:
    rows = []
    for facts in column["sites"]:
        drift = NOTHING
        if facts["drift"] is not None and facts["chance"] is not None:
            drift = f"{facts['drift']:.2f} ({facts['chance']:.2f})"
        shown = _quantiles(facts)
        if column["levels"]:
            shown = [_levels(column, facts)]
        values = f"{facts['values'] + facts['suppressed']:,}"
        rows.append([facts["site"], *shown, values, _missing(facts), drift])
    what = ["Levels"] if column["levels"] else _heads(column)
    header = ["Site", *what, "Values", "Missing", "Drift (by chance)"]
    words = 2 if column["levels"] else 1
    return Table(f"{column['name']}, by site", header, rows, words=words)


# -- figures --------------------------------------------------------------------------------------


def _histograms(columns: Sequence[ColumnDescription], key: str) -> Block | None:
    """Return the histograms of numbers at all sites, or None without values."""
    shown = [column for column in columns if column["all"]["values"]][:MOST_BARS]
    if not shown:
        return None
    caption = (
        "Counts of all sites in bins of equal width; about 2 % of the values at either end may "
        "lie outside."
    )
    names = join_some([column["name"] for column in shown])
    return show_figure(
        draw_histograms(shown), f"{key}-histograms", caption, alt=f"Histograms of {names}."
    )


@mpl.rc_context(STYLE)
def draw_histograms(columns: Sequence[ColumnDescription]) -> Figure:
    """Draw one histogram for each column of numbers, three in a row."""
    across = min(3, len(columns))
    down = -(-len(columns) // across)
    figure = Figure(figsize=(5.4, 1.35 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes in list(grid.flat)[len(columns) :]:
        axes.set_axis_off()
    for axes, column in zip(grid.flat, columns, strict=False):
        # cells of small counts are joined, so that narrow bars would have gaps
        counts = np.array(column["all"]["counts"][1:-1]).reshape(-1, JOINED).sum(1)
        edges = np.array(column["edges"])[::JOINED]
        filled = np.flatnonzero(counts)
        if len(filled):
            first, last = filled[0], filled[-1] + 1
            axes.bar(
                edges[first:last],
                counts[first:last],
                width=np.diff(edges[first : last + 1]),
                align="edge",
                color=BAR,
            )
        axes.set_title(plain(column["name"][:24]), fontsize=9)
        axes.set_yticks([])
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(labelsize=8)
        axes.grid(visible=False)
    return figure


def _drift_figure(facts: Description, key: str) -> Block:
    """Return the drift of each column and site."""
    largest = 0.0
    where = ""
    for column in facts["columns"]:
        for site in column["sites"]:
            if (site["drift"] or 0.0) > largest:
                largest = site["drift"] or 0.0
                where = f"{column['name']} at {site['site']}"
    alt = f"Drift of each column between sites. It is largest for {where}, {largest:.2f}."
    caption = (
        "Drift of each column (down) at each site (across). Bold numbers exceed the distance that 5 "
        "% of equal sites have by chance."
    )
    return show_figure(draw_drift(facts), f"{key}-drift", caption, alt=alt)


@mpl.rc_context(STYLE)
def draw_drift(facts: Description) -> Figure:
    """Draw the drift of each column (down) at each site (across)."""
    columns = [
        column
        for column in facts["columns"]
        if any(site["drift"] is not None for site in column["sites"])
    ]
    sites = [site["site"] for site in columns[0]["sites"]]
    drift = np.array(
        [[site["drift"] for site in column["sites"]] for column in columns], dtype=float
    )  # NaN for None
    chance = np.array(
        [[site["chance"] for site in column["sites"]] for column in columns], dtype=float
    )
    figure, (axes,) = new_figure(min(12.0, 1.1 + 0.27 * max(len(columns), 4)))
    top = max(0.5, float(np.nanmax(drift)))
    mesh = axes.pcolormesh(np.ma.masked_invalid(drift), cmap=HEAT, vmin=0, vmax=top)
    is_small = drift.size <= MOST_CELLS and len(sites) <= 12
    for (row, at), value in np.ndenumerate(drift):
        if np.isnan(value):
            continue
        add_tip(
            axes,
            at + 0.5,
            row + 0.5,
            f"{columns[row]['name']} at {sites[at]}: {value:.2f}, by chance {chance[row, at]:.2f}",
        )
        if is_small:
            axes.text(
                at + 0.5,
                row + 0.5,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=9,
                fontweight="bold" if value > chance[row, at] else "normal",
                color="#ffffff" if value > 0.45 * top else "#222222",
            )
    axes.set_xticks(np.arange(len(sites)) + 0.5, [plain(site[:16]) for site in sites])
    if sum(len(site[:16]) + 2 for site in sites) > 60:
        axes.tick_params(axis="x", rotation=60)
    names = [plain(column["name"][:30]) for column in columns]
    axes.set_yticks(np.arange(len(columns)) + 0.5, names)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(mesh, ax=axes, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    return figure
