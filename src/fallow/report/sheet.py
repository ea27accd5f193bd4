"""Page of a data sheet, generated from its record alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fallow.core.wording import round_up, show_count, size
from fallow.data.reading import ALL
from fallow.data.sheet import ColumnSheet, ContactSheet, Histogram, SheetRecord
from fallow.report.blocks import Block, Table
from fallow.report.render import render_template
from fallow.storage.files import write_whole

EVERYWHERE = "all examples"
"""Name of the only row of examples without sites."""
STRONGEST = 70
"""Percentage of color of a cell with all labels of its site, on which text is legible."""
MOST_ROWS = 60
"""Maximum number of sites in the table of labels."""
MOST_CLASSES = 40
"""Maximum number of classes in it."""


@final
@dataclass(frozen=True)
class SiteBars:
    """Values of a column at a site: an SVG path of a histogram, or shares of levels."""

    site: str
    path: str = ""
    shares: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class HeatCell:
    """Number of labels of a class at a site, as it is shown, and the percentage of its color."""

    text: str
    color: int


@final
@dataclass(frozen=True)
class HeatRow:
    """Labels of a site."""

    site: str
    cells: tuple[HeatCell, ...]


@final
@dataclass(frozen=True)
class PictureRow:
    """Contact sheets of a class, None where a site has no example of it."""

    label: str
    sheets: tuple[ContactSheet | None, ...]


def render_sheet(sheet: SheetRecord) -> str:
    """Return the page of a data sheet, without scripts and external resources."""
    shown = list(dict.fromkeys(picture.site for picture in sheet.pictures))
    return render_template(
        "sheet.html",
        sheet=sheet,
        columns=[(column, _draw_bars(column)) for column in sheet.columns],
        examples=_list_examples(sheet),
        drifts=_list_drifts(sheet),
        classes=list(sheet.facts["classes"])[:MOST_CLASSES],
        heat=_list_heat(sheet),
        picture_sites=[site or EVERYWHERE for site in shown],
        pictures=_list_pictures(sheet.pictures, shown),
        pixels=_list_pixels(sheet),
        describe_range=describe_range,
    )


def write_sheet(sheet: SheetRecord, path: Path) -> None:
    """Write the page of a data sheet, atomically."""
    write_whole(path, render_sheet(sheet).encode())


def describe_range(column: ColumnSheet) -> str:
    """Describe the values of a column of numbers, with their unit.

    >>> age = ColumnSheet(
    ...     "age", "number", "feature", "y", 0, "", "", (), low=28.0, median=54.0, high=77.0
    ... )
    >>> describe_range(age)
    '28 to 77 y, median 54'
    >>> from dataclasses import replace
    >>> describe_range(
    ...     replace(age, low=1700000000.0, median=1700000005.0, high=1700000010.0)
    ... )
    '1700000000 to 1700000010 y, median 1700000005'
    """
    if column.low is None or column.high is None or column.median is None:
        return ""
    unit = f" {column.unit}" if column.unit else ""
    digits = 5
    widest = max(abs(column.low), abs(column.high))
    # enough to tell the ends of the range apart
    if widest > 0 and column.high > column.low:
        digits = max(digits, 4 + math.ceil(math.log10(widest / (column.high - column.low))))
    low, median, high = (
        f"{value:.{digits}g}" for value in (column.low, column.median, column.high)
    )
    return f"{low} to {high}{unit}, median {median}"


def _draw_bars(column: ColumnSheet) -> list[SiteBars]:
    bars = []
    for histogram in column.histograms:
        if column.levels:
            bars.append(SiteBars(histogram.site, shares=histogram.counts))
        else:
            bars.append(SiteBars(histogram.site, path=_draw_histogram(histogram)))
    return bars


def _draw_histogram(histogram: Histogram) -> str:
    """Return the bars of a histogram as an SVG path, one unit wide and at most 10 high."""
    highest = max(histogram.counts, default=0) or 1
    parts = []
    for at, count in enumerate(histogram.counts):
        if count:
            height = max(0.4, 10 * count / highest)
            parts.append(f"M{at}.06 10v{-height:.1f}h.88V10z")
    return "".join(parts)


def _list_examples(sheet: SheetRecord) -> Block:
    """Return the table of examples at each site."""
    reasons = [item["reason"] for item in sheet.facts["left_out"]]
    rows = []
    for site in sheet.facts["sites"][:MOST_ROWS]:
        cells = {
            "Site": site["site"] or EVERYWHERE,
            "Read": f"{site['read']:,}",
            "Training": f"{site['train']:,}",
            "Test": f"{site['test']:,}",
        }
        for reason, item in zip(reasons, sheet.facts["left_out"], strict=True):
            cells[f"Left out: {reason}"] = f"{item['rows'].get(site['site'], 0):,}"
        rows.append(cells)
    return Table.of("Examples of each site", rows)


def _list_drifts(sheet: SheetRecord) -> list[tuple[ColumnSheet, int]]:
    """Return the columns that differ between sites, and the differences in percent."""
    drifts = []
    for column in sheet.columns:
        if column.drift is not None:
            drifts.append((column, round(100 * column.drift)))
    return sorted(drifts, key=lambda pair: -pair[1])[:MOST_ROWS]


def _list_heat(sheet: SheetRecord) -> list[HeatRow]:
    """Return the labels of each class at each site."""
    classes = list(sheet.facts["classes"])[:MOST_CLASSES]
    rows = []
    for site in sheet.facts["sites"][:MOST_ROWS]:
        counts = [site["classes"].get(name, 0) for name in classes]
        total = sum(map(round_up, counts)) or 1
        cells = [
            HeatCell(show_count(count), round(STRONGEST * round_up(count) / total))
            for count in counts
        ]
        rows.append(HeatRow(site["site"] or EVERYWHERE, tuple(cells)))
    return rows


def _list_pictures(
    pictures: Sequence[ContactSheet], sites: Sequence[str]
) -> list[PictureRow]:
    by_cell = {(picture.label, picture.site): picture for picture in pictures}
    rows = []
    for label in dict.fromkeys(picture.label for picture in pictures):
        sheets = tuple(by_cell.get((label, site)) for site in sites)
        rows.append(PictureRow(label, sheets))
    return rows


def _list_pixels(sheet: SheetRecord) -> list[Block]:
    """Return the tables of pixels at each site, and of the smallest and largest files."""
    blocks: list[Block] = []
    if sheet.images:
        rows = []
        for image in sheet.images[:MOST_ROWS]:
            rows.append(
                {
                    "Site": EVERYWHERE if image.site == ALL else image.site,
                    "Images": f"{image.images:,}",
                    "Mean": f"{image.mean:.3g}",
                    "Darkest": f"{image.low:.3g}",
                    "Brightest": f"{image.high:.3g}",
                }
            )
        blocks.append(Table.of("Pixels of the images, as the model receives them", rows))
    if sheet.files:
        files = [{"File": file.name, "Size": size(file.size)} for file in sheet.files]
        blocks.append(Table.of("Smallest and largest files", files))
    return blocks
