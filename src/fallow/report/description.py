"""Report section on the data of the sites, from a description before the study."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fallow.core.wording import SMALL, is_small, join_some, show_count
from fallow.measurements.description import (
    ColumnDescription,
    CountFacts,
    Description,
    read_description,
)
from fallow.report.blocks import (
    NOTHING,
    Block,
    Blocks,
    CollapsibleBlock,
    Notes,
    Paragraph,
    Table,
    show,
    show_figure,
)
from fallow.report.figures.style import STYLE, plain
from fallow.report.live import summarize_drift
from fallow.study.records import StudyRecords

MOST_BARS = 40
"""Largest number of columns whose histograms are drawn."""
JOINED = 4
"""Number of bins in a bar."""
BAR = "#1f83c4"
DRIFT = (
    "Drift is the Jensen-Shannon distance between a site and all other sites, from 0 (equal) to 1 "
    "(no common values). * marks a drift that fewer than 5 % of equal sites have by chance; the number "
    "in brackets is this limit."
)
COUNTED = (
    f"Counts below {SMALL} are shown as <{SMALL}: a courtesy, and no protection against differences. "
    "Brackets are the bounds of a quantile, with a dash for a bound outside of the bins."
)


def has_description(study: StudyRecords) -> bool:
    """Return whether the data of the study was described."""
    return read_description(study.path) is not None


def description(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the data of the sites."""
    facts = read_description(study.path)
    if facts is None:
        return ()
    lines = [Paragraph(line) for line in summarize_drift(study.path)]
    return [*lines, *description_blocks(facts, key)]


def description_blocks(facts: Description, key: str) -> Blocks:
    """Return tables and figures of a description.  ``key`` is the prefix of all ids."""
    numbers = [column for column in facts["columns"] if not column["levels"]]
    categories = [column for column in facts["columns"] if column["levels"]]
    drifts = [list_drift(column) for column in facts["columns"]]
    notes = [*_list_notes(facts), COUNTED]
    blocks: list[Block] = []
    if numbers:
        rows = [{"Column": one["name"], **_cells(one, one["all"])} for one in numbers]
        blocks.append(Table.of("Numbers at all sites, and their quantiles", rows))
        blocks += _histograms(numbers, key)
    if categories:
        rows = [{"Column": one["name"], **_cells(one, one["all"])} for one in categories]
        blocks.append(Table.of("Categories and labels at all sites", rows, words=2))
    if any(drifts):
        blocks.append(_drift_table(facts))
        notes.append(DRIFT)
    blocks.append(Notes(notes))
    if any(column["sites"] for column in facts["columns"]):
        by_site = list(map(_of_sites, facts["columns"]))
        blocks.append(CollapsibleBlock("Each column by site", by_site))
    return blocks


def _drift_table(facts: Description) -> Table:
    """Return the drift of each column at each site."""
    columns = [column for column in facts["columns"] if list_drift(column)]
    rows = []
    for column in columns:
        cells = [column["name"]]
        for site in column["sites"]:
            text = show(site["drift"], lambda drift: f"{drift:.2f}") or NOTHING
            if (site["drift"] or 0.0) > (site["chance"] or 0.0):
                text += " *"
            cells.append(text)
        rows.append(cells)
    header = ["Column", *(site["site"] for site in columns[0]["sites"])]
    return Table("Drift of each column at each site", header, rows)


def list_drift(column: ColumnDescription) -> list[tuple[float, str]]:
    """Return the drift of each site and its description, without unknown drifts."""
    result = []
    for site in column["sites"]:
        if site["drift"] is not None and site["chance"] is not None:
            text = f"{site['drift']:.4g} at {site['site']} (by chance {site['chance']:.4g})"
            result.append((site["drift"], text))
    return result


def share(part: int, whole: int) -> str:
    """Format a count and its share, which a small count has not.

    >>> share(5, 20), share(4, 20), share(0, 0)
    ('5 (25.0 %)', '<5', '0')
    """
    if not whole or is_small(part):
        return show_count(part)
    return f"{part:,} ({100 * part / whole:.1f} %)"


def number(value: float | None) -> str:
    """Format a value with four digits."""
    return show(value, lambda known: f"{known:.4g}") or NOTHING


def format_description(facts: Description) -> list[str]:
    """Format the description in one line for each column, for a command."""
    lines = []
    for column in facts["columns"]:
        cells = _cells(column, column["all"])
        line = f"{column['name']}: {cells['Values']} values"
        if column["all"]["missing"]:
            line += f", {cells['Missing']} missing"
        if column["levels"] and column["all"]["counts"]:
            line += f" ({cells['Levels']})"
        if column["all"]["values"] and "50 %" in cells:
            line += f", median {cells['50 %']}"
        drifts = list_drift(column)
        if drifts and max(drifts)[0]:
            line += f", largest drift {max(drifts)[1]}"
        lines.append(line)
    return [*lines, *_list_notes(facts)]


def _list_notes(facts: Description) -> list[str]:
    """Return the notes, and the names of sites without figures."""
    if not facts["silent"]:
        return facts["notes"]
    silent = f"No figures of {join_some(facts['silent'])}: describe.allowed is false there."
    return [*facts["notes"], silent]


def _cells(column: ColumnDescription, facts: CountFacts) -> dict[str, str | None]:
    """Return counts of a column at a site or at all sites, and levels or quantiles."""
    levels = []
    for level, count in zip(column["levels"], facts["counts"], strict=False):
        if count:
            levels.append(f"{level} {show_count(count)}")
    values = facts["values"]
    cells: dict[str, str | None] = {
        "Levels": None,
        "Values": show_count(values),
        "Missing": share(facts["missing"], values + facts["missing"]),
    }
    if column["levels"]:
        cells["Levels"] = ", ".join(levels) or NOTHING
    for item in facts["quantiles"]:
        cells[f"{100 * item['share']:g} %"] = NOTHING
        if facts["values"] >= SMALL:
            bounds = f"[{number(item['low'])}, {number(item['high'])}]"
            cells[f"{100 * item['share']:g} %"] = f"{number(item['value'])} {bounds}"
    return cells


def _of_sites(column: ColumnDescription) -> Table:
    rows = []
    for facts in column["sites"]:
        cells = {
            "Site": facts["site"],
            **_cells(column, facts),
            "Drift (by chance)": NOTHING,
        }
        if facts["drift"] is not None and facts["chance"] is not None:
            cells["Drift (by chance)"] = f"{facts['drift']:.2f} ({facts['chance']:.2f})"
        rows.append(cells)
    words = 1 + bool(column["levels"])
    return Table.of(f"{column['name']}, by site", rows, words=words)


# -- figures --------------------------------------------------------------------------------------


def _histograms(columns: Sequence[ColumnDescription], key: str) -> list[Block]:
    """Return the histograms of numbers at all sites, if there are values."""
    shown = [column for column in columns if column["all"]["values"]][:MOST_BARS]
    if not shown:
        return []
    caption = (
        "Counts of all sites in bins of equal width; about 2 % of the values at either end may "
        "lie outside."
    )
    alt = f"Histograms of {join_some([column['name'] for column in shown])}."
    figure = draw_histograms(shown)
    return [show_figure(figure, f"{key}-histograms", caption, alt=alt)]


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
        counts = np.array(column["all"]["counts"][1:-1]).reshape(-1, JOINED).sum(1)
        edges = np.array(column["edges"])[::JOINED]
        counts = np.where((counts > 0) & (counts < SMALL), SMALL / 2, counts)
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
