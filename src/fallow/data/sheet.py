"""Data sheet: a record of what was read, from which page, terminal text and JSON are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, final

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from fallow.core.multilabel import PRESENT, read_digits
from fallow.core.wording import count_noun, join_some
from fallow.data.contact_sheets import draw_contact_sheet, find_pixel_range
from fallow.data.dataset import Dataset, take_rows
from fallow.data.facts import DataFacts, summarize
from fallow.data.neighbors import find_doubtful_labels, find_near_duplicates
from fallow.data.reading import ALL, ColumnRead, Finding, Kind, note, warning

SAMPLED = 20_000
"""Maximum number of examples behind histograms."""
BINS = 16
TAIL = 0.01
"""Share of the values at either end that the outer bins of a histogram collect."""
MOST_COLUMNS = 200
MOST_LEVELS = 8
MOST_SITES = 6
"""Maximum number of sites with a histogram and with pictures of their own."""
MOST_CLASSES = 10
"""Maximum number of classes with pictures."""
SHOWN = 4
"""Maximum number of pictures of a class at a site."""
MOST_FILES = 3
FEWEST = 10
"""Smallest number of examples of a site for a finding about its columns."""
RARE = 0.5
"""Share of a value at other sites below which it is unusual for all examples of one site."""
MOST_DRIFTS = 5
"""Number of columns with the largest drift that are named."""
UNEQUAL = 2.0
"""Ratio of the mean pixels of two sites from which a warning is given."""
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@final
@dataclass(frozen=True)
class Histogram:
    """Histogram of a number or counts of levels, at one site."""

    site: Annotated[str, Field(description="name of the site, or empty for all examples")]
    counts: Annotated[tuple[int, ...], Field(description="examples in each bin or level")]


@final
@dataclass(frozen=True)
class ColumnSheet:
    """Column of a table: what it was read as, and its values."""

    name: Annotated[str, Field(description="name of the column")]
    kind: Annotated[str, Field(description="type of the cells")]
    role: Annotated[str, Field(description="use of the column, such as feature")]
    unit: Annotated[str, Field(description="unit of the cells, or empty")]
    missing: Annotated[int, Field(ge=0, description="empty cells")]
    reason: Annotated[str, Field(description="why it has its role or kind, or empty")]
    fix: Annotated[str, Field(description="setting that changes it, or empty")]
    examples: Annotated[
        tuple[tuple[str, str], ...], Field(description="raw cells, and what they became")
    ]
    low: Annotated[float | None, Field(description="smallest number")] = None
    median: Annotated[float | None, Field(description="median")] = None
    high: Annotated[float | None, Field(description="largest number")] = None
    levels: Annotated[
        tuple[str, ...], Field(description="categories, most frequent first")
    ] = ()
    edges: Annotated[
        tuple[float, ...], Field(description="first and last edge of the histogram")
    ] = ()
    histograms: Annotated[
        tuple[Histogram, ...], Field(description="examples by bin or level, at each site")
    ] = ()
    drift: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="largest total variation distance of the values at a site from those at all "
            "other sites, if it is more than twice that of chance",
        ),
    ] = None
    drift_at: Annotated[str, Field(description="site with this distance, or empty")] = ""


@final
@dataclass(frozen=True)
class ImageSheet:
    """Pixels of the images of a site."""

    site: Annotated[str, Field(description="name of the site, or empty for all images")]
    images: Annotated[int, Field(ge=0, description="number of images")]
    mean: Annotated[float, Field(description="mean of the pixels")]
    low: Annotated[float, Field(description="smallest pixel")]
    high: Annotated[float, Field(description="largest pixel")]


@final
@dataclass(frozen=True)
class FileSheet:
    """File of an example."""

    name: Annotated[str, Field(description="path below the folder")]
    size: Annotated[int, Field(ge=0, description="bytes")]


@final
@dataclass(frozen=True)
class ContactSheet:
    """Pictures of a class at a site, as the model receives them."""

    site: Annotated[str, Field(description="name of the site, or empty")]
    label: Annotated[str, Field(description="name of the class, or empty")]
    png: Annotated[str, Field(description="PNG file in base64")]


@final
@dataclass(frozen=True)
class FindingSheet:
    """Guess or finding about the data."""

    severity: Annotated[str, Field(description="`warning` or `note`")]
    sentence: Annotated[str, Field(description="what was found or chosen")]
    fix: Annotated[str, Field(description="setting that changes it, or empty")]


@final
@dataclass(frozen=True)
class SheetRecord:
    """Record of a data sheet."""

    name: Annotated[str, Field(description="name of the dataset")]
    sentence: Annotated[str, Field(description="the data in one sentence")]
    findings: Annotated[
        tuple[FindingSheet, ...], Field(description="findings, warnings first")
    ]
    facts: Annotated[DataFacts, Field(description="counts of examples")]
    columns: Annotated[tuple[ColumnSheet, ...], Field(description="columns of a table")]
    images: Annotated[tuple[ImageSheet, ...], Field(description="pixels at each site")]
    files: Annotated[
        tuple[FileSheet, ...], Field(description="smallest and largest files, by size")
    ]
    pictures: Annotated[
        tuple[ContactSheet, ...], Field(description="pictures, which only the page has")
    ]
    remarks: Annotated[
        tuple[str, ...], Field(description="what was sampled or left out of the sheet")
    ]


def build_sheet(
    dataset: Dataset, *, folder: Path | None = None, comes_labeled: bool = True
) -> SheetRecord:
    """Summarize a dataset.

    folder: folder of the files that ``dataset.ids`` name, for their sizes.  comes_labeled: False
    if annotators label later, so few labels are expected.
    """
    facts = summarize(dataset, comes_labeled=comes_labeled)
    sample = _sample(len(dataset.x), SAMPLED)
    remarks = []
    if len(sample) < len(dataset.x):
        remarks.append(
            f"Histograms, ranges and pixels are of {len(sample):,} of {len(dataset.x):,} "
            "training examples, evenly spaced."
        )
    images = _describe_images(dataset, sample)
    columns, further = _describe_columns(dataset, sample)
    if columns and dataset.reading is None:
        remarks.append("Values are those that a model receives: a named dataset is scaled.")
    if further:
        remarks.append(f"{count_noun(further, 'further column')} not shown.")
    findings = [
        *map(warning, facts["warnings"]),
        *dataset.findings,
        *_find_duplicates(facts),
        *_find_constants(dataset),
        *_find_drift(columns),
        *_find_unequal_images(images),
        *find_near_duplicates(dataset),
        *find_doubtful_labels(dataset),
    ]
    return SheetRecord(
        name=dataset.name,
        sentence=_describe_dataset(dataset, facts),
        findings=_order(findings),
        facts=facts,
        columns=columns,
        images=images,
        files=_list_files(dataset, folder),
        pictures=tuple(_draw_pictures(dataset)),
        remarks=tuple(remarks),
    )


def _order(findings: Sequence[Finding]) -> tuple[FindingSheet, ...]:
    """Return different findings, warnings first."""
    distinct = dict.fromkeys(findings)
    ordered = sorted(distinct, key=lambda finding: finding.severity != "warning")
    return tuple(FindingSheet(item.severity, item.sentence, item.fix) for item in ordered)


def _sample(n: int, largest: int) -> Tensor:
    """Return at largest ``most`` evenly spaced positions below n."""
    step = max(1, -(-n // largest))
    return torch.arange(0, n, step)


def _describe_dataset(dataset: Dataset, facts: DataFacts) -> str:
    """Describe rows, split, labels and sites in one sentence."""
    total = len(dataset.x) + len(dataset.x_test)
    parts = [
        f"{len(dataset.x):,} for training and {len(dataset.x_test):,} for testing",
        _describe_task(dataset),
    ]
    unlabeled = int((~dataset.is_labeled).sum())
    if unlabeled:
        parts.append(f"{unlabeled:,} unlabeled")
    if dataset.groups is not None:
        parts.append(f"{count_noun(dataset.n_groups, 'group')} that no split divides")
    left_out = facts["read"] - facts["kept"]
    if left_out > 0:
        parts.append(f"{left_out:,} left out")
    where = "without sites, so that a study divides them by its partition"
    if dataset.sites is not None:
        where = f"at {count_noun(len(dataset.site_names), 'natural site')}"
    return f"{total:,} examples {where}: {', '.join(parts)}."


def _describe_task(dataset: Dataset) -> str:
    if dataset.classes:
        names = join_some([f"{name!r}" for name in dataset.classes])
        return f"{dataset.n_classes} classes ({names})"
    if dataset.labels:
        names = join_some([f"{name!r}" for name in dataset.labels])
        return (
            f"{len(dataset.labels)} labels ({names}), of which an example may have several"
        )
    known = torch.cat([dataset.y[dataset.is_labeled], dataset.y_test])
    if not len(known):
        return "a number to predict"
    return f"a number to predict, from {float(known.min()):.4g} to {float(known.max()):.4g}"


def _find_duplicates(facts: DataFacts) -> Iterator[Finding]:
    if facts["crossing"]:
        yield warning(
            f"{count_noun(facts['crossing'], 'test example')} equal to a training example"
        )
    elif facts["duplicates"]:
        yield note(f"{count_noun(facts['duplicates'], 'example')} equal to an earlier one")


# -- columns --------------------------------------------------------------------------------------


def _describe_columns(
    dataset: Dataset, sample: Tensor
) -> tuple[tuple[ColumnSheet, ...], int]:
    """Describe the columns of a table, and return the number of those that are not shown."""
    if dataset.x.ndim != 2:
        return (), 0
    reads = _list_reads(dataset)
    positions = {name: at for at, name in enumerate(dataset.columns)}
    x = take_rows(dataset.x, sample).numpy()
    sites = _masks_of_sites(dataset, sample)
    columns = [_describe_label(dataset, sample, sites)]
    for at, read in enumerate(reads[:MOST_COLUMNS]):
        first = positions.get(read.name) if positions else at
        if read.is_feature and read.kind == "category":
            first = positions.get(f"{read.name}={read.values[0]}")
        columns.append(_describe_column(read, x, first, sites))
    return tuple(columns), max(0, len(reads) - MOST_COLUMNS)


def _describe_label(
    dataset: Dataset, sample: Tensor, sites: Sequence[tuple[str, Mask]]
) -> ColumnSheet:
    """Describe the labels: classes, several labels that are present, or targets of a regression."""
    name = "label"
    if dataset.reading is not None:
        name = next((c.name for c in dataset.reading.columns if c.role == "label"), name)
    values = dataset.classes or dataset.labels
    kind: Kind = "category" if values else "number"
    read = ColumnRead(
        name,
        kind,
        "label",
        values=values,
        missing=int((~dataset.is_labeled).sum()),
    )
    y = dataset.y[sample, None]  # (n, 1)
    if dataset.classes:
        y = y == torch.arange(dataset.n_classes)  # (n, classes), one-hot
    if dataset.labels:
        y = read_digits(dataset.y[sample], len(dataset.labels)) == PRESENT  # (n, labels)
    return _describe_column(read, y.float().numpy(), 0, sites)


def _list_reads(dataset: Dataset) -> tuple[ColumnRead, ...]:
    """Return the columns as they were read, or one for each feature."""
    if dataset.reading is not None and dataset.reading.columns:
        return tuple(read for read in dataset.reading.columns if read.role != "label")
    names = dataset.columns or [f"feature {at}" for at in range(dataset.x.shape[1])]
    return tuple(ColumnRead(name, "number") for name in names)


def _masks_of_sites(dataset: Dataset, sample: Tensor) -> list[tuple[str, Mask]]:
    """Return the largest sites, in their order, and which examples of the sample they have."""
    everywhere: Mask = np.ones(len(sample), dtype=np.bool_)
    if dataset.sites is None:
        return [(ALL, everywhere)]
    site_of = dataset.sites[sample].numpy()
    largest = [site for site, _ in Counter(dataset.sites.tolist()).most_common(MOST_SITES)]
    return [(dataset.site_names[site], site_of == site) for site in sorted(largest)]


def _describe_column(
    read: ColumnRead, x: Floats, first: int | None, sites: Sequence[tuple[str, Mask]]
) -> ColumnSheet:
    """Describe a column; ``first`` is the position of its first feature, None without one."""
    sheet = ColumnSheet(
        name=read.name,
        kind=read.kind,
        role=read.role,
        unit=read.unit,
        missing=read.missing,
        reason=read.reason,
        fix=read.fix,
        examples=tuple((item.cell, item.value) for item in read.examples),
        levels=read.values[:MOST_LEVELS],
    )
    if first is None:
        return sheet
    if read.kind == "category":
        levels = x[:, first : first + len(read.values)]
        return _measure_drift(_count_levels(sheet, read, levels, sites))
    numbers = x[:, first].astype(np.float64) + read.offset
    return _measure_drift(_count_numbers(sheet, numbers, sites))


def _measure_drift(sheet: ColumnSheet) -> ColumnSheet:
    """Add the site whose values differ most from those of all others.

    The distance is the share of examples that would have to change their bin or level.
    """
    counts = np.array([item.counts for item in sheet.histograms], dtype=np.float64)
    if len(counts) < 2:
        return sheet
    sizes = counts.sum(1)  # (sites,)
    others = counts.sum(0) - counts  # (sites, cells)
    n_others = others.sum(1)
    is_enough = (sizes >= FEWEST) & (n_others >= FEWEST)
    if not is_enough.any():
        return sheet
    shares = counts[is_enough] / sizes[is_enough, None]
    expected = others[is_enough] / n_others[is_enough, None]
    distances = np.abs(shares - expected).sum(1) / 2
    per_cell = 1 / sizes[is_enough] + 1 / n_others[is_enough]
    spread = expected * (1 - expected) * per_cell[:, None]
    chances = np.sqrt(2 / np.pi * spread).sum(1) / 2  # mean of half-normal deviations
    at = int(np.argmax(distances - 2 * chances))
    if distances[at] <= 2 * chances[at]:
        return sheet
    site = sheet.histograms[int(np.flatnonzero(is_enough)[at])].site
    return replace(sheet, drift=round(float(distances[at]), 4), drift_at=site)


def _find_drift(columns: Sequence[ColumnSheet]) -> Iterator[Finding]:
    """Yield a note on the columns that differ most between sites, largest first."""
    drifts = [(-column.drift, column) for column in columns if column.drift is not None]
    drifts.sort(key=lambda pair: pair[0])
    if drifts:
        listed = [
            f"{column.name!r} at {column.drift_at} {-drift:.2f}"
            for drift, column in drifts[:MOST_DRIFTS]
        ]
        yield note(
            "columns differ between a site and the others (share of examples with another "
            f"value): {', '.join(listed)}"
        )


def _count_levels(
    sheet: ColumnSheet, read: ColumnRead, x: Floats, sites: Sequence[tuple[str, Mask]]
) -> ColumnSheet:
    """Add the counts of the levels at each site, most frequent first.  x: (n, levels), one-hot."""
    frequent = np.nansum(x, axis=0).argsort(kind="stable")[::-1][:MOST_LEVELS]
    histograms = []
    for site, mask in sites:
        counts = np.nansum(x[mask][:, frequent], axis=0)
        histograms.append(Histogram(site, tuple(counts.astype(int).tolist())))
    levels = tuple(read.values[at] for at in frequent)
    return replace(sheet, levels=levels, histograms=tuple(histograms))


def _count_numbers(
    sheet: ColumnSheet, x: Doubles, sites: Sequence[tuple[str, Mask]]
) -> ColumnSheet:
    """Add range, median and the histogram at each site.  x: (n,), NaN for an empty cell."""
    is_known = ~np.isnan(x)
    if not is_known.any():
        return sheet
    known = x[is_known]
    first, last = np.quantile(known, [TAIL, 1 - TAIL]).tolist()
    if first == last:
        first, last = float(known.min()), float(known.max())
    if first == last:
        last = first + 1.0
    edges = np.linspace(first, last, BINS + 1)
    histograms = []
    for site, mask in sites:
        inside = np.clip(x[mask & is_known], first, last)
        counts, _ = np.histogram(inside, edges)
        histograms.append(Histogram(site, tuple(counts.tolist())))
    return replace(
        sheet,
        low=float(known.min()),
        median=float(np.median(known)),
        high=float(known.max()),
        edges=(first, last),
        histograms=tuple(histograms),
    )


def _find_constants(dataset: Dataset) -> Iterator[Finding]:
    """Yield a warning on columns that have one value at a site and others elsewhere."""
    if dataset.sites is None or dataset.x.ndim != 2 or len(dataset.site_names) < 2:
        return
    positions = {name: at for at, name in enumerate(dataset.columns)}
    for read in _list_reads(dataset)[:MOST_COLUMNS]:
        if not read.is_feature or read.kind != "number" or read.name not in positions:
            continue
        x = dataset.x[:, positions[read.name]]
        for site, name in enumerate(dataset.site_names):
            is_here = dataset.sites == site
            value = _describe_constant(x[is_here], x[~is_here], read.offset)
            if value:
                yield warning(f"column {read.name!r} at {name} is {value}", _drop(read))


def _describe_constant(here: Tensor, elsewhere: Tensor, offset: float) -> str:
    """Describe a column that is empty or has one value at a site; otherwise return ""."""
    known = here[~here.isnan()]
    if len(here) < FEWEST:
        return ""
    if not len(known):
        return "empty"
    first = known[0]
    is_constant = len(known) >= FEWEST and bool((known == first).all())
    if not is_constant or float((elsewhere == first).float().mean()) >= RARE:
        return ""
    value = f"{float(first) + offset:.10g}"
    return (
        f"{value} in all {len(known):,} training examples, and rarely elsewhere: {value} may "
        "stand for a missing value"
    )


def _drop(read: ColumnRead) -> str:
    return f"drop=[{read.name!r}]"


# -- images ---------------------------------------------------------------------------------------


def _describe_images(dataset: Dataset, sample: Tensor) -> tuple[ImageSheet, ...]:
    """Describe the pixels of each site, of one after another to save memory."""
    if dataset.x.ndim != 4:
        return ()
    groups = [(ALL, sample)]
    if dataset.sites is not None:
        site_of = dataset.sites[sample]
        groups = []
        for at, name in enumerate(dataset.site_names):
            groups.append((name, sample[site_of == at]))
    result = []
    for name, rows in groups:
        if not len(rows):
            continue
        x = take_rows(dataset.x, rows)
        low, high = x.aminmax()
        result.append(ImageSheet(name, len(rows), float(x.mean()), float(low), float(high)))
    return tuple(result)


def _find_unequal_images(images: Sequence[ImageSheet]) -> Iterator[Finding]:
    """Yield a warning if the images of a site are much darker than those of another."""
    if len(images) < 2 or min(image.low for image in images) < 0:
        return
    darkest = min(images, key=lambda image: image.mean)
    brightest = max(images, key=lambda image: image.mean)
    if brightest.mean > UNEQUAL * darkest.mean:
        yield warning(
            f"images at {darkest.site} are darker than at {brightest.site} (mean pixel "
            f"{darkest.mean:.3g} and {brightest.mean:.3g}): compare the range of the pixels "
            "in their files"
        )


def _draw_pictures(dataset: Dataset) -> Iterator[ContactSheet]:
    """Draw some examples of each class at each site."""
    if dataset.x.ndim != 4 or dataset.x.shape[1] not in (1, 3):
        return
    pixels = find_pixel_range(take_rows(dataset.x, _sample(len(dataset.x), SAMPLED)))
    sites = _masks_of_sites(dataset, torch.arange(len(dataset.x)))
    for label, is_label in _masks_of_classes(dataset):
        for site, mask in sites:
            rows = torch.from_numpy(np.flatnonzero(is_label & mask))
            if len(rows):
                shown = rows[_sample(len(rows), SHOWN)]
                png = draw_contact_sheet(take_rows(dataset.x, shown), pixels)
                yield ContactSheet(site, label, png)


def _masks_of_classes(dataset: Dataset) -> list[tuple[str, Mask]]:
    """Return the first classes, or all examples without classes, and their training examples."""
    if not dataset.classes:
        return [("", np.ones(len(dataset.y), dtype=np.bool_))]
    masks = []
    for at, name in enumerate(dataset.classes[:MOST_CLASSES]):
        masks.append((name, (dataset.y == at).numpy()))
    return masks


def _list_files(dataset: Dataset, folder: Path | None) -> tuple[FileSheet, ...]:
    """Return the smallest and the largest files of the training examples."""
    if folder is None or dataset.ids is None or dataset.x.ndim != 4:
        return ()
    files = []
    for name in dataset.ids:
        path = folder / name
        if path.is_file():
            files.append(FileSheet(name, path.stat().st_size))
    files.sort(key=lambda file: file.size)
    if not files or files[0].size == files[-1].size:
        return ()
    if len(files) <= 2 * MOST_FILES:
        return tuple(files)
    return (*files[:MOST_FILES], *files[-MOST_FILES:])


# -- text -----------------------------------------------------------------------------------------


MOST_FINDINGS = 12
"""Maximum number of findings in the terminal."""


def format_sheet(
    sheet: SheetRecord, describe_fix: Callable[[str], str] = str
) -> Iterator[str]:
    """Format a sheet in a few lines; ``describe_fix`` formats the setting that changes a finding."""
    yield f"{sheet.name}: {sheet.sentence}"
    for finding in sheet.findings[:MOST_FINDINGS]:
        line = f"  {finding.severity}: {finding.sentence}"
        if "=" in finding.fix:
            line += f"; change it with {describe_fix(finding.fix)}"
        elif finding.fix:
            line += f"; {finding.fix}"
        yield line
    further = len(sheet.findings) - MOST_FINDINGS
    if further > 0:
        yield f"  and {count_noun(further, 'further finding')} on the page"
